"""Which current statements a new one puts out of force, beside its plain opposites: by a newer value of the same
attribute, another tool for the same, a moved or cancelled appointment, or the end of a habit.

Each rule names what it replaces or nothing. A wrong replacement hides a fact, a missed one leaves two: where two
statements could be meant, none is.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from memstore.pipelines.rules.attributes import CHANGED_ONLY, Claim, claims
from memstore.pipelines.rules.happenings import is_ahead
from memstore.pipelines.rules.statement import AND, COMMA, ENDED, NOT, WHEN, Statement, clauses, read

_PREPOSITIONS = frozenset(
    "in on at with for by to from of 在 于 到 从 去 和 与 跟 定于 定 安排 举行 schedul-ed 召开 进行".split()  # noqa: SIM905
)
_TRAVEL_OR_PLAN = re.compile(
    "计划|打算|准备|将|要|预定|预约|报名|安排|定于|\\b(?:plan\\w*|will|going|book\\w*|schedul\\w*|sign\\w* up)\\b"
)
_MOVED_ZH = re.compile(
    r"(?P<event>.+?)(?:已经?|被|临时|又){0,3}(?:时间)?(?:从(?P<old>[^，。]+?))?(?:时间)?(?:已经?|被|临时|又){0,3}"
    r"(?:改到|改在|改成|改为|改期到|改期至|改至|推迟到|推迟至|延期到|延期至|延后到|延到|提前到|提前至|挪到|移到|调到|调整到|调整为|顺延到|顺延至|变更为)了?(?P<new>.+)"
)
_MOVED_EN = (
    re.compile(
        r"(?P<event>.+?) (?:(?:is|was|has|have|been|got|now|had) )*(?:moved|rescheduled|postponed|pushed(?: back)?|brought forward|delayed|shifted|changed)"
        r"(?: from (?P<old>.+?))? (?:to|until|till) (?P<new>.+)"
    ),
    re.compile(
        r"(?:we |i |they |user |the user |has |have )*(?:moved|rescheduled|postponed|pushed(?: back)?|delayed|shifted|changed) (?P<event>.+?)(?: from (?P<old>.+?))? (?:to|until|till) (?P<new>.+)"
    ),
)
_CANCELLED = re.compile(
    r"(?:已经?|被|临时)*(?:取消|作废|泡汤|告吹|不办了|不开了|搁置)了?"
    r"|\b(?:(?:is|was|has|have|been|got|were|are) )*(?:cancell?ed|called off|scrapped)\b|\b(?:won't happen|is off)\b"
)
_USE_ZH = re.compile(
    r"(?P<owner>.*?)(?:主要|习惯|一直|平时|都)*(?:使用|在用|用)(?:的是)?\s?(?P<tool>[a-z][\w.+#-]*(?: [a-z][\w.+#-]*)?|[\u4e00-\u9fff]{2,8}?)(?: ?(?:电脑|笔记本|手机|系统))?(?:来)?\s?(?P<purpose>$|写.*|做.*|记.*|管理.*|办公.*|开发.*|编程.*|画.*|聊.*|看.*|处理.*|部署.*|搜.*|浏览.*|学.*)"
)
_USE_EN = re.compile(
    r"(?P<owner>.*?)\b(?:uses?|using|codes? in|writes?(?: in)?|relies on|editor is|works? with) (?:an? |the )?(?P<tool>[a-z][\w.+#-]*(?: [a-z][\w.+#-]*)?)(?P<purpose>$| (?:for|to|as|on|at) .*)"
)
_SWITCH_ZH = (
    re.compile(
        r"(?P<owner>.*?)(?:从|由|把|将)\s?(?P<old>[^，。从把]{1,20}?)\s?(?:改用|换成|换用|换到|切换到|切换成|转到|转用|迁移到|迁到|替换成|替换为|改成|改为)了?\s?(?P<tool>[^，。了来]{1,20}?)(?:了|来)?\s?(?P<purpose>$|写.*|做.*|记.*|管理.*|办公.*|开发.*|编程.*)"
    ),
    re.compile(
        r"(?P<owner>.*?)不(?:再)?(?:使)?用\s?(?P<old>[^，。]{1,20}?)\s?了?\s?[，,]\s?(?:现在)?(?:都|已经?)*(?:改用|换成|换用|用)了?\s?(?P<tool>[^，。了来]{1,20}?)(?:了|来)?\s?(?P<purpose>$|写.*|做.*|记.*|管理.*|办公.*|开发.*|编程.*)"
    ),
    re.compile(
        r"(?P<owner>.*?)(?:改用|换用|换成|换(?=\s?[a-z])|转用|切换到|迁移到)了?\s?(?P<tool>[a-z][\w.+# -]{0,20}?|[\u4e00-\u9fff]{2,8}?)(?:了|来)?\s?(?P<purpose>$|写.*|做.*|记.*|管理.*|办公.*|开发.*|编程.*)(?P<old>)"
    ),
)
_SWITCH_EN = (
    re.compile(
        r"(?P<owner>.*?)\b(?:switched|moved|migrated|changed|converted|upgraded|switching) (?:over )?from (?P<old>.+?) to (?P<tool>[\w.+# -]+?)(?P<purpose>$| (?:for|as) .*)"
    ),
    re.compile(
        r"(?P<owner>.*?)\b(?:replaced|swapped) (?P<old>.+?) (?:with|for) (?P<tool>[\w.+# -]+?)(?P<purpose>$| (?:for|as) .*)"
    ),
    re.compile(
        r"(?P<owner>.*?)\b(?:now )?(?:uses?|writes?|codes? in) (?P<tool>[\w.+#-]+?)(?: now)? instead of (?P<old>[\w.+# -]+?)(?P<purpose>$| (?:for|to|as) .*)"
    ),
    re.compile(
        r"(?P<owner>.*?)\b(?:uses?|writes?|codes? in) (?:an? )?(?P<tool>[\w.+#-]+) now(?P<purpose>$)(?P<old>)"
    ),
    re.compile(
        r"(?P<owner>.*?)\b(?:switched|migrated) (?:over )?to (?P<tool>[\w.+#-]+(?: [\w.+#-]+)?)(?P<purpose>$| (?:for|as) .*)(?P<old>)"
    ),
)
_SORTS = tuple(
    frozenset(sort.split("|"))
    for sort in (
        "vim|neovim|emacs|vs code|vscode|sublime|pycharm|intellij|webstorm|cursor|zed|nano|helix|eclipse|xcode",
        "mysql|postgres|postgresql|sqlite|mongodb|oracle|mariadb|redis|duckdb|clickhouse",
        "windows|windows laptop|windows pc|linux|mac|macbook|macos|ubuntu|debian|fedora|arch",
        "chrome|firefox|safari|edge|brave|arc",
        "iphone|android|android phone|苹果手机|安卓|安卓手机|华为|小米",
        "slack|teams|discord|微信|钉钉|飞书|telegram|whatsapp|企业微信|qq",
        "notion|obsidian|evernote|onenote|印象笔记|有道云笔记|语雀|logseq",
        "npm|yarn|pnpm|bun",
        "pip|poetry|uv|conda|pipenv",
        "aws|azure|gcp|阿里云|腾讯云|华为云",
        "react|vue|angular|svelte",
        "python|java|go|rust|javascript|typescript|c++|ruby|php|kotlin|swift",
        "zoom|腾讯会议|google meet|webex",
        "jenkins|github actions|gitlab ci|circleci",
    )
)
_PET = re.compile(
    "猫|狗|兔子|仓鼠|鹦鹉|乌龟|鱼|\\b(?:cat|dog|rabbit|hamster|parrot|turtle|fish|puppy|kitten)s?\\b"
)
_HAS_PET = re.compile(
    "养|有一?[只条个]|家里有|\\b(?:has|have|own|owns|keeps?|adopted|got)\\b|'s (?:cat|dog)|我的|家的"
)
_PET_GONE = re.compile(
    "去世|死了|走丢|送人|送走|过世|离世|去了喵星|去了汪星|\\b(?:died|passed away|gave away|given away|rehomed|ran away|was put down)\\b"
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A current statement that may be replaced; ``place`` is the caller's."""

    place: int
    statement: Statement
    text: str


Rule = Callable[[str, Sequence[Candidate]], tuple[list[int], str]]


def replaced(text: str, candidates: Sequence[Candidate]) -> tuple[list[int], str]:
    """The places of what the new text replaces, and why; none where no rule is sure."""
    if not read(text).tokens:
        return [], ""
    for rule in (_newer_value, _another_tool, _moved, _cancelled, _left, _ended, _pet_gone):
        places, reason = rule(text, candidates)
        if places:
            return places, reason
    return [], ""


# --- attributes ----------------------------------------------------------------------------------------------------


def _newer_value(text: str, candidates: Sequence[Candidate]) -> tuple[list[int], str]:
    for new in claims(text):
        if new.added:
            continue
        found = [(c, old) for c in candidates for old in claims(c.text) if _same_attribute(new, old)]
        if new.attribute in CHANGED_ONLY and not new.changed:
            continue
        places = [c.place for c, old in found if _replaces(new, old) and not _says_more(c)]
        if not found and new.changed and not new.owner:
            loose = [(c, old) for c in candidates for old in claims(c.text) if old.attribute == new.attribute]
            places = [c.place for c, old in loose if _replaces(new, old)] if len(loose) == 1 else []
            places = places if new.attribute in ("budget", "deadline", "price", "target") else []
        if places:
            return sorted(set(places)), f"a newer value of: {new.attribute}"
    return [], ""


def _says_more(old: Candidate) -> bool:
    """Whether the old statement says something beside the value, which would be lost."""
    return clauses(old.text) > 1 or _BESIDES.search(old.statement.text) is not None


_BESIDES = re.compile("并|而且|\\b(?:and|with)\\b")


def _same_attribute(new: Claim, old: Claim) -> bool:
    return new.attribute == old.attribute and new.owner == old.owner


def _replaces(new: Claim, old: Claim) -> bool:
    """Another value, not the same more or less exactly."""
    one, other = set(new.value), set(old.value)
    if one == other or one < other or "".join(old.value).startswith("".join(new.value)):
        return False
    if new.attribute in ("age", "age of") and _number(new) < _number(old):
        return False
    return new.changed or not (new.attribute == "home" and one & other)


def _number(claim: Claim) -> int:
    """Nobody grows younger: a lower age is another one's."""
    return int("".join(c for c in claim.value[0] if c.isdecimal()) or 0)


# --- tools ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Use:
    owner: tuple[str, ...]
    tool: str
    purpose: tuple[str, ...]
    instead_of: str = ""


def _uses(text: str, patterns: Iterable[re.Pattern[str]]) -> _Use | None:
    for pattern in patterns:
        found = pattern.match(text.rstrip(".。!！ ").removeprefix("用户")) if len(text) < 200 else None  # noqa: PLR2004
        if found is not None:
            old = found["old"].strip() if "old" in pattern.groupindex and found["old"] else ""
            words = ["we"] if found["owner"].strip() == "we" else read(found["owner"]).words
            owner = tuple(w for w in words if not w.startswith(WHEN) and w != "我")
            return _Use(owner, found["tool"].strip(), read(found["purpose"]).words, old)
    return None


def _another_tool(text: str, candidates: Sequence[Candidate]) -> tuple[list[int], str]:
    new = _uses(read(text).text, (*_SWITCH_ZH, *_SWITCH_EN))
    if new is None or _ADDITIONALLY.search(text):
        return [], ""
    uses = [(c, use) for c in candidates if (use := _uses(c.statement.text, (_USE_ZH, _USE_EN)))]
    uses = [(c, use) for c, use in uses if not c.statement.negations and use.tool != new.tool]
    if new.instead_of:
        places = [c.place for c, use in uses if use.tool == _bare(new.instead_of) and _compatible(new, use)]
        return places, "another tool instead of it"
    fitting = [c.place for c, use in uses if use.owner == new.owner and _same_sort(new, use)]
    return (fitting, "another tool for the same") if len(fitting) == 1 else ([], "")


_ADDITIONALLY = re.compile("也用|还用|同时用|\\b(?:also|both)\\b")


def _bare(tool: str) -> str:
    return re.sub(r"^(?:(?:使)?用|using|the|my) ?", "", tool)


def _compatible(new: _Use, old: _Use) -> bool:
    ours = new.owner == ("we",) and set(old.owner) <= _OURS
    return (new.owner == old.owner or ours) and (
        not new.purpose or not old.purpose or new.purpose == old.purpose
    )


_OURS = frozenset("team company we 团队 公司 组".split())  # noqa: SIM905
"""Whose tools 'we' change."""


def _same_sort(new: _Use, old: _Use) -> bool:
    if new.purpose or old.purpose:
        if new.purpose and old.purpose and new.purpose != old.purpose:
            return False
        if new.purpose == old.purpose:
            return True
    sorts = [{number for number, sort in enumerate(_SORTS) if tool in sort} for tool in (new.tool, old.tool)]
    return bool(sorts[0] & sorts[1]) or not (sorts[0] or sorts[1])


# --- appointments --------------------------------------------------------------------------------------------------


def _moved(text: str, candidates: Sequence[Candidate]) -> tuple[list[int], str]:
    normal = read(text).text.rstrip(".。!！ ")
    for pattern in (_MOVED_ZH, *_MOVED_EN):
        found = pattern.match(normal)
        if found is None or not _times(read(found["new"])):
            continue
        event = read(found["event"])
        before = _times(event) | _times(read(found["old"] or ""))
        fitting = [
            c.place
            for c in candidates
            if _is_about(event, c.statement)
            and _times(c.statement)
            and before <= _times(c.statement)
            and is_ahead(c.text)
        ]
        return (fitting, "moved to another time") if len(fitting) == 1 else ([], "")
    return [], ""


def _cancelled(text: str, candidates: Sequence[Candidate]) -> tuple[list[int], str]:
    statement = read(text)
    if not _CANCELLED.search(statement.text):
        return [], ""
    event = read(_CANCELLED.sub(" ", statement.text))
    fitting = [
        c.place
        for c in candidates
        if _is_about(event, c.statement)
        and _times(event) <= _times(c.statement)
        and (_times(c.statement) or _TRAVEL_OR_PLAN.search(c.statement.text))
        and not _CANCELLED.search(c.statement.text)
        and is_ahead(c.text)
    ]
    return (fitting, "cancelled") if len(fitting) == 1 else ([], "")


def _is_about(event: Statement, old: Statement) -> bool:
    topics = _topics(event)
    topics = topics - _OF_EVENTS or topics
    return bool(topics) and topics <= _topics(old) and not event.negations and not old.negations


def _topics(of: Statement) -> set[str]:
    return {word for word in of.topics if word not in _PREPOSITIONS and word != "我"}


def _times(of: Statement) -> set[str]:
    return {word for word in of.words if word.startswith(WHEN)}


_OF_EVENTS = frozenset("trip plan visit travel event 旅行 计划 行程 活动 安排 之旅".split())  # noqa: SIM905
"""What an appointment may be called besides."""


# --- habits and pets -----------------------------------------------------------------------------------------------


def _left(text: str, candidates: Sequence[Candidate]) -> tuple[list[int], str]:
    """The end of a job, where no new one is named."""
    found = next((m for pattern in _LEFT if (m := pattern.match(read(text).text))), None)
    if found is None:
        return [], ""
    owner = tuple(w for w in read(found["owner"]).words if not w.startswith(WHEN))
    value = read(found["value"]).words
    places = [
        c.place
        for c in candidates
        for old in claims(c.text)
        if (old.attribute, old.owner, old.value) == ("employer", owner, value)
    ]
    return sorted(set(places)), "no longer so"


_LEFT = (
    re.compile(
        r"(?P<owner>.*?)(?:已经?|刚)*(?:从|离开了?)(?P<value>[^，。从]{1,20}?)(?:离职|辞职|被裁|被辞退|公司|了|$)"
    ),
    re.compile(
        r"(?P<owner>.*?)\b(?:left|quit|resigned from|(?:was |got )?(?:laid off|fired) (?:from|by)) (?:(?:my|the|his|her) job at )?"
        r"(?P<value>[a-z0-9][\w.&' -]{1,40}?)(?=$|[.,;]| (?:last|in|on|after|this|because|yesterday)\b)"
    ),
)


def _ended(text: str, candidates: Sequence[Candidate]) -> tuple[list[int], str]:
    for chunk in _chunks(read(text).tokens):
        if chunk.count(ENDED) != 1 or NOT in chunk:
            continue
        place = chunk.index(ENDED)
        owner = [w for w in _without_reason(chunk[:place]) if not w.startswith(WHEN)]
        habit = tuple(w for w in chunk[place + 1 :] if not w.startswith(WHEN))
        fitting = [c.place for c in candidates if habit and _is_habit(owner, habit, c.statement)]
        if fitting:
            return fitting, "no longer so"
    return [], ""


def _chunks(tokens: Sequence[str]) -> list[tuple[str, ...]]:
    chunks: list[list[str]] = [[]]
    for token in tokens:
        if token in (COMMA, AND):
            chunks.append([])
        else:
            chunks[-1].append(token)
    return [tuple(chunk) for chunk in chunks if chunk]


def _without_reason(words: Sequence[str]) -> Sequence[str]:
    for place, word in enumerate(words):
        if word in ("因", "因为", "由于", "为了", "从", "自"):
            return words[:place]
    return words


def _is_habit(owner: Sequence[str], habit: Sequence[str], old: Statement) -> bool:
    """Whether the old statement says that the owner has this habit, and nothing else that would be lost."""
    words = old.words
    if old.negations or AND in old.tokens or COMMA in old.tokens:
        return False
    place = next((i for i in range(len(words)) if tuple(words[i : i + len(habit)]) == tuple(habit)), None)
    if place is None:
        return False
    before = [w for w in words[:place] if not w.startswith(WHEN) and w not in _OF_HABITS]
    after = words[place + len(habit) :]
    ends = not after or after[0].startswith(WHEN) or after[0].isdigit() or after[0] in _PREPOSITIONS
    return ends and list(owner) == before


_OF_HABITS = frozenset(
    "习惯 坚持 经常 常 常常 会 有 保持 的习惯 喜欢 喝 吃 打 抽 drink eat regular often usual habit of".split()  # noqa: SIM905
)


def _pet_gone(text: str, candidates: Sequence[Candidate]) -> tuple[list[int], str]:
    statement = read(text)
    if not _PET_GONE.search(statement.text):
        return [], ""
    species = set(_PET.findall(statement.text))
    words = set(statement.topics)
    fitting = [
        c.place
        for c in candidates
        if (kinds := set(_PET.findall(c.statement.text)))
        and _HAS_PET.search(c.statement.text)
        and not _PET_GONE.search(c.statement.text)
        and ((species and species == kinds) or (not species and words & _names(c.statement)))
    ]
    return (fitting, "no longer so") if len(fitting) == 1 else ([], "")


def _names(of: Statement) -> set[str]:
    """What follows a word of naming."""
    words = of.words
    return {
        words[i + 1]
        for i, word in enumerate(words[:-1])
        if word in ("叫", "名叫", "叫做", "name-ed", "call-ed")
    }
