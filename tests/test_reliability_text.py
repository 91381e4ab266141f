"""Any text goes in and comes back byte for byte; any text is a legal query and none is syntax."""

# ruff: noqa: S311 - seeded chance

import json
import os
import random
import unicodedata
from contextlib import suppress
from pathlib import Path

import pytest

from memstore.errors import InvalidText
from memstore.store import MemoryStore
from memstore.testing import ManualClock
from memstore.types import Message, Scope
from reliability_support import (
    SCOPE,
    START,
    assert_sound,
    dump,
    message_lines,
    open_store,
    remove_database,
    say,
)

# --- R28: text fidelity -----------------------------------------------------------------------------------

STRINGS = 2_000  # N, short form; the full form is 10,000
SPECIAL = (
    "\x00", "a\x00b", "\x00\x00", "\ufeff", "\ufeffa", "\u2028", "\u2029", "\x85", "\r", "\r\n", "\n", "\t", "\x0b", "\x1f", "\x7f",
    "\u200b", "\u200d", "\u200e\u202e\u2066", "\u061c", "\u00ad", "\ue000", "\uf8ff", "\ufffd", "\ufffe", "\uffff", "\U0001ffff", "\U0010ffff",
    "\U0010fffe", "e\u0301", "\u00e9", "\u1100\u1161", "\uac00", "\ufb01", "\u212b", "\u0130", "ß", "ſ", "İ", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "\U000e0041",
    "\u0300\u0301\u0302", "\u202eabc", "שלום", "مرحبا", "ไทย", "한국어", "日本語", "銀行卡", "𠮷", "\U00020000", "\U000323af", "\\", "\\u0000",
    '"', "'", "{}", "[1]", "null", "NaN", "%", "_", "' OR 1=1 --", "</script>", "=cmd", "\\ud800", "\x1b[0m",
)  # fmt: skip
PLANES = ((0x0, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x2FFFF), (0x30000, 0x3FFFF), (0xE0000, 0xEFFFF),
          (0xF0000, 0xFFFFF), (0x100000, 0x10FFFF), (0x0, 0x7F), (0x300, 0x36F), (0x2000, 0x206F), (0x4E00, 0x9FFF))  # fmt: skip


def generated(rng: random.Random) -> str:
    pieces = []
    for _ in range(rng.randint(1, 6)):
        kind = rng.randint(0, 3)
        if kind == 0:
            pieces.append(rng.choice(SPECIAL))
        elif kind == 1:
            low, high = rng.choice(PLANES)
            pieces.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 30))))
        elif kind == 2:
            pieces.append(
                unicodedata.normalize(rng.choice(("NFC", "NFD", "NFKC", "NFKD")), "Café Ångström ﬁ 한국 が")
            )
        else:
            pieces.append(rng.choice((" ", "plain words here", "  two  blanks ", "x" * 500)))
    return "".join(pieces)


def strings() -> list[str]:
    rng = random.Random(28)
    made = [*SPECIAL, *(generated(rng) for _ in range(STRINGS - len(SPECIAL)))]
    assert len(made) == STRINGS
    for plane in (*range(4), 14, 15, 16):
        assert any(ord(c) >> 16 == plane for text in made for c in text), plane
    return made


def same(found: list[str], wanted: list[str]) -> bool:
    """Compared as bytes, and without an endless difference of 2,000 strings in a failure."""
    return [text.encode() for text in found] == [text.encode() for text in wanted]


def test_two_thousand_strings_come_back_byte_for_byte(tmp_path):
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    texts = strings()
    with open_store(path, clock, durability="process") as store:
        ids: list[str] = []
        for start in range(0, STRINGS, 100):
            part = texts[start : start + 100]
            blocks = [[{"type": "text", "text": text, text or "k": text}] for text in part]
            ids += store.record(SCOPE, [Message("user", text) for text in part], "plain").ids
            store.record(
                SCOPE, [Message("user", block, meta={"t": block[0]["text"]}) for block in blocks], "blocks"
            )
        check_messages(store, texts, ids)
        memories = {text: store.add(SCOPE, text, metadata={"t": text}) for text in texts if text.strip()}
        assert len(memories) > 1_500
        for text, memory in memories.items():
            assert memory.content.encode() == text.encode()
            got = store.get(SCOPE, memory.id)
            assert got is not None
            assert (got.content.encode(), got.metadata) == (text.encode(), {"t": text})
        wanted = dump(store)
        assert_sound(store)
    lines = [
        json.loads(row["content"]) for row in message_lines(path) if row["session"] == "agent:default:plain"
    ]
    assert same(lines, texts)
    remove_database(path)
    report = MemoryStore.recover(path)
    assert (report.messages, report.skipped) == (2 * STRINGS, ())
    with open_store(path, clock) as store:
        assert dump(store) == wanted
        check_messages(store, texts, ids)
        assert_sound(store)


def check_messages(store: MemoryStore, texts: list[str], ids: list[str]) -> None:
    assert same([m.content for m in store.messages(SCOPE, "plain")], texts)
    assert same([m.text for m in store.messages(SCOPE, "plain")], texts)
    assert [m.id for m in store.messages(SCOPE, "plain")] == ids
    for text, row_id in list(zip(texts, ids, strict=True))[::20]:
        got = store.get(SCOPE, row_id)
        assert got is not None
        assert got.content.encode() == text.encode()
    for text, message in zip(texts, store.messages(SCOPE, "blocks"), strict=True):
        assert message.content == [{"type": "text", "text": text, text or "k": text}]
        assert message.meta == {"t": text}


def test_names_and_ids_and_titles_come_back_byte_for_byte(tmp_path):
    """N: 300 of the strings, where they may stand."""
    path = tmp_path / "store.db"
    with open_store(path, durability="process") as store:
        wanted = []
        for number, text in enumerate(t for t in strings()[:300] if t and len(t) <= 256):
            message = Message("user", "x", id=f"{number}{text}"[:256], name=text, tool_call_id=text)
            store.record(SCOPE, [message], "one")
            wanted.append((message.id, text, text))
        found = [(m.client_id, m.name, m.tool_call_id) for m in store.messages(SCOPE, "one")]
        assert found == wanted
        again = [
            Message("user", "x", id=client_id, name=name, tool_call_id=name) for client_id, name, _ in wanted
        ]
        assert store.record(SCOPE, again, "one").new == 0, "each is known by its bytes"
        assert_sound(store)


SURROGATES = ("\ud800", "a\udfffb", "\udc80", "ok \ud83d", "\ude00\ud83d")


@pytest.mark.parametrize("text", SURROGATES)
def test_lone_surrogates_are_refused_and_nothing_is_stored(tmp_path, text):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        attempts = [
            lambda: say(store, "fine", text),
            lambda: store.record(SCOPE, [Message("user", [{"type": "text", "text": text}])], "one"),
            lambda: store.record(SCOPE, [Message("user", "x", name=text)], "one"),
            lambda: store.record(SCOPE, [Message("user", "x", id=text)], "one"),
            lambda: store.record(SCOPE, [Message("user", "x", meta={text: 1})], "one"),
            lambda: store.record(SCOPE, [Message("user", "x", tool_calls=({"a": text},))], "one"),
            lambda: store.add(SCOPE, text),
            lambda: store.add(SCOPE, "x", metadata={"a": text}),
            lambda: store.add(SCOPE, "x", idempotency_key=text),
        ]
        for number, attempt in enumerate(attempts):
            with pytest.raises(InvalidText, match="surrogate"):
                pytest.fail(f"attempt {number} gave {attempt()!r}")
        assert dump(store) == {"messages": [], "sessions": []}
        assert store.count(SCOPE) == {"memories": 0, "messages": 0}
        assert not Path(f"{path}.fallback").exists()


def test_a_title_with_a_lone_surrogate_is_refused(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        say(store, "x")
        with pytest.raises(InvalidText, match="surrogate"):
            store.set_session(SCOPE, "agent:chat:one", title="\ud800")
        assert [s.title for s in store.sessions(SCOPE)] == ["x"]


# --- R29: queries -----------------------------------------------------------------------------------------

QUERIES = int(os.environ.get("MEMSTORE_TEST_QUERIES") or 20_000)  # N; the full form is 100,000
WORDS = ("zebra", "falcon", "银行卡", "copper", "lantern", "quartz", "宠物", "velvet")
JOINERS = (
    " ", " AND ", " OR ", " NOT ", " NEAR ", " NEAR(", ", 2) ", "*", "* ", " *", "^", " ^", '"', '" "', '""', " : ", ":", " - ", " -", " + ",
    "+", "(", ")", ") OR (", "{words literal} : ", " words : ", " literal:", " owner:u2 ", " rank MATCH 'bm25(9)' ", "\x00", " \x00 ", "\\",
    ";", " -- ", " /* ", " */ ", "%", "\n", "\t\r\n", "，", "。", "「", " rowid = 1 ", " LIMIT 0 ", " ? ", " ?1 ", "$x ", "' ",
)  # fmt: skip


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """Twelve rows of one asker in each layer, as many of another user, another team and another agent."""
    path = tmp_path_factory.mktemp("shelf") / "store.db"
    rng = random.Random(29)
    with open_store(path, durability="process") as store:
        for number in range(12):
            text = f"{rng.choice(WORDS)} {rng.choice(WORDS)} {'abcdefghijkl'[number] * 3}"
            for scope in (
                SCOPE,
                Scope("team", "u2", "agent"),
                Scope("other", "user", "agent"),
                Scope("team", "user", "b"),
            ):
                store.record(scope, [Message("user", text)], "s")
                store.add(scope, text)
        yield store


def ids_of(store: MemoryStore, query: str, layer: str) -> set[str]:
    ask = store.search_messages if layer == "messages" else store.recall
    found = ask(SCOPE, query, limit=100, timeout_s=600)
    assert not found.degraded, query
    for hit in found:
        assert (hit.user_id, hit.agent_id) == ("user", "agent"), query
    return {hit.id for hit in found}


def own_ids(store: MemoryStore) -> set[str]:
    return {m.id for m in store.messages(SCOPE, "s")} | {m.id for m in store.get_all(SCOPE, 1_000)}


def test_operators_are_words_like_any_other(shelf):
    """N: 12,000 queries of words with FTS5's syntax around them: the rows are those of the bare words."""
    rng = random.Random(1)
    plain_answers: dict[tuple[str, frozenset], set[str]] = {}
    found_some = 0
    for number in range(QUERIES * 3 // 5):
        layer = ("messages", "memories")[number % 2]
        raw, words = rng.choice(JOINERS), set()
        for _ in range(rng.randint(1, 4)):
            word = rng.choice(WORDS)
            raw += word + rng.choice(JOINERS)
            words.add(word)  # the words inside of operators are in no row
        key = layer, frozenset(words)
        if key not in plain_answers:
            plain_answers[key] = ids_of(shelf, " ".join(sorted(words)), layer)
        assert ids_of(shelf, raw, layer) == plain_answers[key], repr(raw)
        found_some += bool(plain_answers[key])
    assert found_some > QUERIES // 2


def test_junk_is_a_legal_query(shelf):
    """N: 8,000 queries of any characters: no error, and no row of others."""
    rng = random.Random(2)
    mine = own_ids(shelf)
    for number in range(QUERIES * 2 // 5):
        layer = ("messages", "memories")[number % 2]
        query = (
            generated(rng)
            if number % 3
            else "".join(rng.choices("\"*^:()+-{}\x00'\\ANDORNEARzebra 银行卡", k=rng.randint(0, 60)))
        )
        assert ids_of(shelf, query, layer) <= mine, repr(query)


@pytest.mark.parametrize("query", [
    "", " ", "\n\t", "\x00", "...", "'\"*", "。，！", "\u200b", "x" * 50_000, "zebra " * 20_000, "银" * 50_000, '"' * 30_000, "(" * 30_000,
    "NEAR(" * 5_000, "a\u0301" * 20_000, "\u0301" * 30_000, "👩‍👩‍👧‍👦" * 3_000, "\x00" * 50_000, "\u202e" * 10_000, "zebra\x00falcon",
])  # fmt: skip
def test_long_and_empty_queries(shelf, query):
    for layer in ("messages", "memories"):
        assert ids_of(shelf, query, layer) <= own_ids(shelf)
    blank = not any(c.isalnum() or unicodedata.category(c) == "So" for c in query)
    if blank:
        assert ids_of(shelf, query, "memories") == set()


@pytest.mark.parametrize("text", SURROGATES)
def test_a_query_with_a_lone_surrogate_is_a_query_or_refused_by_name(shelf, text):
    for layer in ("messages", "memories"):
        with suppress(InvalidText):
            assert ids_of(shelf, f"zebra {text}", layer) <= own_ids(shelf)
