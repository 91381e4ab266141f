"""Importing plain JSONL. Numbers in test names are those of the catalogue of cases that users met."""

import codecs
import io
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memstore import InvalidInput, MemoryStore, Message, Scope, Settings, StoredMessage
from memstore.importers import import_jsonl
from memstore.importers.intake import BATCH_LINES
from memstore.importers.lines import CHUNK_BYTES, MAX_DEPTH, read_lines
from memstore.testing import HashEmbedder, ManualClock

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryStore]:
    """One store for the file: tests keep apart by user."""
    path = tmp_path_factory.mktemp("jsonl") / "memory.db"
    chosen = Settings(timezone="Asia/Shanghai", durability="process")
    with MemoryStore(path, HashEmbedder(), ManualClock(NOW), chosen) as opened:
        yield opened


@pytest.fixture
def user() -> str:
    return f"user-{next(_numbers)}"


def line(number: int, **more: object) -> dict[str, object]:
    role = "user" if number % 2 else "assistant"
    return {
        "role": role,
        "content": f"message {number} 内容",
        "created_at": 1_768_464_000 + number,
        "session": "chat",
        **more,
    }


def dumped(*records: object) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def held(store: MemoryStore, user: str, session: str = "default:default:chat") -> list[StoredMessage]:
    return store.messages(Scope("default", user), session)


def texts(store: MemoryStore, user: str, session: str = "default:default:chat") -> list[str]:
    return [message.text for message in held(store, user, session)]


def only_session(store: MemoryStore, user: str) -> str:
    (session,) = store.sessions(Scope("default", user))
    return session.session


# --- 45: one bad line ------------------------------------------------------------------------------------------

TEN = [json.dumps(line(n), ensure_ascii=False).encode() for n in range(1, 11)]


def without(*numbers: int) -> list[int]:
    return [n for n in range(1, 11) if n not in numbers]


@pytest.mark.parametrize(
    ("data", "kept", "skipped"),
    [
        pytest.param(b"\n".join([*TEN[:9], TEN[9][:30]]), without(10), [10], id="last line cut"),
        pytest.param(b"\n".join([*TEN[:3], TEN[3][:30], *TEN[4:]]), without(4), [4], id="line 4 cut"),
        pytest.param(b"\n".join([*TEN[:3], bytes(80), *TEN[4:]]), without(4), [4], id="line 4 NUL"),
        pytest.param(b"\n".join([*TEN[:3], TEN[3] + TEN[4], *TEN[5:]]), without(), [], id="4 and 5 joined"),
        pytest.param(b"\n\n \t\n".join(TEN), without(), [], id="blank lines"),
        pytest.param(b"\n".join([*TEN[:3], bytes(9) + TEN[3], *TEN[4:]]), without(), [], id="NUL in front"),
        pytest.param(b"\n".join([*TEN[:3], TEN[3] + b" x", *TEN[4:]]), without(), [4], id="text behind"),
        pytest.param(b"\n".join([*TEN[:3], b"[1]", *TEN[4:]]), without(4), [4], id="a list"),
        pytest.param(b"", [], [], id="empty file"),
        pytest.param(b"{\nnot json\n\0\0\n", [], [1, 2, 3], id="only broken"),
    ],
)
def test_case_45_a_bad_line_costs_that_line(
    store: MemoryStore, user: str, tmp_path: Path, data: bytes, kept: list[int], skipped: list[int]
) -> None:
    path = written(tmp_path / "talk.jsonl", data)
    report = import_jsonl(store, path, user_id=user)
    assert [s.line for s in report.skipped] == skipped
    assert {s.file for s in report.skipped} <= {str(path)}
    assert all(s.reason for s in report.skipped)
    assert (report.files, report.stored, report.known) == (1, len(kept), 0)
    assert report.read == report.stored + report.known + len(report.skipped)
    assert texts(store, user) == [f"message {n} 内容" for n in kept]
    assert report.empty_files == (() if kept else (str(path),))


@pytest.mark.parametrize("torn", [2, 4, 10])
@pytest.mark.parametrize("named", [True, False], ids=["session named", "no session"])
def test_case_45_a_completed_line_adds_exactly_one(
    store: MemoryStore, user: str, tmp_path: Path, torn: int, named: bool
) -> None:
    whole = [dumped(line(n, session="chat" if named else None)).rstrip() for n in range(1, 11)]
    cut = [*whole[: torn - 1], whole[torn - 1][:40], *whole[torn:]]
    path = written(tmp_path / "talk.jsonl", b"\n".join(cut))
    assert import_jsonl(store, path, user_id=user).stored == 9
    written(path, b"\n".join(whole))
    report = import_jsonl(store, path, user_id=user)
    assert (report.stored, report.known, report.skipped) == (1, 9, ())
    assert sorted(texts(store, user, only_session(store, user))) == sorted(
        f"message {n} 内容" for n in range(1, 11)
    )


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"role":"user","content":"x","meta":{"n":NaN}}', "NaN"),
        (b'{"role":"user","content":"x","meta":{"n":-Infinity}}', "Infinity"),
        (b'{"role":"user","content":"x","meta":{"n":1e999}}', "Message.meta"),
        (b'{"role":"user","content":"x","meta":{"n":' + b"7" * 5000 + b"}}", "4300"),
        (b'{"role":"user","content":' + b"[" * 100_000 + b"]" * 100_000 + b"}", f"{MAX_DEPTH} levels"),
        (b'{"role":"user","content":' + b"[" * 100_000, f"{MAX_DEPTH} levels"),
        (b'{"role":"user","content":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", f"{MAX_DEPTH} levels"),
        (rb'{"role":"user","content":"a \ud800 b"}', "D800"),
        (rb'{"role":"user","content":"x","meta":{"\udfff":1}}', "DFFF"),
        (b'{"role":"user","content":"a\x01b"}', "control character"),
        (b'{"role":"bot","content":"x"}', "'bot'"),
        (b'{"role":["user"],"content":"x"}', "role"),
        (b'{"role":"user","content":17}', "Message.content"),
        (b'{"role":"user","content":[17]}', "blocks"),
        (b'{"role":"user","content":"x","tool_calls":[5]}', "tool_calls"),
        (b'{"role":"user","content":"x","usage":"much"}', "usage"),
        (b'{"role":"user","content":"x","meta":[1]}', "meta"),
        (b'{"role":"user","content":"x","id":{"$oid":"1"}}', "id must be text"),
        (b'{"role":"user","content":"x","id":"' + b"i" * 300 + b'"}', "Message.id"),
        (b'{"role":"user","content":"x","name":"' + b"n" * 300 + b'"}', "Message.name"),
    ],
)
def test_case_45_what_cannot_be_kept_is_refused_by_line_and_its_neighbours_stay(
    store: MemoryStore, user: str, tmp_path: Path, bad: bytes, reason: str
) -> None:
    bad = bad.replace(b"{", b'{"session":"chat",', 1)  # so that it waits in one batch with its neighbours
    data = dumped(line(1), line(2)) + bad + b"\n" + dumped(line(3)) + b"{\n"
    report = import_jsonl(store, written(tmp_path / "talk.jsonl", data), user_id=user)
    assert [s.line for s in report.skipped] == [3, 5]
    skipped = report.skipped[0]
    assert reason in skipped.reason
    assert len(skipped.reason) < 300
    assert texts(store, user) == [f"message {n} 内容" for n in (1, 2, 3)]


def test_what_json_allows_is_taken(store: MemoryStore, user: str, tmp_path: Path) -> None:
    data = rb'{"role":"user","role":"user","content":"pair \ud83d\ude00","session":"chat"}' + b"\n"
    deep: object = "x"
    for _ in range(MAX_DEPTH - 5):
        deep = [deep]
    flat = {"n": [[n] for n in range(500)]}  # many brackets, few levels
    data += dumped(line(1, meta={"deep": deep}), line(2, meta=flat))
    report = import_jsonl(store, written(tmp_path / "t.jsonl", data), user_id=user)
    assert report.skipped == ()
    assert texts(store, user) == ["pair 😀", "message 1 内容", "message 2 内容"]
    assert held(store, user)[2].meta == flat


_PIECES = st.one_of(
    st.integers(0, 3).map(lambda n: ("good", n)),
    st.sampled_from(
        [
            b"{",
            b"",
            b"  ",
            b"\0\0",
            b"\xc3\x28",
            b"null",
            b'{"type":"summary"}',
            b'{"role":"user"',
            b"\xef\xbb\xbf",
        ]
    ).map(lambda raw: ("bad", raw)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(_PIECES, max_size=25),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    last_end=st.booleans(),
)
def test_case_45_good_lines_of_any_mix_all_arrive_in_order(
    store: MemoryStore, tmp_path: Path, pieces: list[tuple[str, object]], end: bytes, last_end: bool
) -> None:
    user = f"user-{next(_numbers)}"
    raw = [
        json.dumps(line(int(str(piece)), created_at=None)).encode() if kind == "good" else piece
        for kind, piece in pieces
    ]
    assert all(isinstance(piece, bytes) for piece in raw)
    path = written(tmp_path / "mix.jsonl", end.join(raw) + (end if last_end else b""))  # type: ignore[arg-type]
    good = [f"message {piece} 内容" for kind, piece in pieces if kind == "good"]
    report = import_jsonl(store, path, user_id=user)
    assert texts(store, user) == good
    assert report.read == report.stored + len(report.skipped)
    blank = (b"", b"  ", b"\xef\xbb\xbf")
    bad = [n for n, (kind, piece) in enumerate(pieces, 1) if kind == "bad" and piece not in blank]
    assert [s.line for s in report.skipped] == bad
    again = import_jsonl(store, path, user_id=user)
    assert (again.stored, again.known) == (0, len(good))


# --- 46: encodings ---------------------------------------------------------------------------------------------

THREE = [
    line(1, content="第一 first"),
    line(2, content="line\u2028separator and \u0085 next"),
    line(3, content="emoji 😀"),
]
THREE_TEXTS = ["第一 first", "line\u2028separator and \u0085 next", "emoji 😀"]
PLAIN = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in THREE)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(PLAIN.encode(), id="utf-8"),
        pytest.param(PLAIN.encode("utf-8-sig"), id="bom"),
        pytest.param(PLAIN.replace("\n", "\r\n").encode(), id="crlf"),
        pytest.param(PLAIN.replace("\n", "\r\n").encode("utf-8-sig"), id="bom+crlf"),
        pytest.param(PLAIN.replace("\n", "\r").encode(), id="cr"),
        pytest.param(PLAIN.rstrip().encode(), id="no last line end"),
        pytest.param(codecs.BOM_UTF16_LE + PLAIN.encode("utf-16-le"), id="utf-16-le"),
        pytest.param(
            codecs.BOM_UTF16_BE + PLAIN.replace("\n", "\r\n").encode("utf-16-be"), id="utf-16-be+crlf"
        ),
        pytest.param(
            b"".join(codecs.BOM_UTF8 + dumped(record) for record in THREE), id="joined files with boms"
        ),
    ],
)
def test_case_46_encodings_and_line_ends(store: MemoryStore, user: str, tmp_path: Path, data: bytes) -> None:
    report = import_jsonl(store, written(tmp_path / "t.jsonl", data), user_id=user)
    assert (report.stored, report.skipped) == (3, ())
    assert texts(store, user) == THREE_TEXTS
    assert not any(mark in text for text in texts(store, user) for mark in "\r\ufeff")


def test_case_46_every_encoding_is_the_same_file(store: MemoryStore, user: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    nameless = PLAIN.replace('"session"', '"other"')
    stored = [
        import_jsonl(store, written(path, data), user_id=user).stored
        for data in (
            nameless.encode("utf-8-sig"),
            nameless.replace("\n", "\r\n").encode(),
            nameless.replace("\n", "\r").encode(),
            nameless.encode("utf-16"),
        )
    ]
    assert stored == [3, 0, 0, 0]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_case_46_an_invalid_utf8_line_is_reported(
    store: MemoryStore, user: str, tmp_path: Path, number: int
) -> None:
    rows = PLAIN.encode().splitlines(keepends=True)
    rows[number - 1] = rows[number - 1].replace(b"e", b"\xe5\xff", 1)
    report = import_jsonl(store, written(tmp_path / "t.jsonl", b"".join(rows)), user_id=user)
    assert [s.line for s in report.skipped] == [number]
    assert "Unicode" in report.skipped[0].reason
    assert texts(store, user) == [text for n, text in enumerate(THREE_TEXTS, 1) if n != number]


@pytest.mark.parametrize(
    ("spoil", "lost"),
    [
        (lambda data: data[:-3], [3]),  # cut inside the last brace
        (lambda data: data[:-1], []),  # cut inside the last line end
        (lambda data: data.replace("第".encode("utf-16-le"), b"\x00\xd8"), [1]),  # half a pair
    ],
    ids=["torn", "line end torn", "half a pair"],
)
def test_case_46_damage_in_utf16_is_reported_by_line(
    store: MemoryStore, user: str, tmp_path: Path, spoil, lost: list[int]
) -> None:
    data = codecs.BOM_UTF16_LE + spoil(PLAIN.encode("utf-16-le"))
    report = import_jsonl(store, written(tmp_path / "t.jsonl", data), user_id=user)
    assert [s.line for s in report.skipped] == lost
    assert texts(store, user) == [text for n, text in enumerate(THREE_TEXTS, 1) if n not in lost]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("shift", range(-3, 4))
def test_case_46_chunk_borders_do_not_show(end: bytes, shift: int) -> None:
    head = b'{"a":"' + b"x" * (CHUNK_BYTES - 8 + shift) + b'"}'
    data = end.join([head, b'{"b":1}', b"", b'{"c":2}'])
    found = [(line.number, line.record) for line in read_lines(io.BytesIO(data))]
    assert found[1:] == [(2, {"b": 1}), (4, {"c": 2})]
    assert found[0] == (1, json.loads(head))


def test_case_46_an_endless_line_is_reported_and_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memstore.importers.lines.MAX_LINE_BYTES", 100_000)
    data = b'{"a":1}\n' + b"x" * 1_000_000 + b'\n{"b":2}\n'
    found = list(read_lines(io.BytesIO(data)))
    assert [(line.number, line.record) for line in found] == [(1, {"a": 1}), (2, None), (3, {"b": 2})]
    assert "longer than" in (found[1].fault or "")


# --- 48: shapes ------------------------------------------------------------------------------------------------

TALK = [("user", "你好"), ("assistant", "hello"), ("user", "when?"), ("assistant", "tomorrow")]
TALK_TEXTS = [text for _, text in TALK]
CONTROL = [{"type": "summary", "summary": f"s{n}", "leafUuid": str(n)} for n in range(30)]

SHAPES = {
    "string content": [{"role": r, "content": t} for r, t in TALK],
    "text blocks": [{"role": r, "content": [{"type": "text", "text": t}]} for r, t in TALK],
    "strings in a list": [{"role": r, "content": [t]} for r, t in TALK],
    "wrapped": [{"message": {"role": r, "content": t}} for r, t in TALK],
    "wrapped with type": [
        {
            "type": r,
            "uuid": f"u{n}",
            "message": {"id": "m", "role": r, "content": [{"type": "text", "text": t}]},
        }
        for n, (r, t) in enumerate(TALK)
    ],
    "role from type": [{"type": r, "message": {"content": t}} for r, t in TALK],
    "human and ai": [
        {"sender": {"user": "human", "assistant": "ai"}[r], "content": t, "message": None} for r, t in TALK
    ],
    "role human": [{"role": {"user": "human", "assistant": "ai"}[r], "content": t} for r, t in TALK],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("around", ["alone", "30 control records first", "side chain", "unknown types"])
def test_case_48_four_turns_from_every_shape(
    store: MemoryStore, user: str, tmp_path: Path, shape: str, around: str
) -> None:
    turns = SHAPES[shape]
    side = [{**turns[0], "isSidechain": True}, {**turns[1], "sidechain": True}]
    unknown = [
        {"type": "progress", "data": {"role": "x"}},
        {"kind": 3},
        {"type": "system", "content": "note"},
    ]
    records = {
        "alone": turns,
        "30 control records first": [*CONTROL, *turns],
        "side chain": [turns[0], *side, *turns[1:]],
        "unknown types": [unknown[0], *turns[:2], unknown[1], *turns[2:], unknown[2]],
    }[around]
    report = import_jsonl(store, written(tmp_path / "t.jsonl", dumped(*records)), user_id=user)
    found = held(store, user, only_session(store, user))
    assert [(message.role, message.text) for message in found] == TALK
    assert {message.source_kind for message in found} == {"import"}
    assert report.stored == 4
    assert len(report.skipped) == len(records) - 4
    if around == "side chain":
        assert [(s.line, "side chain" in s.reason) for s in report.skipped] == [(2, True), (3, True)]
    if around == "30 control records first":
        assert [s.line for s in report.skipped] == list(range(1, 31))
        assert "'summary'" in report.skipped[0].reason


def test_case_48_a_file_without_turns_is_named(store: MemoryStore, user: str, tmp_path: Path) -> None:
    folder = tmp_path / "talks"
    folder.mkdir()
    empty = written(folder / "a.jsonl", dumped(*CONTROL))
    written(folder / "b.jsonl", dumped(line(1)))
    report = import_jsonl(store, folder, user_id=user)
    assert (report.files, report.stored, report.empty_files) == (2, 1, (str(empty),))


def test_case_48_fields_are_kept(store: MemoryStore, user: str, tmp_path: Path) -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    records = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": calls,
            "usage": {"in": 3},
            "id": 7,
            "session": "s",
        },
        {"role": "tool", "content": "42", "tool_call_id": "c1", "name": "f", "session_id": "s"},
        {
            "role": "user",
            "content": "thanks",
            "meta": {"k": [1]},
            "sessionId": "s",
            "ts": "2026-01-15T08:00:00Z",
        },
        {
            "message": {"role": "system", "content": "be kind"},
            "session_key": "default:default:s",
            "task_id": "t",
        },
        {"role": "developer", "content": "", "conversation_id": "s"},
    ]
    report = import_jsonl(store, written(tmp_path / "t.jsonl", dumped(*records)), user_id=user)
    assert report.skipped == ()
    call, answer, thanks, system, developer = held(store, user, "default:default:s")
    assert (call.content, list(call.tool_calls), call.usage, call.client_id) == (None, calls, {"in": 3}, "7")
    assert (answer.tool_call_id, answer.name) == ("c1", "f")
    assert (thanks.meta, thanks.created_at) == ({"k": [1]}, datetime(2026, 1, 15, 8, tzinfo=UTC))
    assert (system.role, system.task_id, developer.task_id) == ("system", "t", None)


def test_case_48_a_missing_session_gives_a_stable_chat(store: MemoryStore, user: str, tmp_path: Path) -> None:
    records = [line(n, session=None) for n in range(1, 5)]
    path = written(tmp_path / "a.jsonl", dumped(*records))
    assert import_jsonl(store, path, user_id=user).stored == 4
    session = only_session(store, user)
    assert session.startswith("default:default:import-")
    assert len(session.rpartition("-")[2]) == 12
    moved = tmp_path / "elsewhere.jsonl"
    path.rename(moved)
    written(moved, dumped(CONTROL[0], *records, line(5, session=None)))
    assert import_jsonl(store, moved, user_id=user).stored == 1
    assert only_session(store, user) == session
    other = written(tmp_path / "b.jsonl", dumped(*records[1:]))
    assert import_jsonl(store, other, user_id=user).stored == 3
    assert len(store.sessions(Scope("default", user))) == 2


def test_the_callers_session_holds_all_lines(store: MemoryStore, user: str, tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.jsonl", dumped(line(1, session=None), line(2, session="x"), line(3, session="a:b"))
    )
    report = import_jsonl(store, path, user_id=user, session="coder:cli:one")
    assert report.skipped == ()
    assert len(texts(store, user, "coder:cli:one")) == 3


# --- 49: identity ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [True, False], ids=["with ids", "without ids"])
def test_case_49_again_moved_and_appended(store: MemoryStore, user: str, tmp_path: Path, ids: bool) -> None:
    def record(n: int) -> dict[str, object]:
        return line(n, id=f"m{n}" if ids else None)

    folder = tmp_path / "talks"
    (folder / "deep").mkdir(parents=True)
    written(folder / "a.jsonl", dumped(*(record(n) for n in range(1, 6))))
    written(folder / "deep" / "b.jsonl", dumped(*({**record(n), "session": "second"} for n in range(1, 4))))
    written(folder / "notes.txt", b"no transcript")

    def imported(where: Path) -> tuple[int, int]:
        report = import_jsonl(store, where, user_id=user)
        assert report.skipped == ()
        return report.stored, report.known

    assert imported(folder) == (8, 0)
    assert imported(folder) == (0, 8)
    moved = tmp_path / "archive"
    folder.rename(moved)
    assert imported(moved) == (0, 8)
    with (moved / "a.jsonl").open("ab") as stream:
        stream.write(dumped(record(6), record(7)))
    assert imported(moved) == (2, 8)
    assert texts(store, user) == [f"message {n} 内容" for n in range(1, 8)]


def test_case_49_the_same_words_twice_are_two_messages(store: MemoryStore, user: str, tmp_path: Path) -> None:
    said = [{"role": "user", "content": "好的", "session": "chat"}] * 3
    path = written(tmp_path / "t.jsonl", dumped(*said))
    assert import_jsonl(store, path, user_id=user).stored == 3
    written(path, dumped(*said, *said[:2]))
    report = import_jsonl(store, path, user_id=user)
    assert (report.stored, report.known) == (2, 3)
    assert texts(store, user) == ["好的"] * 5


def test_case_49_differing_tool_calls_are_differing_lines(
    store: MemoryStore, user: str, tmp_path: Path
) -> None:
    calls = [
        {"role": "assistant", "content": None, "session": "chat", "tool_calls": [{"id": n}]} for n in "ab"
    ]
    path = written(tmp_path / "t.jsonl", dumped(*calls))
    import_jsonl(store, path, user_id=user)
    ids = [message.client_id for message in held(store, user)]
    written(path, dumped(calls[1]))
    assert import_jsonl(store, path, user_id=user).known == 1
    assert len(set(ids)) == 2


def test_case_49_two_sessions_with_the_same_ids(store: MemoryStore, user: str, tmp_path: Path) -> None:
    records = [line(n, id=f"m{n}", session=s) for n in (1, 2) for s in ("one", "two")]
    report = import_jsonl(store, written(tmp_path / "t.jsonl", dumped(*records)), user_id=user)
    assert (report.stored, report.skipped) == (4, ())
    for session in ("one", "two"):
        assert texts(store, user, f"default:default:{session}") == ["message 1 内容", "message 2 内容"]


@pytest.mark.parametrize("apart", [0, BATCH_LINES + 10], ids=["one batch", "batches apart"])
def test_case_49_one_id_with_two_texts(store: MemoryStore, user: str, tmp_path: Path, apart: int) -> None:
    between = [line(n, id=f"n{n}") for n in range(apart)]
    records = [line(1, id="m"), *between, line(2, id="m"), line(1, id="m"), line(3, id="k")]
    path = written(tmp_path / "t.jsonl", dumped(*records))
    for stored, known in ((apart + 2, 1), (0, apart + 3)):
        report = import_jsonl(store, path, user_id=user)
        assert (report.stored, report.known) == (stored, known)
        assert [s.line for s in report.skipped] == [apart + 2]
        assert "'m' was used before" in report.skipped[0].reason
    assert texts(store, user)[0] == "message 1 内容"
    assert texts(store, user)[-1] == "message 3 内容"


def test_case_49_two_users_have_their_own_copies(store: MemoryStore, user: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", dumped(line(1, id="m1"), line(2)))
    other = f"{user}-other"
    assert [import_jsonl(store, path, user_id=u).stored for u in (user, other, user, other)] == [2, 2, 0, 0]
    assert texts(store, user) == texts(store, other) == ["message 1 内容", "message 2 内容"]


def test_case_49_counting_is_per_user(store: MemoryStore, user: str, tmp_path: Path) -> None:
    """A file of two users, imported whole and then for one of them, is the same messages."""
    words = {"role": "user", "content": "好的", "session": "chat"}
    owners = [user, f"{user}-b", user]
    path = written(tmp_path / "t.jsonl", dumped(*({**words, "user_id": owner} for owner in owners)))
    assert import_jsonl(store, path).stored == 3
    report = import_jsonl(store, path, user_id=user)
    assert (report.stored, report.known, [s.line for s in report.skipped]) == (0, 2, [2])


def test_a_change_of_task_keeps_the_order(store: MemoryStore, user: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", dumped(*(line(n, task_id=f"t{n % 2}") for n in range(1, 8))))
    assert import_jsonl(store, path, user_id=user).stored == 7
    assert texts(store, user) == [f"message {n} 内容" for n in range(1, 8)]


def test_sessions_in_turns_keep_their_order(store: MemoryStore, user: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", dumped(*(line(n, session=f"s{n % 3}") for n in range(30))))
    assert import_jsonl(store, path, user_id=user).stored == 30
    for rest in range(3):
        assert texts(store, user, f"default:default:s{rest}") == [
            f"message {n} 内容" for n in range(rest, 30, 3)
        ]


# --- whose lines -----------------------------------------------------------------------------------------------


def test_a_line_of_another_scope_is_skipped(store: MemoryStore, user: str, tmp_path: Path) -> None:
    records = [
        line(1),
        line(2, user_id="someone else"),
        line(3, user_id=user),
        line(4, team_id="rivals"),
        line(5, agent_id="writer"),
        line(6, task_id="t2"),
        line(7, session="writer:cli:x"),
    ]
    path = written(tmp_path / "t.jsonl", dumped(*records))
    report = import_jsonl(store, path, team_id="ours", user_id=user, agent_id="coder", task_id="t1")
    assert [s.line for s in report.skipped] == [2, 4, 5, 6, 7]
    assert "'someone else'" in report.skipped[0].reason
    stored = store.messages(Scope("ours", user), "coder:default:chat")
    assert [(m.text, m.agent_id, m.task_id) for m in stored] == [
        ("message 1 内容", "coder", "t1"),
        ("message 3 内容", "coder", "t1"),
    ]
    assert store.count(Scope("default", "someone else"))["messages"] == 0


def test_lines_say_whose_they_are_where_the_caller_does_not(
    store: MemoryStore, user: str, tmp_path: Path
) -> None:
    records = [
        line(1, user_id=user, team_id=f"team-{user}", agent_id="writer"),
        line(2, user_id=user),
        line(3),
        line(4, user_id=" blank "),
        line(5, user_id=user, session="coder:cli:x:y"),
    ]
    report = import_jsonl(store, written(tmp_path / "t.jsonl", dumped(*records)))
    assert [s.line for s in report.skipped] == [3, 4]
    assert "user_id" in report.skipped[0].reason
    assert len(store.messages(Scope(f"team-{user}", user), "writer:default:chat")) == 1
    assert texts(store, user) == ["message 2 内容"]
    assert texts(store, user, "coder:cli:x:y") == ["message 5 内容"]


def test_lines_of_a_user_who_may_not_join_are_reported(store: MemoryStore, user: str, tmp_path: Path) -> None:
    team = f"closed-{user}"
    store.record(Scope(team, user), [Message("user", "first")], "coder:cli:x")
    close = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('UPDATE teams SET auto_join = 0 WHERE team_id = ?', sys.argv[2:]); db.commit()"
    subprocess.run([sys.executable, "-c", close, str(store.path), team], check=True)
    path = written(
        tmp_path / "t.jsonl", dumped(*(line(n, user_id=user if n % 2 else "stranger") for n in range(4)))
    )
    report = import_jsonl(store, path, team_id=team)
    assert [s.line for s in report.skipped] == [1, 3]
    assert "not a member" in report.skipped[0].reason
    assert report.stored == 2


@pytest.mark.parametrize("wrong", [{"user_id": ""}, {"team_id": " x"}, {"agent_id": ""}, {"session": "a:b"}])
def test_what_the_caller_gets_wrong_is_raised_at_once(
    store: MemoryStore, tmp_path: Path, wrong: dict[str, str]
) -> None:
    path = written(tmp_path / "t.jsonl", dumped(line(1)))
    with pytest.raises(InvalidInput):
        import_jsonl(store, path, **{"user_id": "nobody", **wrong})
    assert store.sessions(Scope("default", "nobody")) == []


def test_nothing_to_import_is_an_error(store: MemoryStore, tmp_path: Path) -> None:
    for path in (tmp_path / "missing.jsonl", tmp_path, Path("/dev/null"), "a\0b"):
        with pytest.raises(InvalidInput):
            import_jsonl(store, path, user_id="nobody")


# --- 50: large files -------------------------------------------------------------------------------------------


def big(path: Path, count: int) -> Path:
    """Lines of 1 KB, most of it where no words are cut: this is about the importer."""
    with path.open("wb") as stream:
        for n in range(count):
            record = {"role": "user", "content": f"row {n}", "session": "chat", "meta": {"pad": "x" * 930}}
            stream.write(dumped(record))
    return path


class Killed(Exception):
    pass


def test_case_50_a_killed_import_goes_on(store: MemoryStore, user: str, tmp_path: Path) -> None:
    path = big(tmp_path / "big.jsonl", 3_000)
    seen: list[tuple[int, int]] = []

    def kill(done: int, total: int) -> None:
        seen.append((done, total))
        if done * 2 > total:
            raise Killed

    with pytest.raises(Killed):
        import_jsonl(store, path, user_id=user, progress=kill)
    arrived = store.count(Scope("default", user))["messages"]
    assert 1_000 <= arrived <= 2_500
    assert arrived % BATCH_LINES == 0

    seen.clear()
    report = import_jsonl(store, path, user_id=user, progress=lambda *step: seen.append(step))
    assert (report.known, report.stored, report.skipped) == (arrived, 3_000 - arrived, ())
    assert store.count(Scope("default", user))["messages"] == 3_000
    assert [text.split()[1] for text in texts(store, user)] == [str(n) for n in range(3_000)]
    assert seen == sorted(seen)
    assert len(seen) >= 3_000 // BATCH_LINES
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


def test_case_50_embedding_stays_in_batches(tmp_path: Path) -> None:
    embedder = HashEmbedder()
    with MemoryStore(
        tmp_path / "m.db", embedder, ManualClock(NOW), Settings(timezone="UTC", durability="process")
    ) as store:
        report = import_jsonl(store, big(tmp_path / "big.jsonl", 1_000), user_id="u")
        assert (report.stored, embedder.document_calls) == (1_000, 0)
        store.index()
        assert embedder.document_texts == 1_000
        assert embedder.document_calls <= 100


# --- 52: times -------------------------------------------------------------------------------------------------

EIGHT = datetime(2026, 1, 15, 8, tzinfo=UTC)


@pytest.mark.parametrize("key", ["created_at", "timestamp", "ts", "time", "date"])
@pytest.mark.parametrize(
    ("value", "instant"),
    [
        ("2026-01-15T08:00:00Z", EIGHT),
        ("2026-01-15T16:00:00+08:00", EIGHT),
        (1_768_464_000, EIGHT),
        (1_768_464_000_000, EIGHT),
        ("1768464000", EIGHT),
        ("1768464000000", EIGHT),
        (1_768_464_000.0, EIGHT),
        ("2026-01-15T16:00:00", EIGHT),  # the store's zone is Asia/Shanghai
        ("2026-01-15", datetime(2026, 1, 14, 16, tzinfo=UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (-86_400, datetime(1969, 12, 31, tzinfo=UTC)),
        ("9999-12-31T23:59:59Z", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (None, NOW),
    ],
)
def test_case_52_times(
    store: MemoryStore, user: str, tmp_path: Path, key: str, value: object, instant: datetime
) -> None:
    record = {"role": "user", "content": "什么时候", "session": "chat", key: value}
    report = import_jsonl(store, written(tmp_path / "t.jsonl", dumped(record)), user_id=user)
    assert report.skipped == ()
    (message,) = held(store, user)
    assert message.created_at == instant
    for bounds in ({"since": "2026-01-15"}, {"until": "9999-12-31T23:59:59Z"}, {"since": 0}, {"until": -1}):
        store.search_messages(Scope("default", user), "时候", **bounds)


@pytest.mark.parametrize(
    "value",
    [
        "yesterday",
        "",
        "2026-13-01",
        True,
        [2026],
        {"at": 1},
        10**30,
        "9" * 400,
        "9" * 400 + ".0",
        "0001-01-01T00:00:00",
    ],
)
def test_case_52_bad_times_are_reported_by_line(
    store: MemoryStore, user: str, tmp_path: Path, value: object
) -> None:
    path = written(tmp_path / "t.jsonl", dumped(line(1), line(2, created_at=value), line(3)))
    report = import_jsonl(store, path, user_id=user)
    assert [s.line for s in report.skipped] == [2]
    assert texts(store, user) == ["message 1 内容", "message 3 内容"]


def test_case_52_null_is_passed_over_for_the_next_name(store: MemoryStore, user: str, tmp_path: Path) -> None:
    record = line(1, created_at=None, timestamp="2026-01-15T08:00:00Z")
    import_jsonl(store, written(tmp_path / "t.jsonl", dumped(record)), user_id=user)
    assert held(store, user)[0].created_at == EIGHT


# --- 70: session keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "session", ["../../etc/x", "/etc/x", "a:b", "C:\\x", ".", "..", "x" * 300, "a\0b", " a", "::", "a/../b"]
)
def test_case_70_refused_session_keys_are_reported(
    store: MemoryStore, user: str, tmp_path: Path, session: str
) -> None:
    path = written(tmp_path / "t.jsonl", dumped(line(1), line(2, session=session), line(3)))
    report = import_jsonl(store, path, user_id=user)
    assert [s.line for s in report.skipped] == [2]
    assert "session key" in report.skipped[0].reason
    assert len(texts(store, user)) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["t.jsonl"]


@pytest.mark.parametrize("session", ["a/b", "a_b", "CON", "会话一", 17, "coder:cli:a:b"])
def test_case_70_accepted_session_keys_read_back(
    store: MemoryStore, user: str, tmp_path: Path, session: object
) -> None:
    names = ["a/b", "a_b", "CON", "会话一", 17, "coder:cli:a:b"]
    path = written(
        tmp_path / "t.jsonl", dumped(*(line(1, session=name, content=f"in {name}") for name in names))
    )
    report = import_jsonl(store, path, user_id=user)
    assert report.skipped == ()
    key = str(session) if ":" in str(session) else f"default:default:{session}"
    assert texts(store, user, key) == [f"in {session}"]


def test_case_70_a_hostile_file_name_is_shown_escaped(store: MemoryStore, user: str, tmp_path: Path) -> None:
    path = written(tmp_path / "a\nb\x1b[31m\udcff.jsonl", b"{")
    report = import_jsonl(store, path, user_id=user)
    (skipped,) = report.skipped
    assert skipped.file == f"{tmp_path}/a\\nb\\x1b[31m\\udcff.jsonl"
    skipped.file.encode()
