"""Many writers on one file: nothing lost, nothing twice, order kept, no error shown (CASES: database is locked)."""

import json
import threading
from collections import Counter, defaultdict
from pathlib import Path

from memstore.store import MemoryStore
from memstore.types import Scope
from reliability_support import (
    CALLS,
    PROCESSES,
    SHARED,
    THREADS,
    assert_sound,
    dump,
    finish_child,
    message_lines,
    open_store,
    run_threads,
    start_child,
    write_all,
)

# N: 8 processes of 2 threads, each thread 30 record() calls: 480 calls, 576 messages; 200 calls of each, 3,840 messages,
# by MEMSTORE_TEST_CALLS=200


def check_all(store: MemoryStore, path: Path, folder: Path, writers: int) -> None:
    acked = {
        w: [json.loads(line) for line in (folder / f"{w}.acked").read_text().splitlines()]
        for w in range(writers)
    }
    assert all(len(calls) == CALLS for calls in acked.values())
    ids = [one for calls in acked.values() for _, given, _ in calls for one in given]
    rows = dump(store)["messages"]
    assert Counter(row["id"] for row in rows) == Counter(ids), "0 lost, 0 twice, 0 that no one was told of"
    place = {row["id"]: row for row in rows}
    for calls in acked.values():
        last = defaultdict(int)
        for session, given, said in calls:
            positions = [place[one]["pos"] for one in given]
            assert [json.loads(place[one]["content"]) for one in given] == said
            assert positions == list(range(positions[0], positions[0] + len(positions))), (
                "one call stays together"
            )
            assert positions[0] > last[session], "each writer's order"
            last[session] = positions[-1]
    numbers, positions = defaultdict(list), defaultdict(list)
    for row in rows:
        numbers[row["user_id"]].append(row["arrival"])
        positions[row["user_id"], row["session"]].append(row["pos"])
    for given in [*numbers.values(), *positions.values()]:
        assert sorted(given) == list(range(1, len(given) + 1)), "no gap, no repeat"
    lines = message_lines(path)
    assert Counter(line["id"] for line in lines) == Counter(ids)
    assert {line["id"]: (line["pos"], line["arrival"]) for line in lines} == {
        row["id"]: (row["pos"], row["arrival"]) for row in rows
    }
    assert_sound(store)


def test_eight_processes_of_two_threads_beside_a_snapshot_and_maintenance(tmp_path):
    """A ninth process holds a snapshot and searches, a tenth runs reindex, doctor and index over and over. No writer is
    shown that the file was busy: an error of any kind ends it, and the test."""
    path = tmp_path / "store.db"
    open_store(path).close()
    reader, keeper = start_child("child_read", path), start_child("child_maintain", path)
    children = [start_child("child_write", path, process, tmp_path) for process in range(PROCESSES)]
    for child in [*children, reader, keeper]:
        assert child.stdout.readline() == "ready\n", child.communicate()[1]
    for child in [*children, keeper]:  # all are open; now they begin
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        finish_child(child)
    searches, seen = json.loads(finish_child(reader, "stop\n"))
    assert searches > 0
    assert seen > 0
    assert int(finish_child(keeper, "stop\n")) > 0
    with open_store(path) as store:
        assert store.adopted == 0
        check_all(store, path, tmp_path, PROCESSES * THREADS)


def test_threads_of_one_store_and_of_two_stores_on_one_file(tmp_path):
    path = tmp_path / "store.db"
    writers = 12  # N: 360 record() calls; half by one store object, half by another of the same process
    done = threading.Event()
    with open_store(path, durability="process") as one, open_store(path, durability="process") as two:

        def read(store: MemoryStore) -> None:
            seen = 0
            while not done.is_set():
                found = store.messages(Scope("team", "u1", "agent"), SHARED)
                assert [m.position for m in found] == list(range(1, len(found) + 1))
                assert len(found) >= seen
                seen = len(found)
                assert not store.search_messages(Scope("team", "u1", "agent"), "call writer").degraded

        def write() -> None:
            try:
                run_threads(
                    [
                        lambda w=w: write_all((one, two)[w % 2], w, tmp_path / f"{w}.acked")
                        for w in range(writers)
                    ]
                )
            finally:
                done.set()

        run_threads([write, lambda: read(one), lambda: read(two)])
        check_all(one, path, tmp_path, writers)


def test_opening_and_closing_while_others_do_the_same(tmp_path):
    """The last one out empties and removes the WAL, just as another looks at the file's header and size."""
    path = tmp_path / "store.db"
    open_store(path).close()
    processes, times = 4, 60  # N: 240 openings
    children = [start_child("child_open_and_close", path, times) for _ in range(processes)]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    assert [finish_child(child) for child in children] == [f"{times}\n"] * processes
    with open_store(path) as store:
        rows = dump(store)["messages"]
        assert sorted(row["pos"] for row in rows) == list(range(1, processes * times + 1))
        assert_sound(store)
