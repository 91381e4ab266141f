"""Dates and times in Chinese and English, made absolute against the message's time and zone."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore.pipelines.rules.dates import resolve, with_dates

SHANGHAI = ZoneInfo("Asia/Shanghai")
NEW_YORK = ZoneInfo("America/New_York")
AT = datetime(2026, 3, 11, 10, 0, tzinfo=SHANGHAI)
"""A Wednesday."""


def written(text: str, at: datetime = AT) -> list[str]:
    return [found.written for found in resolve(text, at)]


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("今天", "2026-03-11"),
        ("明天", "2026-03-12"),
        ("后天", "2026-03-13"),
        ("大后天", "2026-03-14"),
        ("昨天", "2026-03-10"),
        ("前天", "2026-03-09"),
        ("大前天", "2026-03-08"),
        ("今早", "2026-03-11"),
        ("今晚", "2026-03-11"),
        ("明早", "2026-03-12"),
        ("昨晚", "2026-03-10"),
        ("下周三", "2026-03-18"),
        ("下周一", "2026-03-16"),
        ("下下周一", "2026-03-23"),
        ("上周五", "2026-03-06"),
        ("上上周五", "2026-02-27"),
        ("上个星期天", "2026-03-08"),
        ("这周五", "2026-03-13"),
        ("本周五", "2026-03-13"),
        ("这周一", "2026-03-09"),
        ("周四", "2026-03-12"),
        ("周三", "2026-03-11"),
        ("周二", "2026-03-17"),
        ("星期天", "2026-03-15"),
        ("礼拜天", "2026-03-15"),
        ("周末", "2026-03-14 ~ 2026-03-15"),
        ("下周末", "2026-03-21 ~ 2026-03-22"),
        ("下周", "2026-03-16 ~ 2026-03-22"),
        ("下个月3号", "2026-04-03"),
        ("下个月", "2026-04"),
        ("上个月", "2026-02"),
        ("月底", "2026-03-31"),
        ("下月初", "2026-04-01 ~ 2026-04-10"),
        ("年底", "2026-12-31"),
        ("明年", "2027"),
        ("去年", "2025"),
        ("去年10月", "2025-10"),
        ("明年三月五号", "2027-03-05"),
        ("3月18日", "2026-03-18"),
        ("3月10日", "2027-03-10"),
        ("3号", "2026-04-03"),
        ("二十五号", "2026-03-25"),
        ("五月八日", "2026-05-08"),
        ("2026年3月", "2026-03"),
        ("2026年3月18日", "2026-03-18"),
        ("二月二十九日", "2028-02-29"),
        ("两天后", "2026-03-13"),
        ("十天之后", "2026-03-21"),
        ("三周前", "2026-02-18"),
        ("半个月后", "2026-03-26"),
        ("三个月后", "2026-06-11"),
        ("两年前", "2024"),
        ("周四开会改到周五了", "2026-03-12 2026-03-13"),
        ("周一面试了两家", "2026-03-09"),
        ("周五要交了", "2026-03-13"),
        ("下周三去，周五回来", "2026-03-18 2026-03-20"),
        ("3月18日到20日", "2026-03-18 ~ 2026-03-20"),
        ("下周一到周三", "2026-03-16 ~ 2026-03-18"),
    ],
)
def test_chinese_days(text, day):
    assert " ".join(written(text)) == day


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("下午三点", "2026-03-11 15:00"),
        ("晚上8点半", "2026-03-11 20:30"),
        ("十点一刻", "2026-03-11 10:15"),
        ("15:30", "2026-03-11 15:30"),
        ("中午12点", "2026-03-11 12:00"),
        ("晚上12点", "2026-03-12 00:00"),
        ("凌晨两点", "2026-03-11 02:00"),
        ("明天下午三点", "2026-03-12 15:00"),
        ("今晚8点", "2026-03-11 20:00"),
        ("明晚七点", "2026-03-12 19:00"),
        ("明天两点", "2026-03-12 14:00"),
        ("下周三上午十点", "2026-03-18 10:00"),
        ("周四下午3点到5点", "2026-03-12 15:00–17:00"),
        ("一个小时前", "2026-03-11 09:00"),
        ("半小时后", "2026-03-11 10:30"),
        ("一个半小时后", "2026-03-11 11:30"),
        ("at 3pm", "2026-03-11 15:00"),
        ("half past nine", "2026-03-11 09:30"),
        ("at quarter to six", "2026-03-11 17:45"),
        ("at noon", "2026-03-11 12:00"),
        ("tomorrow at 3pm", "2026-03-12 15:00"),
        ("tomorrow at 3", "2026-03-12 15:00"),
        ("3:30 pm on Friday", "2026-03-13 15:30"),
        ("next Tuesday at 9:15am", "2026-03-17 09:15"),
        ("Friday, March 13 at 5:30 pm", "2026-03-13 17:30"),
        ("from 2 to 4pm tomorrow", "2026-03-12 14:00–16:00"),
        ("last night at 11", "2026-03-10 23:00"),
        ("an hour ago", "2026-03-11 09:00"),
        ("in half an hour", "2026-03-11 10:30"),
        ("2026-03-18T15:30:00", "2026-03-18 15:30"),
    ],
)
def test_times_of_the_day(text, instant):
    assert written(text) == [instant]


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("today", "2026-03-11"),
        ("tomorrow", "2026-03-12"),
        ("yesterday", "2026-03-10"),
        ("the day after tomorrow", "2026-03-13"),
        ("the day before yesterday", "2026-03-09"),
        ("tonight", "2026-03-11"),
        ("this Monday", "2026-03-09"),
        ("next Friday", "2026-03-20"),
        ("last Monday", "2026-03-02"),
        ("on Friday", "2026-03-13"),
        ("I met him on Friday", "2026-03-06"),
        ("I am meeting him on Friday", "2026-03-13"),
        ("the review moved to Thursday", "2026-03-12"),
        ("I moved to Berlin on Monday", "2026-03-09"),
        ("next week", "2026-03-16 ~ 2026-03-22"),
        ("this weekend", "2026-03-14 ~ 2026-03-15"),
        ("next month", "2026-04"),
        ("last year", "2025"),
        ("in two weeks", "2026-03-25"),
        ("in 3 days", "2026-03-14"),
        ("5 days ago", "2026-03-06"),
        ("a week ago", "2026-03-04"),
        ("a month ago", "2026-02-11"),
        ("March 18", "2026-03-18"),
        ("18 March 2026", "2026-03-18"),
        ("the 18th of March", "2026-03-18"),
        ("May 5th", "2026-05-05"),
        ("in March", "2026-03"),
        ("by 3/18", "2026-03-18"),
        ("by 18/3", "2026-03-18"),
        ("3/18/2026", "2026-03-18"),
        ("2026-03-18", "2026-03-18"),
        ("on the 3rd", "2026-04-03"),
        ("the 21st of next month", "2026-04-21"),
        ("end of the month", "2026-03-31"),
        ("by the end of next month", "2026-04-30"),
        ("since 2019", "2019"),
        ("Tuesday morning", "2026-03-17"),
        ("Monday to Wednesday", "2026-03-16 ~ 2026-03-18"),
        ("from March 20 to March 25", "2026-03-20 ~ 2026-03-25"),
    ],
)
def test_english_days(text, day):
    assert written(text) == [day]


@pytest.mark.parametrize(
    "text",
    [
        "每天7点",
        "每周三晚上8点",
        "一周三次",
        "我有三点要求",
        "一点也不难",
        "五号线",
        "3号楼",
        "今日头条",
        "早就说了",
        "3/18",
        "03/04/2026",
        "24/7",
        "every Monday at 9am",
        "every Monday and Thursday",
        "on Mondays",
        "you may 5 times",
        "march 5 miles",
        "at 100%",
        "score 3:10",
        "v1.2.3 at 10.0.0.1",
        "I fixed it in 3 days",
        "he sat there",
        "2月30日",
        "2026-02-30",
        "99999999999天后",
        "in 999999 years",
        "",
    ],
)
def test_what_is_no_date_or_ambiguous_is_left_alone(text):
    assert resolve(text, AT) == []


def test_whole_days_stretches_and_moments():
    day, week, hour, evening = (resolve(text, AT)[0] for text in ("明天", "下周", "明天下午三点", "今晚"))
    assert (day.start, day.end, day.all_day) == (datetime(2026, 3, 12, tzinfo=SHANGHAI), None, True)
    assert (week.end, week.all_day) == (datetime(2026, 3, 23, tzinfo=SHANGHAI), True)
    assert (hour.end, hour.all_day, hour.text, hour.span) == (None, False, "明天下午三点", (0, 6))
    assert (evening.start.hour, evening.end, evening.all_day) == (
        18,
        datetime(2026, 3, 12, tzinfo=SHANGHAI),
        False,
    )


@pytest.mark.parametrize(
    ("text", "dated"),
    [
        ("下周三去北京出差", "下周三（2026-03-18）去北京出差"),
        ("会议改到周四下午三点", "会议改到周四下午三点（2026-03-12 15:00）"),
        ("dentist next Tuesday at 3pm", "dentist next Tuesday at 3pm (2026-03-17 15:00)"),
        ("on 2026-03-18 or 2026年3月19日", "on 2026-03-18 or 2026年3月19日"),
        ("no date", "no date"),
    ],
)
def test_absolute_dates_stand_behind_relative_ones(text, dated):
    assert with_dates(text, AT) == dated
    assert with_dates(dated, AT) == dated


def test_wall_times_hold_across_changes_of_the_clocks():
    before = datetime(2026, 3, 7, 12, 0, tzinfo=NEW_YORK)  # the clocks go forward on 8 March
    found = resolve("tomorrow at 9am", before)[0]
    assert (found.start.hour, found.start.utcoffset()) == (9, timedelta(hours=-4))
    assert resolve("in 24 hours", before)[0].start.hour == 13


def test_years_end_and_leap_years():
    assert written("明天", datetime(2026, 12, 31, 9, tzinfo=SHANGHAI)) == ["2027-01-01"]
    assert written("next month", datetime(2026, 12, 31, 9, tzinfo=SHANGHAI)) == ["2027-01"]
    assert written("一个月后", datetime(2026, 1, 31, 9, tzinfo=SHANGHAI)) == ["2026-02-28"]
    assert written("一个月后", datetime(2028, 1, 31, 9, tzinfo=SHANGHAI)) == ["2028-02-29"]
    assert written("下周一", datetime(2026, 12, 30, 9, tzinfo=SHANGHAI)) == ["2027-01-04"]
    assert written("月底", datetime(2028, 2, 3, 9, tzinfo=SHANGHAI)) == ["2028-02-29"]


@given(st.dates(date(1900, 1, 1), date(9000, 12, 31)), st.integers(0, 6), st.sampled_from("上 这 下".split()))  # noqa: SIM905
def test_weekdays_lie_in_their_calendar_week(day, weekday, which):
    at = datetime(day.year, day.month, day.day, 13, 30, tzinfo=SHANGHAI)
    chinese = resolve(f"{which}周{'一二三四五六日'[weekday]}", at)[0].start.date()
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    word = {"上": "last", "这": "this", "下": "next"}[which]
    english = resolve(f"{word} {names[weekday]}", at)[0].start.date()
    monday = day - timedelta(days=day.weekday()) + timedelta(weeks={"上": -1, "这": 0, "下": 1}[which])
    assert chinese == english == monday + timedelta(days=weekday)


@given(st.dates(date(1900, 1, 1), date(9000, 12, 31)), st.integers(0, 6))
def test_a_weekday_alone_is_the_coming_one_or_the_last(day, weekday):
    at = datetime(day.year, day.month, day.day, 13, 30, tzinfo=UTC)
    coming = resolve(f"周{'一二三四五六日'[weekday]}开会", at)[0].start.date()
    assert coming.weekday() == weekday
    assert 0 <= (coming - day).days < 7
    past = resolve(f"周{'一二三四五六日'[weekday]}面试了", at)[0].start.date()
    assert past.weekday() == weekday
    assert 0 < (day - past).days <= 7


@given(st.dates(date(1900, 1, 1), date(9000, 12, 31)), st.integers(1, 9999))
def test_days_are_counted_exactly(day, count):
    at = datetime(day.year, day.month, day.day, 23, 59, tzinfo=NEW_YORK)
    for text, sign in (
        (f"{count}天后", 1),
        (f"{count}天前", -1),
        (f"in {count} days", 1),
        (f"{count} days ago", -1),
    ):
        assert resolve(text, at)[0].start.date() == day + timedelta(days=sign * count), text


PIECES = [
    *"上下这本周月年日号点半刻前后天一二两三十零今明昨早晚到至", *"0123456789:/-. ,，", "星期", "小时", "下个月", "3月", "next ",
    "last ", "Friday", "March ", "at ", "pm", "in ", " days", " ago", "the ", "3rd", "end of ", "every ", "half past ", "to ",
]  # fmt: skip


@given(
    st.one_of(st.text(max_size=80), st.lists(st.sampled_from(PIECES), max_size=25).map("".join)),
    st.datetimes(datetime(1900, 1, 1), datetime(9000, 12, 31)),  # noqa: DTZ001 - hypothesis wants them naive
    st.sampled_from([UTC, SHANGHAI, NEW_YORK, ZoneInfo("Pacific/Kiritimati")]),
)
def test_any_text_is_read_and_spans_are_true(text, at, zone):
    at = at.replace(tzinfo=zone)
    last = 0
    for found in resolve(text, at):
        assert text[slice(*found.span)] == found.text
        assert found.span[0] >= last
        last = found.span[1]
        assert found.start.tzinfo is zone
        assert found.end is None or found.end > found.start
    dated = with_dates(text, at)
    assert len(dated) >= len(text)
