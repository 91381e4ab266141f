"""MemDaily (Zhang et al., MemSim, arXiv 2409.20163; no licence file): Chinese everyday messages, with questions.

A trajectory is about nine messages of one person and one question, whose ``target_step_id`` names the messages
that answer it. So short a list would make any search look good: 200 messages of other trajectories are mixed in,
none of which names one of this trajectory's people, events or things.
"""

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.corpus import Corpus, DataMissing, Document, Question

NAME = "memdaily"
GROUPS = {
    "01": "simple",
    "02": "conditional",
    "03": "comparative",
    "04": "aggregative",
    "05": "post-processing",
    "06": "noisy",
}
SEED = 7
PER_TYPE = 100
DISTRACTORS = 200

_TIME = re.compile(r"(\d{4})年(\d\d)月(\d\d)日.*?(\d\d):(\d\d)")
_KIN = (
    "外公|外婆|爷爷|奶奶|父亲|母亲|爸爸|妈妈|爸|妈|叔叔|婶婶|伯父|伯母|姑姑|姑父|姨妈|姨父|舅舅|舅妈"
    "|哥哥|弟弟|姐姐|妹妹|表哥|表弟|表姐|表妹|堂哥|堂弟|堂姐|堂妹|侄子|侄女|外甥|外甥女|儿子|女儿|妻子|丈夫"
    "|老婆|老公|上司|领导|老板|同事|下属|朋友|同学|邻居|老师|徒弟|师父"
)
_ENTITIES = (
    re.compile(rf"({_KIN})"),
    re.compile(r"^([^，。的是我]{2,4})是我的"),  # a person by name
    re.compile(rf"我的?(?:{_KIN})(?:的(?:名字|姓名))?(?:是|叫|名叫)([^，。的是]{{2,4}})[，。]"),
    re.compile(r"参加的?([^，。的]{4,})[，。]"),  # an event
    re.compile(r"^([^，。的]{4,})的(?:地点|时间|规模|持续时间|主要内容|举办地|日期)"),
    re.compile(
        r"(?:手机|电脑|平板|手表|耳机|相机|汽车|车)[^，。]{0,4}?(?:是|叫|为)([^，。]{2,})[，。]"
    ),  # a thing
    re.compile(
        r"(?:景区|地方|小区|景点|公园|公司|单位|酒店|餐厅|医院|学校|商场|店)"
        r"[^，。]{0,4}?(?:是|叫|为)(?:一?[个家座所])?([^，。]{2,})[，。]"
    ),
    re.compile(r"^([^，。的我]{3,8}?)(?:给我|真心|真的|真是|这个)"),
    re.compile(r"^([A-Za-z][\w ]{3,}|[^，。的我]{4,8})(?:这款|这个|这部|这家)"),
)


class Trajectory(NamedTuple):
    """One trajectory with its question, as it stands in the data."""

    id: str
    group: str
    messages: list[dict[str, Any]]
    query: str
    gold: frozenset[int]


def read(folder: Path, limit: int | None = None) -> list[Corpus]:
    """A seeded choice of trajectories, the same number of each type: 100 of each, or about ``limit`` in all.

    :raises DataMissing: when the folder holds none of the data set's files.
    """
    trajectories = _present(folder)
    choice = random.Random(SEED)
    per_type = PER_TYPE if limit is None else -(-limit // len(GROUPS))
    chosen: list[Trajectory] = []
    for group in GROUPS:
        of_type = [t for t in trajectories if t.group == group]
        chosen += choice.sample(of_type, min(per_type, len(of_type)))
    if limit is not None:
        chosen = chosen[:limit] if len(chosen) <= limit else _evenly(chosen, limit)
    pool = _pool(trajectories)
    return [_corpus(trajectory, pool, choice) for trajectory in chosen]


def texts(folder: Path) -> list[str]:
    """Every distinct message.

    :raises DataMissing: when the folder holds none of the data set's files.
    """
    return [candidate.text for candidate in _pool(_present(folder))]


def _present(folder: Path) -> list[Trajectory]:
    trajectories = list(_trajectories(folder))
    if not trajectories:
        raise DataMissing(f"there is no 0?_*.json of MemDaily in {folder.name}")
    return trajectories


def _evenly(chosen: Sequence[Trajectory], limit: int) -> list[Trajectory]:
    return [chosen[place * len(chosen) // limit] for place in range(limit)]


def _trajectories(folder: Path) -> Iterator[Trajectory]:
    for file in sorted(folder.glob("0[1-6]_*.json")):
        for raw in json.loads(file.read_text(encoding="utf-8")):
            asked = raw["question_list"][0]
            known = {message["mid"] for message in raw["message_list"]}
            gold = known & set(asked["target_step_id"])
            if gold:
                name = f"{file.stem}/{raw['tid']}"
                yield Trajectory(name, file.stem[:2], raw["message_list"], asked["question"], frozenset(gold))


class _Candidate(NamedTuple):
    trajectory: str
    text: str
    at: str


def _pool(trajectories: Iterable[Trajectory]) -> list[_Candidate]:
    """Every distinct message, at its first place."""
    first: dict[str, _Candidate] = {}
    for trajectory in trajectories:
        for message in trajectory.messages:
            text = message["message"]
            first.setdefault(text, _Candidate(trajectory.id, text, _time(message["time"])))
    return list(first.values())


def entities(messages: Iterable[str]) -> set[str]:
    """The people, events and things that messages are about, by the data's own sentence patterns."""
    return {found for text in messages for pattern in _ENTITIES for found in pattern.findall(text)}


def _corpus(trajectory: Trajectory, pool: Sequence[_Candidate], choice: random.Random) -> Corpus:
    own = [message["message"] for message in trajectory.messages]
    names = entities(own)
    documents = [
        Document(str(message["mid"]), message["message"], _time(message["time"]))
        for message in trajectory.messages
    ]
    taken = set(own)
    for place in choice.sample(range(len(pool)), len(pool)):
        if len(documents) == len(own) + DISTRACTORS:
            break
        candidate = pool[place]
        if candidate.trajectory == trajectory.id or candidate.text in taken:
            continue
        if any(name in candidate.text for name in names):
            continue
        taken.add(candidate.text)
        documents.append(Document(f"other-{place}", candidate.text, candidate.at))
    documents.sort(key=lambda document: document.at or "")
    gold = frozenset(map(str, trajectory.gold))
    question = Question(trajectory.id, trajectory.query, gold, trajectory.group)
    return Corpus(trajectory.id, tuple(documents), (question,))


def _time(text: str) -> str:
    """For example ``2024年04月01日 周一 08:30``; the data names no zone."""
    found = _TIME.match(text)
    if found is None:
        raise ValueError(f"not a time of MemDaily: {text!r}")
    return datetime(*map(int, found.groups())).isoformat()  # noqa: DTZ001
