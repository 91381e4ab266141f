"""What became of memories between two times."""

from collections.abc import Sequence

from memstore.asking import Instant, principal, row_filter
from memstore.cursor import not_ours, read_cursor, write_cursor
from memstore.errors import InvalidInput
from memstore.ids import is_id
from memstore.storage.base import ChangeKey, ChangeRow, Interval, Storage
from memstore.times import from_micros
from memstore.types import Change, Memory, Page, Scope
from memstore.views import memory

_MICROS_BOUND = 2**62
_FIRST_STEP, _LAST_STEP = 0, 3


def changes_between(
    storage: Storage,
    scope: Scope,
    *,
    since: object,
    until: object,
    limit: int,
    cursor: str | None,
    kinds: Sequence[str] | None,
    now: int,
    instant: Instant,
) -> Page[Change]:
    """See :meth:`memstore.store.MemoryStore.changes`."""
    begin = instant(since)
    if begin is None:
        raise InvalidInput("since is missing: name the time from which on changes are wanted")
    interval = Interval(begin, instant(until), now)
    after = None if cursor is None else _read_cursor(cursor)
    with storage.read() as reader:
        where = row_filter(
            principal(reader, scope), "history", "memories", now=now, kinds=kinds, include_history=True
        )
        if limit == 0:
            return Page([], None)
        rows, place = reader.memory_changes(where, interval, limit, after)
    return Page([_change(row) for row in rows], write_cursor(place))


def _change(found: ChangeRow) -> Change:
    version = memory(found.row)
    before: Memory | None
    after: Memory | None
    if found.what in ("added", "updated"):
        before, after = None if found.before is None else memory(found.before), version
    else:
        before, after = version, None
    return Change(from_micros(found.at), found.what, version.id, version.version, before, after)


def _read_cursor(cursor: str) -> ChangeKey:
    """:raises InvalidInput: for what is no cursor of a page of changes."""
    match read_cursor(cursor):
        case [int(at), int(arrival), str(row_id), int(step)] if (
            is_id(row_id)
            and all(-_MICROS_BOUND < number < _MICROS_BOUND for number in (at, arrival))
            and _FIRST_STEP <= step <= _LAST_STEP
        ):
            return at, arrival, row_id, step
    raise not_ours(cursor)
