"""Profiles without a model: the memories in force, line by line under a few headings.

What a person wrote is kept: the section of notes at the end is carried over as it stands, and a text that these rules
did not begin becomes that section.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memstore.pipelines.rules.attributes import claims
from memstore.pipelines.rules.likeness import covers, opposite, same
from memstore.pipelines.rules.statement import Statement, read
from memstore.pipelines.values import Known, Language, ProfileName, ProfileTask, Said

_TITLES: dict[ProfileName, dict[Language, str]] = {
    "user": {"zh": "# 用户画像", "en": "# User profile"},
    "agent": {"zh": "# 智能体档案", "en": "# Agent profile"},
}
_HEADINGS: dict[str, dict[Language, str]] = {
    "about": {"zh": "## 基本信息", "en": "## About"},
    "preferences": {"zh": "## 偏好", "en": "## Preferences"},
    "skills": {"zh": "## 技能", "en": "## Skills"},
    "plans": {"zh": "## 计划", "en": "## Plans"},
    "more": {"zh": "## 其他", "en": "## More"},
    "rules": {"zh": "## 行为准则", "en": "## Rules"},
    "ongoing": {"zh": "## 近期的计划与决定", "en": "## Ongoing plans and decisions"},
    "scenes": {"zh": "## 场景", "en": "## Scenes"},
    "topics": {"zh": "## 近期话题（来自最近的对话）", "en": "## Recent topics (from recent conversations)"},
    "notes": {"zh": "## 备注", "en": "## Notes"},
}
_ABOUT = re.compile(
    "叫|名字|住|来自|出生|工作|职业|任职|就职|岁|生日|毕业|结婚|单身|孩子|儿子|女儿|妻子|丈夫|养了|是一[名位个]|手机|邮箱"
    r"|\b(?:name|lives?|from|born|works?|years old|birthday|graduated|married|single|son|daughter|wife|husband|has an?|is an?|am an?|phone|email)\b"
)
_PREFERENCES = re.compile(
    "喜欢|喜爱|偏好|偏爱|爱[吃喝看听玩]|讨厌|不吃|不喝|过敏|习惯|最爱|常用|用.*(?:写|记)"
    r"|\b(?:likes?|loves?|enjoys?|prefers?|favou?rite|hates?|dislikes?|allergic|vegetarian|vegan|usually|uses?)\b"
)
_SKILLS = re.compile(
    "擅长|精通|熟悉|熟练|会(?:说|写|弹|用|做|打|游|开)|掌握|流利"
    r"|\b(?:speaks?|fluent|skilled|knows? how|expert|good at|proficient|can (?:play|speak|write|code))\b"
)
_PLANS = re.compile(
    "计划|打算|准备|希望|目标|想(?:要|学|去|买)|正在学"
    r"|\b(?:plans?|planning|wants?|hopes?|goals?|aims?|intends?|going to|is learning)\b"
)
_MOST_COMPARED = 300
_MOST_ONGOING = 10
_MOST_SCENES = 15
_MOST_TOPICS = 10
_TOPIC_CHARS = 60
_SENTENCE_END = re.compile(r"[。！？!?；;\n]|\.(?=\s|$)")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the profile. Lines come in by ``rank``, the lowest first, until the text is full."""

    section: str
    text: str
    rank: tuple[int, int]


def profile(task: ProfileTask) -> str:
    """The whole new text, or the current one where there is nothing to say, or no room beside the notes."""
    lines = _user_lines(task) if task.profile == "user" else _agent_lines(task)
    if not lines and not task.memories:
        lines = _topic_lines(task)
    notes = _notes(task)
    if not lines:
        return task.current
    title = _TITLES[task.profile][task.language]
    closing = f"\n\n{_HEADINGS['notes'][task.language]}\n{notes}" if notes else ""
    body = _fitted(lines, task, task.max_chars - len(title) - len(closing))
    return f"{title}{body}{closing}" if body else task.current


def _notes(task: ProfileTask) -> str:
    """What a person wrote in the current text."""
    current = task.current.strip("\n")
    rows = current.split("\n")
    if rows[0].strip() not in _TITLES[task.profile].values():
        return current if current.strip() else ""
    headings = set(_HEADINGS["notes"].values())
    start = next((i for i, row in enumerate(rows) if row.strip() in headings), None)
    return "" if start is None else "\n".join(rows[start + 1 :])


def _fitted(lines: Sequence[_Line], task: ProfileTask, room: int) -> str:
    """The sections with as many lines as there is room for."""
    kept: set[_Line] = set()
    opened: set[str] = set()
    for line in sorted(lines, key=lambda one: one.rank):
        cost = len(line.text) + 1
        if line.section not in opened:
            cost += len(_HEADINGS[line.section][task.language]) + 2
        if cost <= room:
            kept.add(line)
            opened.add(line.section)
            room -= cost
    parts = []
    for section in dict.fromkeys(line.section for line in lines):
        chosen = [line.text for line in lines if line.section == section and line in kept]
        if chosen:
            parts.append(f"\n\n{_HEADINGS[section][task.language]}\n" + "\n".join(chosen))
    return "".join(parts)


def _user_lines(task: ProfileTask) -> list[_Line]:
    chosen = _in_force(memory for memory in task.memories if memory.kind == "persona")
    made = [_Line(_section(memory), _bullet(memory.content), (0, i)) for i, memory in enumerate(chosen)]
    order = ("about", "preferences", "skills", "plans", "more")
    return sorted(made, key=lambda line: order.index(line.section))


def _section(memory: Known) -> str:
    text = read(memory.content).text
    for section, pattern in (("plans", _PLANS), ("preferences", _PREFERENCES), ("skills", _SKILLS)):
        if pattern.search(text):
            return section if section != "preferences" or not claims(memory.content) else _claimed(memory)
    return "about" if claims(memory.content) or _ABOUT.search(text) else "more"


def _claimed(memory: Known) -> str:
    return "preferences" if all(claim.attribute == "diet" for claim in claims(memory.content)) else "about"


def _agent_lines(task: ProfileTask) -> list[_Line]:
    rules = _in_force(memory for memory in task.memories if memory.kind == "instruction")
    events = _in_force(memory for memory in task.memories if memory.kind == "episodic")
    recent = events[::-1][:_MOST_ONGOING]
    scenes = sorted(task.scenes, key=lambda one: (one.updated_at, one.id), reverse=True)[:_MOST_SCENES]
    names = list(dict.fromkeys(" ".join(scene.name.split()) for scene in scenes if scene.name.strip()))
    return [
        *(_Line("rules", _bullet(memory.content), (0, i)) for i, memory in enumerate(rules)),
        *(_Line("ongoing", _bullet(memory.content), (1, i)) for i, memory in enumerate(recent)),
        *(_Line("scenes", f"- {name}", (2, i)) for i, name in enumerate(names)),
    ]


def _bullet(content: str) -> str:
    return f"- {' '.join(content.split())}"


def _in_force(memories: Iterable[Known]) -> list[Known]:
    """Absolute ones first, then by priority, then the newest; of what says the same or the opposite, the newest."""
    newest = list(memories)[::-1]
    kept: list[tuple[Known, Statement]] = []
    for memory in newest[:_MOST_COMPARED]:
        statement = read(memory.content)
        told = any(
            same(other, statement) or opposite(other, statement) or covers(other, statement)
            for _, other in kept
        )
        if memory.content.strip() and (memory.priority < 0 or not told):
            kept.append((memory, statement))
    return sorted((memory for memory, _ in kept), key=lambda one: (one.priority >= 0, -one.priority))


def _topic_lines(task: ProfileTask) -> list[_Line]:
    """The beginnings of what the user said last; quoted, since they are topics and no statements."""
    found: dict[str, None] = {}
    for said in reversed(task.messages):
        topic = _topic(said)
        if topic:
            found.setdefault(topic)
    quoted = [f"- 「{topic}」" if task.language == "zh" else f"- “{topic}”" for topic in found]
    return [_Line("topics", text, (0, i)) for i, text in enumerate(quoted[:_MOST_TOPICS])]


def _topic(said: Said) -> str:
    if said.role != "user" or not said.by_principal or said.source_kind != "user":
        return ""
    first = next((part for part in _SENTENCE_END.split(said.text) if part.strip()), "")
    first = " ".join(first.split())
    return first if len(first) <= _TOPIC_CHARS else f"{first[: _TOPIC_CHARS - 1]}…"
