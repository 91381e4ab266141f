"""Chinese date and time expressions."""

import re
from collections.abc import Callable, Iterator
from datetime import date

from memstore.pipelines.rules.date_pieces import (
    PARTS,
    Base,
    Clock,
    Days,
    Piece,
    Reader,
    chinese_number,
    coming_weekday,
    following_day_of_month,
    last_of_month,
    made,
    month_after,
    month_of,
    moved_instant,
    moved_months,
    nearest_date,
    nearest_day_of_month,
    nearest_month,
    nearest_weekday,
    one,
    piece_of,
    pieces,
    recurring,
    shifted,
    stretch,
    weekday_in_week,
    year_of,
)

_N = "[0-9]{1,6}|[一二三四五六七八九]?十[一二三四五六七八九]?|[一二两三四五六七八九]"
_MONTH = "1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九]"
_DAY = "3[01]|[12][0-9]|0?[1-9]|三十一?|二?十[一二三四五六七八九]?|[一二三四五六七八九]"
_WEEK = "周|星期|礼拜|週"
_WHICH = "上上|下下|上|下|这|這|本"
_WEEKS = {"上上": -2, "上": -1, "这": 0, "這": 0, "本": 0, "下": 1, "下下": 2}
_WEEKDAYS = {c: n for n, c in enumerate("一二三四五六")} | {"日": 6, "天": 6, "末": 5}
_SATURDAY = 5
_DAY_WORDS = {
    "大前天": -3,
    "前天": -2,
    "前日": -2,
    "昨": -1,
    "今": 0,
    "明": 1,
    "后天": 2,
    "後天": 2,
    "大后天": 3,
}
_YEAR_WORDS = {"前年": -2, "去年": -1, "今年": 0, "明年": 1, "后年": 2}
_PARTS = {
    "凌晨": "night", "清晨": "morning", "清早": "morning", "早上": "morning", "早晨": "morning", "上午": "morning",
    "早": "morning", "晨": "morning", "中午": "noon", "下午": "afternoon", "傍晚": "evening", "晚上": "evening",
    "晚间": "evening", "夜里": "evening", "深夜": "evening", "晚": "evening",
}  # fmt: skip
_TENTHS = {
    "上旬": (1, 11),
    "月初": (1, 11),
    "初": (1, 11),
    "中旬": (11, 21),
    "中": (11, 21),
    "下旬": (21, 32),
}
_NO_DAY = "[线楼门店机床桌码选球院馆厅库仓台口房室车位座栋电种型字文卷]"
_PART = "|".join(sorted(_PARTS, key=len, reverse=True))
_TIME = (
    rf"(?P<part>{_PART})?(?:的)?(?P<hour>2[0-4]|1[0-9]|0?[0-9]|十[一二]?|[一二两三四五六七八九])"
    r"(?:(?P<oclock>点(?:钟|整)?)(?P<minutes>半|[一三]刻|[0-5]?[0-9]分?(?![0-9年月])|[二三四五]?十[一二三四五六七八九]?分?)?"
    r"|[:：](?P<colon>[0-5][0-9])(?![0-9:：]))"
)
_AT_BARE_HOUR = re.compile("钟?(?=[开见到集出下上起睡面考交在]|准时|左右|之?前|$|[，。,.；;！!）)])")

_SKIPPED = (
    rf"每(?:隔)?(?:{_N}|半|个|逢)*(?:天|日|晚上?|早上?|年|个?月|(?:{_WEEK})(?:[一二三四五六日天末](?:[、和]?[一二三四五六日天末])*)?)"
    rf"(?:底|初|的?(?:{_DAY})[号日])?|(?<=[一二两三四五六七八九十几数单双隔各0-9])(?:{_WEEK})[一二三四五六日天]|天天"
    rf"|(?:{_WEEK})[一二三四五六日天](?:[、/](?:{_WEEK})?[一二三四五六日天])+"
    rf"|(?:{_WEEK})[一二三四五六日天][到至~-](?:{_WEEK})?[一二三四五六日天](?=都|每天|，?上班|，?上课|，?坐班)"
)
_PATTERN = re.compile(
    rf"(?P<recurring>{_SKIPPED})"
    rf"|(?P<full>(?<![0-9])(?P<fy>[12][0-9]{{3}})[年/.-](?P<fm>{_MONTH})(?:[月/.-](?P<fd>{_DAY})(?![0-9])[日号]?|月))"
    rf"|(?P<relyear>(?P<ry>前年|去年|今年|明年|后年)(?:的)?(?:(?P<rym>{_MONTH})月(?:份|(?P<ryd>{_DAY})[日号])?|(?P<ryend>年?底|年初))?)"
    r"|(?P<year>(?<![0-9])(?P<y>(?:19|20)[0-9]{2})年(?![0-9一二三四五六七八九十]|前|内|后))"
    rf"|(?P<relmonth>(?P<rm>{_WHICH})个?月(?:(?P<rmend>底|末|初|中旬?|上旬|下旬)|份?的?(?P<rmd>{_DAY})[日号](?!{_NO_DAY}))?)"
    rf"|(?P<monthday>(?<![0-9个一二三四五六七八九十])(?P<mdm>{_MONTH})月(?P<mdd>{_DAY})(?:[日号](?!{_NO_DAY})|(?![0-9日号个天年月份一二三四五六七八九十])))"
    rf"|(?P<month>(?<![0-9个一二三四五六七八九十])(?P<m>{_MONTH})月(?:份|(?P<mend>底|末|初|中旬|上旬|下旬))?(?![0-9]))"
    r"|(?P<end>(?<![0-9个岁])(?:月底|月末|月初|年底|年末|岁末))"
    rf"|(?P<weekday>(?:(?P<ww>{_WHICH})(?:一个|个)?)?(?:{_WEEK})(?P<wd>[一二三四五六日天末])(?![次场轮围]|回(?![来去家国老到])))"
    rf"|(?P<week>(?P<wk>{_WHICH})(?:一个|个)?(?:{_WEEK})(?!报|期))"
    r"|(?P<word>大前天|大后天|前天|前日|后天|後天|(?P<near>[昨今明])(?:[天日儿]|(?=[早晚晨][上]?)))(?!性|头条|方舟|之后)"
    rf"|(?P<offset>(?<![第前每.0-9])(?:(?P<n>{_N})(?P<half1>个半)?|(?P<half>半))(?:个)?(?P<unit>天|日|周|星期|礼拜|月|年|小时|钟头|分钟)"
    r"(?P<half2>半)?(?:之|以)?(?P<way>后|後|前))"
    rf"|(?P<dom>(?<![0-9第月一二三四五六七八九十.:])(?P<d>{_DAY})(?:号(?!{_NO_DAY})|(?<=[0-9])日(?![内前后游间本元])))"
    rf"|(?P<time>(?<![0-9.:第有这那几]){_TIME})"
    rf"|(?P<part2>{_PART})"
)  # fmt: skip


def chinese_pieces(text: str, base: Callable[[int, int], Base]) -> Iterator[Piece]:
    """In the order of the text, none overlapping another. ``base`` is asked with the span of each."""
    return pieces(_PATTERN, _READERS, text, base)


def _full(found: re.Match[str], _base: Base, _text: str) -> Piece | None:
    year, month = int(found["fy"]), _number(found["fm"])
    if found["fd"] is None:
        return piece_of(found, month_of(year, month), full=True)
    return piece_of(found, one(made(year, month, _number(found["fd"]))), full=True)


def _relative_year(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    year = base.day.year + _YEAR_WORDS[found["ry"]]
    if found["ryd"]:
        return piece_of(found, one(made(year, _number(found["rym"]), _number(found["ryd"]))))
    if found["rym"]:
        return piece_of(found, month_of(year, _number(found["rym"])))
    if found["ryend"]:
        return piece_of(found, month_of(year, 1) if "初" in found["ryend"] else last_of_month(year, 12))
    return piece_of(found, year_of(year))


def _year(found: re.Match[str], _base: Base, _text: str) -> Piece | None:
    return piece_of(found, year_of(int(found["y"])), full=True)


def _relative_month(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    year, month = month_after(base.day.year, base.day.month, _WEEKS[found["rm"]])
    if found["rmd"]:
        day = _number(found["rmd"])
        return piece_of(found, one(made(year, month, day)), following=following_day_of_month(day))
    return piece_of(found, _part_of_month(year, month, found["rmend"]))


def _month_day(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    return piece_of(found, one(nearest_date(base, _number(found["mdm"]), _number(found["mdd"]))))


def _month(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    days = nearest_month(base, _number(found["m"]))
    if days is None:
        return None
    return piece_of(found, _part_of_month(days.start.year, days.start.month, found["mend"]))


def _end(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    month = base.day.month if found["end"].startswith("月") else 12
    return piece_of(found, _part_of_month(base.day.year, month, found["end"][-1]))


def _part_of_month(year: int, month: int, part: str | None) -> Days | None:
    if part is None:
        return month_of(year, month)
    if part in ("底", "末"):
        return last_of_month(year, month)
    first, behind = _TENTHS[part]
    end = made(year, month, behind) or made(*month_after(year, month, 1), 1)
    start = made(year, month, first)
    return Days(start, end, "range") if start and end else None


def _weekday(found: re.Match[str], base: Base, text: str) -> Piece | None:
    weekday = _WEEKDAYS[found["wd"]]
    if found["ww"] is None and text[found.start() - 1 : found.start()] in tuple("四圆整全那"):
        return None
    if found["ww"] is not None:
        day = weekday_in_week(base.day, _WEEKS[found["ww"]], weekday)
    else:
        day = nearest_weekday(base, weekday)
    if found["wd"] == "末":
        return piece_of(found, stretch(day, 2))
    return piece_of(
        found, one(day), weekday=found["ww"] is None, following=lambda start: coming_weekday(start, weekday)
    )


def _week(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    return piece_of(found, stretch(weekday_in_week(base.day, _WEEKS[found["wk"]], 0), 7))


def _word(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    return piece_of(found, one(shifted(base.day, _DAY_WORDS[found["near"] or found["word"]])))


def _offset(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    unit, sign = found["unit"], -1 if found["way"] == "前" else 1
    count = 0 if found["half"] else chinese_number(found["n"])
    if count is None:
        return None
    half = bool(found["half"] or found["half1"] or found["half2"])
    if unit in ("小时", "钟头", "分钟"):
        minutes = count + half / 2 if unit == "分钟" else 60 * count + 30 * half
        instant = moved_instant(base.at, minutes=sign * minutes)
        return Piece(*found.span(), instant=instant) if instant else None
    return piece_of(found, _moved(base.day, sign * count, unit, sign * half))


def _moved(day: date, count: int, unit: str, half: int) -> Days | None:
    if unit in ("天", "日"):
        return one(shifted(day, count)) if not half else None
    if unit in ("周", "星期", "礼拜"):
        return one(shifted(day, 7 * count)) if not half else None
    moved = moved_months(day, count + (0 if unit == "月" else 11 * count) + (6 * half if unit == "年" else 0))
    if moved is None:
        return None
    if unit == "月":
        return one(shifted(moved, 15 * half))
    return year_of(moved.year) if not half else month_of(moved.year, moved.month)


def _day_of_month(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    day = _number(found["d"])
    return piece_of(found, one(nearest_day_of_month(base, day)), following=following_day_of_month(day))


def _time(found: re.Match[str], _base: Base, text: str) -> Piece | None:
    hour, minute = _number(found["hour"]), _minute(found["minutes"], found["colon"])
    sure = found["part"] or found["minutes"] or found["colon"] or "钟" in (found["oclock"] or "")
    if minute is None:
        return None
    if found["oclock"] and not found["part"] and 1 <= hour <= 6:  # noqa: PLR2004 - nobody meets at three in the night
        hour += 12
    minutes = _of_part(found["part"], hour) * 60 + minute
    weak = not sure and (hour == 13 or not _AT_BARE_HOUR.match(text, found.end()))  # noqa: PLR2004 - 一点 is also "a little"
    weak = weak or bool(found["colon"] and not found["part"] and len(found["hour"]) == 1)
    return Piece(*found.span(), clock=Clock(minutes), weak=weak) if minutes <= 24 * 60 else None


def _of_part(part: str | None, hour: int) -> int:
    name = _PARTS.get(part or "", "")
    if name in ("afternoon", "evening") and hour <= 12:  # noqa: PLR2004 - twelve hours of a clock
        return hour + 12
    if name == "noon" and hour < 11:  # noqa: PLR2004 - 中午1点
        return hour + 12
    return 0 if name == "night" and hour == 12 else hour  # noqa: PLR2004 - 凌晨12点


def _minute(word: str | None, colon: str | None) -> int | None:
    if colon or not word:
        return int(colon or 0)
    if word in ("半", "一刻", "三刻"):
        return {"半": 30, "一刻": 15, "三刻": 45}[word]
    return chinese_number(word.removesuffix("分"))


def _part(found: re.Match[str], _base: Base, text: str) -> Piece | None:
    if len(found["part2"]) == 1 and text[found.start() - 1 : found.start()] not in tuple(
        "昨今明天日号一二三四五六"
    ):
        return None  # 早 and 晚 by themselves are "early" and "late"
    start, end = PARTS[_PARTS[found["part2"]]]
    return Piece(*found.span(), clock=Clock(start, end, exact=False), weak=True)


def _number(text: str) -> int:
    return chinese_number(text) or 0


_READERS: dict[str, Reader] = {
    "recurring": recurring,
    "full": _full,
    "relyear": _relative_year,
    "year": _year,
    "relmonth": _relative_month,
    "monthday": _month_day,
    "month": _month,
    "end": _end,
    "weekday": _weekday,
    "week": _week,
    "word": _word,
    "offset": _offset,
    "dom": _day_of_month,
    "time": _time,
    "part2": _part,
}
