"""Dates as words: of a message, and in a query."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore import Message
from memstore.date_words import date_words, dates_named
from memstore.text import normalise
from memstore.times import to_micros

SHANGHAI = ZoneInfo("Asia/Shanghai")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("what did she do on 8 May 2023?", ["onyear2023", "onmonth05", "onday0508"]),
        ("May 8th", ["onmonth05", "onday0508"]),
        ("the 3rd of september", ["onmonth09", "onday0903"]),
        ("sept. 3", ["onmonth09", "onday0903"]),
        ("in may", ["onmonth05"]),
        ("may 2023", ["onyear2023", "onmonth05"]),
        ("may i ask", []),
        ("you may 100 times", []),
        ("marching band", []),
        ("decide", []),
        ("2024年5月8日", ["onyear2024", "onmonth05", "onday0508"]),
        ("五月份", ["onmonth05"]),
        ("十二月25号", ["onmonth12", "onday1225"]),
        ("三个月", []),
        ("13月", []),
        ("2024-05-08", ["onyear2024", "onmonth05", "onday0508"]),
        ("2024-05", ["onyear2024", "onmonth05"]),
        ("120241", []),
        ("v1.2.3", []),
        ("", []),
    ],
)
def test_a_query_names_dates_in_english_chinese_and_iso(query, words):
    assert dates_named(normalise(query)) == words


def test_a_messages_date_is_read_in_the_stores_zone():
    late = to_micros(datetime(2023, 5, 8, 17, 30, tzinfo=UTC))
    assert date_words(late, UTC) == ["onyear2023", "onmonth05", "onday0508"]
    assert date_words(late, SHANGHAI) == ["onyear2023", "onmonth05", "onday0509"]


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23)))  # noqa: DTZ001 - hypothesis wants them naive
def test_every_instant_has_words_or_none(instant):
    words = date_words(to_micros(instant.replace(tzinfo=UTC)), SHANGHAI)
    assert len(words) in (0, 3)
    assert all(word.isascii() and word.isalnum() for word in words), "unicode61 leaves them whole"


@given(st.text(max_size=60))
def test_any_text_is_read(text):
    assert all(word.isalnum() for word in dates_named(text.lower()))


def test_a_message_is_found_by_its_day_and_by_its_speaker(store, ana):
    said = [
        Message("user", "we went hiking", name="Caroline", created_at="2023-05-08T10:00:00Z"),
        Message("user", "we went swimming", name="Melanie", created_at="2023-06-09T10:00:00Z"),
        Message("user", "...", name="Caroline", created_at="2023-05-08T11:00:00Z"),
    ]
    store.record(ana, said, "s")
    for query in ("what was on 8 May?", "5月8日做了什么", "Caroline"):
        assert [hit.content for hit in store.search_messages(ana, query)] == ["we went hiking"], query
    assert store.search_messages(ana, "2023-05-08")[0].content == "we went hiking"
    assert len(store.search_messages(ana, "2023")) == 2
    assert not store.search_messages(ana, "8 apples 5"), "a number is no date"
