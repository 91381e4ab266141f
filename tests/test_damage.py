"""Damage of the file, page by page: what is wrong is found, what is derived is mended, and no row is ever touched.

SQLite keeps no checksums of pages, so that a changed byte is met by no error of its own.
"""

# ruff: noqa: S311 - seeded chance

import os
import random
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from memstore.config import Settings
from memstore.errors import StoreUnsound
from memstore.fallback import folder_of
from memstore.storage.sqlite.log_check import check_log
from memstore.store import MemoryStore
from memstore.testing import HashEmbedder, ManualClock
from memstore.types import DoctorReport, Message, Scope
from reliability_support import SCOPE, START, dump, file_hashes, report_of, say

DAMAGES = int(os.environ.get("MEMSTORE_TEST_DAMAGES", "120"))
"""In full: 1,000."""
FIRST_SEED = int(os.environ.get("MEMSTORE_TEST_SEED", "0"))
PAGE = 8192
OTHER = Scope("team two", "zoe", "agent")
QUIET = Settings(timezone="UTC", durability="process", reserve_bytes=0)


def opened(path: Path) -> MemoryStore:
    return MemoryStore(path, HashEmbedder(16), ManualClock(START), QUIET)


def fill(store: MemoryStore) -> None:
    """Rows in every table, and more than one page of most."""
    for scope in (SCOPE, OTHER):
        for chat in range(8):
            said = [f"message {n} of chat {chat}: 银行卡 build-x{n} " * (1 + n % 3) for n in range(8)]
            say(store, *said, session=f"agent:chat:{chat}", scope=scope)
        say(store, "long " * 4_000, session="agent:chat:long", scope=scope)
        blocks = [
            {"type": "text", "text": "in blocks"},
            {"type": "image_url", "image_url": {"url": "data:,x"}},
        ]
        store.record(
            scope,
            [
                Message("user", blocks, id="c1", meta={"a": 1}),
                Message("tool", "done", tool_call_id="x", usage={"t": 3}),
            ],
            "agent:chat:blocks",
        )
        store.record(scope, [Message("user", "one"), Message("assistant", "two")], "agent:chat:fork")
        store.record(
            scope, [Message("user", "one"), Message("assistant", "three")], "agent:chat:fork", transcript=True
        )
        kept = [store.add(scope, f"memory {n} 宠物 " * (1 + n % 5), metadata={"n": n}).id for n in range(25)]
        store.update(scope, kept[0], content="memory changed")
        store.delete(scope, kept[5])
        store.clear_session(scope, "agent:chat:1")
        store.delete_session(scope, "agent:chat:2")
        store.set_session(scope, "agent:chat:3", title="标题", pinned=True)
        store.add_words(scope, ["量子纠缠态"])
        store.recall(scope, "memory", trace=True)
    store.index()


@dataclass(frozen=True)
class Sound:
    """A store before it is damaged. ``owners`` says whose each page is."""

    path: Path
    data: bytes
    rows: dict[str, object]
    vectors: dict[str, object]
    answers: list
    owners: dict[str, list[int]]


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Sound:
    path = tmp_path_factory.mktemp("sound") / "store.db"
    with MemoryStore(path, HashEmbedder(8, model="earlier"), ManualClock(START), QUIET) as store:
        fill(store)
    with opened(path) as store:
        store.reindex()  # the earlier model's vectors stay, retired
        assert complaints(store.doctor(full=True)) == []
        found = answers(store)
    rows, vectors = contents_of(path)
    owners: dict[str, list[int]] = {"header": [1], "free": []}
    connection = immutable(path)
    for name, page in connection.execute("SELECT name, pageno FROM dbstat ORDER BY pageno").fetchall():
        owners.setdefault(name, []).append(page)
    connection.close()
    data = path.read_bytes()
    used = {page for pages in owners.values() for page in pages}
    owners["free"] = [page for page in range(2, len(data) // PAGE + 1) if page not in used] or [2]
    return Sound(path, data, rows, vectors, found, owners)


def immutable(path: Path) -> apsw.Connection:
    """Looks at a file that nobody has open, as it is, without its log."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return apsw.Connection(f"file:{path}?immutable=1", flags=flags)


def contents_of(path: Path) -> tuple[dict[str, object], dict[str, object]]:
    """(rows of what is canonical, vectors) by table; of a table that cannot be read, what SQLite says."""
    connection = immutable(path)
    try:
        try:
            names = [
                name
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'text!_%' ESCAPE '!'"
                    " AND name NOT IN ('sqlite_sequence', 'sqlite_stat1', 'sqlite_stat4', 'pending_vectors', 'jobs',"
                    " 'fallback_days')"
                ).fetchall()
            ]
        except (apsw.Error, UnicodeDecodeError) as error:
            return {"sqlite_schema": repr(error)}, {}
        found: dict[str, object] = {}
        for name in names:
            try:
                found[name] = sorted(connection.execute(f"SELECT * FROM {name} NOT INDEXED"), key=repr)
            except (apsw.Error, UnicodeDecodeError) as error:
                found[name] = repr(error)
    finally:
        connection.close()
    vectors = {name: rows for name, rows in found.items() if name.startswith("vectors_")}
    return {name: rows for name, rows in found.items() if name not in vectors}, vectors


def answers(store: MemoryStore) -> list:
    return [
        [(hit.id, hit.score, hit.content) for hit in ask(scope, query, 15)]
        for scope in (SCOPE, OTHER)
        for ask in (store.recall, store.search_messages)
        for query in ("memory 宠物", "message 7 build-x3", "long")
    ]


def complaints(report: DoctorReport) -> list[tuple[str, str, str | None]]:
    return [(f.check, f.severity, f.repair) for f in report.findings if f.severity != "info"]


# --- R8: seeded damages -------------------------------------------------------------------------------------


def zero_page(rng: random.Random, data: bytearray, at: int) -> None:
    data[at : at + PAGE] = bytes(PAGE)


def random_page(rng: random.Random, data: bytearray, at: int) -> None:
    data[at : at + PAGE] = rng.randbytes(PAGE)


def one_bit(rng: random.Random, data: bytearray, at: int) -> None:
    data[used_byte(rng, data, at)] ^= 1 << rng.randrange(8)


def some_bits(rng: random.Random, data: bytearray, at: int) -> None:
    for _ in range(8):
        data[used_byte(rng, data, at)] ^= 1 << rng.randrange(8)


def a_run(rng: random.Random, data: bytearray, at: int) -> None:
    start = at + rng.randrange(PAGE - 64)
    data[start : start + 64] = rng.randbytes(64)


def page_header(rng: random.Random, data: bytearray, at: int) -> None:
    data[at + rng.randrange(12)] ^= 1 << rng.randrange(8)


def another_page(rng: random.Random, data: bytearray, at: int) -> None:
    source = rng.randrange(len(data) // PAGE) * PAGE
    data[at : at + PAGE] = data[source : source + PAGE]


def cut_short(rng: random.Random, data: bytearray, at: int) -> None:
    del data[len(data) - rng.choice((1, 100, PAGE, 3 * PAGE)) :]


KINDS = (zero_page, random_page, one_bit, one_bit, some_bits, a_run, page_header, another_page)


def used_byte(rng: random.Random, data: bytearray, at: int) -> int:
    """A byte that holds something: a changed one in the empty middle of a page changes nothing."""
    filled = [place for place in range(at, min(at + PAGE, len(data))) if data[place]]
    return rng.choice(filled) if filled else at


def copied(sound: Sound, folder: Path, data: bytes) -> Path:
    path = folder / "store.db"
    path.write_bytes(data)
    path.chmod(0o600)
    shutil.copytree(folder_of(sound.path), folder_of(path))
    folder_of(path).chmod(0o700)
    return path


def damaged_by(sound: Sound, seed: int) -> tuple[bytes, str]:
    rng = random.Random(seed)
    data = bytearray(sound.data)
    owners = sorted(sound.owners)
    random.Random(0).shuffle(owners)  # so that any run of seeds meets tables of every kind
    owner = owners[seed % len(owners)]
    if seed % 29 == 28:
        owner, kind = "end", cut_short
        kind(rng, data, 0)
    else:
        kind = rng.choice(KINDS)
        kind(rng, data, (rng.choice(sound.owners[owner]) - 1) * PAGE)
    return bytes(data), f"seed {seed}: {kind.__name__} in {owner}"


def test_every_damage_is_found_and_what_is_derived_is_mended(sound, tmp_path):
    """N: MEMSTORE_TEST_DAMAGES seeds, one damage each, spread over every table and index."""
    wrong_rows = wrong_vectors = mended = refused = 0
    for seed in range(FIRST_SEED, FIRST_SEED + DAMAGES):
        data, label = damaged_by(sound, seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = copied(sound, folder, data)
        rows, vectors = contents_of(path)
        report = MemoryStore.examine(path, HashEmbedder(16), ManualClock(START), QUIET, full=True)
        found = complaints(report)
        label += f" {found}"
        if not report.ok and "fallback_days" not in label:  # opening settles those with the day files
            assert path.read_bytes() == data, f"{label}: looking wrote into the file"
        if rows != sound.rows:
            wrong_rows += 1
            assert not report.ok, f"{label}: wrong rows were called good"
            assert {check for check, severity, _ in found if severity == "error"} & {
                "open", "tables", "constraints",
            }, label  # fmt: skip
        elif vectors != sound.vectors:
            wrong_vectors += 1
            assert {check for check, *_ in found} & {"vectors", "open", "tables", "constraints"}, (
                f"{label}: wrong vectors were called good"
            )
        if not found:
            with opened(path) as store:
                assert answers(store) == sound.answers, f"{label}: wrong answers were called good"
        refused += found[:1] != [] and found[0][0] == "open"
        if found and {repair for *_, repair in found} <= {"memstore reindex", "memstore vacuum"}:
            mended += 1
            check_mended(sound, path, label, times=1 + (mended % 4 == 0))
        shutil.rmtree(folder)
    assert wrong_rows > DAMAGES // 10
    assert wrong_vectors > DAMAGES // 80
    assert mended > DAMAGES // 10
    assert refused > DAMAGES // 60


def check_mended(sound: Sound, path: Path, label: str, times: int) -> None:
    with opened(path) as store:
        for _ in range(times):
            store.reindex()
            assert complaints(store.doctor(full=True)) == [], label
            assert answers(store) == sound.answers, label
    assert contents_of(path)[0] == sound.rows, f"{label}: mending touched the rows"


# --- R20: what is derived and what it is derived from part --------------------------------------------------


def statements_of(rng: random.Random, store: MemoryStore) -> list[tuple[str, tuple]]:
    """Up to five divergences at random places, each as a statement."""
    with store._storage.read() as reader:
        texts = [name for (name,) in reader._rows("SELECT table_name FROM text_indexes ORDER BY 1")]
        held = {name: [slot for (slot,) in reader._rows(f"SELECT rowid FROM {name}")] for name in texts}
        vectors = [f"vectors_2_{layer}" for layer in ("messages", "memories")]
        slots = {name: [slot for (slot,) in reader._rows(f"SELECT slot FROM {name}")] for name in vectors}
    text, vector = rng.choice(texts), rng.choice(vectors)
    one, two, three = rng.sample(slots[vector], 3)
    stray = max(slots[vector]) + rng.randint(1, 99)
    kinds = [
        (f"DELETE FROM {text} WHERE rowid = ?", (rng.choice(held[text]),)),
        (f"INSERT INTO {text} (rowid, words, literal) VALUES (?, 'stray', 'stray')", (max(held[text]) + rng.randint(1, 99),)),
        (f"UPDATE {text} SET literal = literal || ' stray' WHERE rowid = ?", (rng.choice(held[text]),)),
        (f"DELETE FROM {vector} WHERE slot = ?", (one,)),
        (f"INSERT INTO {vector} SELECT ?, vector, checksum FROM {vector} WHERE slot = ?", (stray, two)),
        (  # a stale embedding: another row's, with its checksum
            f"UPDATE {vector} SET (vector, checksum) = (SELECT vector, checksum FROM {vector} WHERE slot = ?) WHERE slot = ?",
            (two, three),
        ),
        ("INSERT INTO pending_vectors (generation, layer, slot) VALUES (?, 'messages', ?)", (rng.choice((0, 1, 2, 9)), stray)),
    ]  # fmt: skip
    return rng.sample(kinds, rng.randint(1, 5))


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + max(10, DAMAGES // 10)))
def test_every_divergence_is_found_and_mended_once_and_for_all(sound, tmp_path, seed):
    """R20. N: 12 seeds of up to five divergences; a tenth of MEMSTORE_TEST_DAMAGES in the long form."""
    path = copied(sound, tmp_path, sound.data)
    rng = random.Random(seed)
    with opened(path) as store:
        parted = statements_of(rng, store)
        with store._storage.exclusive_connection() as connection:
            for statement, bindings in parted:
                connection.execute(statement, bindings).fetchall()
        found = store.doctor(full=True)
        touched = {name for name in ("text_", "vectors_", "pending") for s, _ in parted if f" {name}" in s}
        said = [f.message for f in found.findings if f.severity != "info"]
        for name in touched:
            assert any(("waiting list" if name == "pending" else name) in message for message in said), (
                said,
                parted,
            )
        assert {repair for *_, repair in complaints(found)} == {"memstore reindex"}
        for _ in range(2):
            store.reindex()
            assert complaints(store.doctor(full=True)) == []
            assert answers(store) == sound.answers
    assert contents_of(path)[0] == sound.rows


# --- case 63 ------------------------------------------------------------------------------------------------


def overwritten(sound: Sound, folder: Path, *tables: str) -> Path:
    """A copy in which the pages of these tables hold anything."""
    data = bytearray(sound.data)
    for table in tables:
        for page in sound.owners[table]:
            random_page(random.Random(page), data, (page - 1) * PAGE)
    return copied(sound, folder, bytes(data))


@pytest.mark.parametrize(
    "tables",
    [
        ("text_messages_1_data",),
        (
            "text_messages_1_content",
            "text_messages_1_idx",
            "text_messages_1_docsize",
            "text_messages_1_config",
        ),
        ("vectors_2_messages",),
        ("vectors_2_memories", "text_memories_2_data", "vectors_1_messages"),
    ],
    ids=["one shadow table", "the others", "vectors", "several"],
)
def test_wrecked_indexes_are_made_anew_from_the_rows(sound, tmp_path, tables):
    path = overwritten(sound, tmp_path, *tables)
    before = MemoryStore.examine(path, HashEmbedder(16), ManualClock(START), QUIET)
    assert not before.ok
    assert {repair for _, severity, repair in complaints(before) if severity == "error"} == {
        "memstore reindex"
    }
    with opened(path) as store:
        counted = store.count(SCOPE), store.count(OTHER)
        for _ in range(2):
            store.reindex()
            assert complaints(store.doctor(full=True)) == []
            assert (store.count(SCOPE), store.count(OTHER)) == counted
            assert answers(store) == sound.answers
    assert contents_of(path)[0] == sound.rows


def test_what_can_still_be_read_of_a_damaged_vector_table_needs_no_model(sound, tmp_path):
    data = bytearray(sound.data)
    pages = sound.owners["vectors_2_messages"]
    zero_page(random.Random(0), data, (pages[-1] - 1) * PAGE)
    path = copied(sound, tmp_path, bytes(data))
    with MemoryStore(path, None, ManualClock(START), QUIET) as store:
        report = store.reindex()
        assert 0 < report.pending < len(sound.vectors["vectors_2_messages"])
        with store._storage.read() as reader:
            kept = reader._rows("SELECT * FROM vectors_2_messages")
        assert set(kept) < set(sound.vectors["vectors_2_messages"])
        assert len(kept) == len(sound.vectors["vectors_2_messages"]) - report.pending
    with opened(path) as store:
        assert store.index().embedded == report.pending
        assert complaints(store.doctor(full=True)) == []
        assert answers(store) == sound.answers
    assert sorted(contents_of(path)[1]["vectors_2_messages"]) == sorted(sound.vectors["vectors_2_messages"])


def test_pages_that_lead_into_the_rows_do_not_take_them_along(sound, tmp_path):
    """An overflow pointer of a text index that leads into a message: dropping the index by its pages would free the
    message's."""
    data = bytearray(sound.data)
    connection = immutable(sound.path)
    overflow = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'overflow' ORDER BY path DESC LIMIT 1"
    theirs = connection.execute(overflow, ("messages",)).fetchall()[0][0]
    leaf = connection.execute(
        "SELECT pageno FROM dbstat WHERE name = 'text_messages_1_content' AND pagetype = 'leaf' AND ncell > 0"
        " AND pageno IN (SELECT pageno FROM dbstat WHERE name = 'text_messages_1_content' AND pagetype = 'leaf')"
    ).fetchall()
    mine = connection.execute(
        "SELECT pageno FROM dbstat WHERE name = 'text_messages_1_content' AND pagetype = 'overflow' ORDER BY path"
    ).fetchall()
    connection.close()
    pointers = {page for (page,) in mine}
    for (page,) in leaf:  # the pointer to the first overflow page stands at a cell's end
        at = (page - 1) * PAGE
        for place in range(at, at + PAGE - 3):
            if int.from_bytes(data[place : place + 4]) in pointers and mine[0][0] == int.from_bytes(
                data[place : place + 4]
            ):
                data[place : place + 4] = theirs.to_bytes(4)
    assert bytes(data) != sound.data
    path = copied(sound, tmp_path, bytes(data))
    with opened(path) as store:
        assert not store.doctor().ok
        store.reindex()
        assert complaints(store.doctor(full=True)) == []
        assert answers(store) == sound.answers
    assert contents_of(path)[0] == sound.rows


def test_damaged_rows_are_an_error_and_reindex_changes_nothing(sound, tmp_path):
    path = overwritten(sound, tmp_path, "messages_arrival", "text_messages_1_data")
    before = file_hashes(tmp_path)
    report = MemoryStore.examine(path, None, ManualClock(START), QUIET, full=True)
    assert [(check, severity) for check, severity, _ in complaints(report)] == [("tables", "error")]
    assert complaints(report)[0][2].endswith(f"memstore recover --db {path}")
    assert report.counts == {}
    with pytest.raises(StoreUnsound, match="damaged in its rows"), opened(path) as store:
        store.reindex()
    assert file_hashes(tmp_path) == before
    MemoryStore.recover(path, tmp_path / "new.db", settings=QUIET)
    with (
        opened(tmp_path / "new.db") as store,
        opened(copied(sound, made(tmp_path / "sound"), sound.data)) as whole,
    ):
        assert [f for f in store.doctor(full=True).findings if f.severity == "error"] == []
        assert dump(store) == dump(whole)


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_page_that_belongs_to_no_table_is_named_and_vacuumed_away(sound, tmp_path):
    """The list of free pages is cut: its pages are lost to the file, and no row is concerned."""
    path = tmp_path / "store.db"
    with opened(path) as store:
        fill_a_little(store)
        with store._storage.exclusive_connection() as connection:
            connection.execute("CREATE TABLE filler (x)").fetchall()
            connection.execute("INSERT INTO filler VALUES (zeroblob(200000))").fetchall()
            connection.execute("DROP TABLE filler").fetchall()
    data = bytearray(path.read_bytes())
    assert data[32:36] != bytes(4)
    data[32:40] = bytes(8)
    path.write_bytes(bytes(data))
    with opened(path) as store:
        rows = dump(store)
        assert complaints(store.doctor()) == [("free pages", "error", "memstore vacuum")]
        store.vacuum()
        assert complaints(store.doctor(full=True)) == []
        assert dump(store) == rows


def fill_a_little(store: MemoryStore) -> None:
    say(store, *(f"message {n} 银行卡" for n in range(20)))
    store.add(SCOPE, "a memory")
    store.index()


# --- the log ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> tuple[Path, list[dict]]:
    """A store whose process died with everything still in the log, and what it held after each acknowledged change."""
    path = tmp_path_factory.mktemp("killed") / "store.db"
    opened(path).close()

    def work(report) -> None:
        store = MemoryStore(path, None, ManualClock(START), QUIET)
        kept: list[str] = []
        for number in range(12):
            say(store, f"message {number}")
            kept.append(store.add(SCOPE, f"memory {number}").id)
            report(memories_of(store))
            if number % 3 == 2:
                store.delete(SCOPE, kept.pop(0))
                report(memories_of(store))
        os._exit(9)

    code, states = report_of(work)
    assert code == 9
    assert Path(f"{path}-wal").stat().st_size > 20 * PAGE
    return path, states


def memories_of(store: MemoryStore) -> dict[str, str]:
    return {memory.id: memory.content for memory in store.get_all(SCOPE, limit=100)}


def test_a_damaged_log_loses_no_message_and_nothing_in_silence(killed, tmp_path):
    """N: 20 seeds, a sixth of MEMSTORE_TEST_DAMAGES in the long form."""
    source, states = killed
    log = Path(f"{source}-wal").read_bytes()
    sound = {tuple(sorted(state.items())) for state in [{}, *states]}
    short = told = 0
    for seed in range(FIRST_SEED, FIRST_SEED + max(20, DAMAGES // 6)):
        rng = random.Random(seed)
        data = bytearray(log)
        kind = rng.choice((zero_page, random_page, one_bit, some_bits, a_run))
        if seed:  # the first is not damaged
            kind(rng, data, rng.randrange(len(data) - PAGE))
        folder = made(tmp_path / str(seed))
        path = folder / "store.db"
        path.write_bytes(source.read_bytes())
        Path(f"{path}-wal").write_bytes(data)
        shutil.copytree(folder_of(source), folder_of(path))
        report = MemoryStore.examine(path, None, ManualClock(START), QUIET, full=True)
        named = [f for f in report.findings if f.check == "log"]
        told += bool(named)
        assert bool(named) == (bytes(data) != log), f"seed {seed}: {kind.__name__}"
        with MemoryStore(path, None, ManualClock(START), QUIET) as store:
            assert [m.text for m in store.messages(SCOPE, "agent:chat:one")] == [
                f"message {n}" for n in range(12)
            ]
            found = memories_of(store)
            assert all("compare with the last backup" in f.message for f in named)
            assert report.ok, f"seed {seed}: {complaints(report)}"
            assert tuple(sorted(found.items())) in sound, f"seed {seed}: no state that ever was"
            short += found != states[-1]
        shutil.rmtree(folder)
    assert short > 5
    assert told >= short


def test_a_log_that_others_write_is_not_taken_for_damaged(tmp_path):
    """N: 60 looks while another thread writes."""
    path = tmp_path / "store.db"
    with MemoryStore(path, None, ManualClock(START), QUIET) as store:
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                say(store, "again")

        thread = threading.Thread(target=write)
        thread.start()
        try:
            found = [check_log(path) for _ in range(60)]
        finally:
            stop.set()
            thread.join()
        assert found == [[]] * 60
        assert check_log(tmp_path / "no such.db") == []
