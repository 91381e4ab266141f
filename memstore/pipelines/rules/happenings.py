"""Events and plans: whether a new one tells of the same as an old one, of its being moved or called off, or of another
decision on the same."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from memstore.pipelines.rules.numerals import plain_numbers
from memstore.pipelines.rules.stances import Relation
from memstore.pipelines.rules.statement import ENDED, NOT, WHEN, clauses, read

_MONTHS = {
    "january": 1, "february": 2, "march": 3, "april": 4, "may": 5, "june": 6, "july": 7, "august": 8, "september": 9, "october": 10,
    "november": 11, "december": 12,
}  # fmt: skip
_MONTHS |= {name[:3]: number for name, number in _MONTHS.items()}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DATE = re.compile(
    rf"(?P<iso>(?P<y>\d{{4}})-(?P<m>\d\d)(?:-(?P<d>\d\d))?)(?!\d)|(?P<zh>(?:(?P<zy>\d{{4}})年)?(?P<zm>\d{{1,2}})月(?:(?P<zd>\d{{1,2}})[日号]?)?)"
    rf"|(?P<en>(?:(?P<ed1>\d{{1,2}})(?:st|nd|rd|th)? )?\b(?P<em>{_MONTH})\b\.?(?: (?P<ed2>\d{{1,2}})(?:st|nd|rd|th)?(?!\d))?(?:,? (?P<ey>\d{{4}}))?)"
)
_MOVE = re.compile(
    r"(?:已经?|被|临时|又|时间){0,3}(?:改约到|改期到|改期至|改到|改在|改成|改为|改至|推迟到|推迟至|延期到|延期至|延后到|延到|提前到|提前至|挪到|移到|调到|调整到|调整为|顺延到|顺延至|推迟了|延期了|改期了)了?"
    r"|\b(?:(?:is|was|has|have|been|got|now|had|just) )*(?:moved|rescheduled|postponed|pushed(?: back)?|brought forward|delayed|shifted|changed)\b(?: up)?|\b(?:is|are) now (?=on\b|at\b|scheduled\b)"
)
_OFF = re.compile(
    r"(?:已经?|被|临时|也|都|突然|最后){0,3}(?:取消|作废|泡汤|告吹|搁置|黄|退掉?(?=了))了?|不(?:办|开)了"
    r"|\b(?:(?:is|was|has|have|been|got|were|are|had to|we|i) )*(?:cancel(?:l?ed)?|called off|call off|scrap(?:ped)?|not happening|on hold)\b|\b(?:is|are) (?:now )?off\b|\bwon't happen\b|\b(?:forget|ditch|drop)(?: about)? (?=the|my|our)"
)
_NOT_GOING = re.compile(
    r"不(?P<do>去|参加|跑|考(?!虑|察|验)|搬|租|报|买|读|办|学)(?P<what>[^，,。]{0,12}?)了(?=$|[，,])"
    r"|\b(?:i'm|we're|i am|we are|the user is) (?:not|no longer) (?P<verb>\w+ing)\b(?P<en>[^,.;]*?) ?\b(?:after all|any ?more)|\b(?:i'm|we're|i am|we are|the user is) no longer (?P<verb2>\w+ing)\b(?P<en2>[^,.;]*)"
)
_PLANNED = re.compile(
    "计划|打算|准备|将|要|预定|预约|报名|安排|定于|定在|原定|约了|参加|\\b(?:plan\\w*|will|going|book\\w*|schedul\\w*|sign\\w* up|is \\w+ing|are \\w+ing|has an?|have an?|leaves?|registered)\\b"
)
_DECIDED = re.compile(
    "决定|选了?|选定|敲定|定了?用|采用|\\b(?:decided|chose|chosen|picked|went with|going with|settled on|agreed|opted)\\b"
)
_INSTEAD = re.compile(
    r"(?:不用|不选|不要|放弃|而不是|不再用)\s?(?P<zh>[^，,。了]{1,20}?)(?:了|$|[，,])|\b(?:instead of|rather than|not|over) (?P<en>[a-z0-9][\w.+#-]*)"
)
_LIGHT = frozenset(
    """
    计划 打算 准备 行程 旅行 旅游 安排 活动 之旅 原定 定 定于 定在 时间 的事 事情 去 要 有 在 到 从 出发 一趟 改 没 下来 因为 所以 最后 预约 报名 参加 一场 一次 个 场 次 点 年 月 日 号 去看 看
    plan trip travel visit holiday vacation thing event go attend have has got get in on at with for by to from of we our they it is after all no longer will
    schedul-ed book-ed sign up host take leav appoint plan-ed same
    """.split()  # noqa: SIM905
)
_MEANS = frozenset("航班 飞机 高铁 火车 动车 flight train".split())  # noqa: SIM905
"""How one gets there, which need not be told."""
_ALIKE = {"看牙": "牙", "牙医": "牙", "牙科": "牙", "洗牙": "牙", "开会": "会议", "会": "会议", "饭局": "吃饭", "聚餐": "吃饭", "飞机": "航班", "机票": "航班", "dental": "dentist", "release": "launch", "releas": "launch", "上线时间": "上线", "发布": "上线", "wed": "wedding"}  # fmt: skip


Date = tuple[int | None, int, int | None]
"""Year, month and day, as far as they are told."""


@dataclass(frozen=True, slots=True)
class Happening:
    """``about``: its words, without dates and what any event is called. ``dates``: (year, month, day), None unknown."""

    about: frozenset[str]
    dates: tuple[Date, ...]
    negations: int


@lru_cache(maxsize=2_048)
def happening(text: str) -> Happening:
    normal = read(text).text
    dates = tuple(_dates(normal))
    statement = read(re.sub(r"[（(][^（）()]*[）)]", " ", _DATE.sub(" ", normal)))
    words = (_ALIKE.get(word, word) for word in statement.topics if not word.isdigit())
    about = frozenset(word for word in words if word not in _LIGHT and word not in ("我", "我们"))
    return Happening(about - _MEANS or about, dates, statement.negations)


def _dates(normal: str) -> list[Date]:
    """Each date of the text once; of one that is written twice, 3月20日（2026-03-20）, the one with the year."""
    found: list[Date] = []
    for date in _DATE.finditer(normal):
        if date["iso"]:
            found.append((int(date["y"]), int(date["m"]), int(date["d"]) if date["d"] else None))
        elif date["zh"]:
            found.append((_int(date["zy"]), int(date["zm"]), _int(date["zd"])))
        else:
            day = date["ed1"] or date["ed2"]
            if (
                date["em"]
                in (
                    "may",
                    "march",
                    "mar",
                    "sep",
                    "dec",
                    "oct",
                    "jan",
                    "nov",
                    "jun",
                    "jul",
                    "apr",
                    "aug",
                    "feb",
                )
                and not day
                and not date["ey"]
                and not re.search(r"\b(?:in|of|by|until|next|last|this|to|from) $", normal[: date.start()])
            ):
                continue
            found.append((_int(date["ey"]), _MONTHS[date["em"]], _int(day)))
    return [
        one
        for one in found
        if not any(
            one is not two and one[0] is None and two[0] is not None and one[1:] == two[1:] for two in found
        )
    ]


def _int(text: str | None) -> int | None:
    return int(text) if text else None


def _fit(one: Date, other: Date) -> bool:
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


_MOST_CLAUSES = 2
"""Of a memory of one event; what has more tells of others too."""


def compare(new: str, old: str) -> Relation | None:
    """What the new text tells of the event of the old one."""
    text, other = read(new).text, happening(old)
    if (
        not read(new).tokens
        or not read(old).tokens
        or _OFF.search(read(old).text)
        or _NOT_GOING.search(read(old).text)
    ):
        return None
    ahead = is_ahead(old)
    if clauses(old) > _MOST_CLAUSES:
        return None
    if ahead and (gone := _gone(text)):
        return "instead" if any(_same_event(happening(event), other) for event in gone) else None
    moved = _MOVE.search(text)
    if moved and ahead and other.dates:
        return "instead" if _was_moved(text, moved, other) else None
    if _DECIDED.search(text) and _DECIDED.search(read(old).text):
        return "instead" if _other_choice(text, old) else None
    return _told_again(new, old)


def is_ahead(old: str) -> bool:
    """Whether the old text tells of what is to come, not of what was."""
    if _PLANNED.search(read(old).text):
        return True
    timed = bool(happening(old).dates) or any(word.startswith(WHEN) for word in read(old).words)
    return timed and _WAS.search(read(old).text) is None


_WAS = re.compile(
    "了|过(?!期|户)|刚|\\b(?:had|was|were|went|did|met|saw|took|gave|got|came|flew|bought|ran|visited|attended|\\w{3,}ed)\\b"
)


def _gone(text: str) -> Sequence[str]:
    """The event that is called off, in words; with what was to be done (读博) and without (去云南)."""
    refused = _NOT_GOING.search(text)
    if refused is not None:
        names = ("what", "verb", "en", "verb2", "en2")
        rest = " ".join(filter(None, (refused[name] for name in names)))
        before = _OFF.sub(" ", text[: refused.start()]).replace("thing", " ")
        return f"{before} {rest}", f"{before} {refused['do'] or ''}{rest}"
    off = _OFF.search(text)
    if off is None:
        return ()
    head = text[: off.start()]
    bare = head.strip(" ,，我们") in ("", "i", "we", "i've", "we've")
    return (re.split("[,，]", text[off.end() :])[0] if bare else head,)


def _same_event(event: Happening, old: Happening) -> bool:
    """Whether the words of the event are among those of the old one, and no date speaks against it."""
    if not event.about or not event.about <= old.about or old.negations:
        return False
    if not event.dates or not old.dates:
        return True
    return any(_fit(a, b) for a in event.dates for b in old.dates)


def _was_moved(text: str, moved: re.Match[str], old: Happening) -> bool:
    """Whether the event that is moved is the old one: with the same words, and on the day that it is moved from."""
    before, behind = text[: moved.start()], text[moved.end() :]
    origin = re.match(r" ?(?:back |up )?from (?P<old>.+?) (?:to|until) ", behind)
    if not before.strip(" 我们iwe'v") and (object_ := re.match(r" (?P<what>.+?) (?:from|to|until) ", behind)):
        before = object_["what"]
    event = happening(f"{before} {origin['old'] if origin else ''}".replace("从", " "))
    return _same_event(event, old)


def _other_choice(text: str, old: str) -> bool:
    """Whether what was decided before is given up by name."""
    given_up = _INSTEAD.search(text)
    if given_up is None:
        return False
    words = set(read(given_up["zh"] or given_up["en"]).topics)
    return bool(words) and words <= set(read(old).topics) and not read(old).negations


def _told_again(new: str, text: str) -> Relation | None:
    one, old = happening(new), happening(text)
    if one.negations or old.negations or NOT in read(new).words or ENDED in read(new).words:
        return None
    same_day = (
        bool(one.dates)
        and len(one.dates) == len(old.dates)
        and all(_fit(a, b) for a, b in zip(one.dates, old.dates, strict=True))
    )
    if not same_day or not one.about or one.about != old.about:
        return None
    told, known = _clocks(new), _clocks(text)
    if told <= known:
        return "same"
    return "more" if not known else None


def _clocks(text: str) -> set[int]:
    """Times of the day, in minutes."""
    found = set()
    for clock in _CLOCK.finditer(plain_numbers(read(text).text)):
        hour = int(clock["h1"] or clock["h2"] or clock["h3"])
        minute = int(clock["m1"] or (30 if clock["half"] else 0))
        late = bool(clock["part"] or clock["pm"] == "pm") and hour < _NOON
        found.add((hour + 12 * late) * 60 + minute)
    return found


_NOON = 12
_CLOCK = re.compile(
    r"(?P<h1>\d{1,2}):(?P<m1>\d\d)|(?P<part>下午|晚上|傍晚)?(?:早上|上午|中午|凌晨)?(?P<h2>\d{1,2})点(?P<half>半)?|\b(?P<h3>\d{1,2}) ?(?P<pm>[ap]m)\b"
)
