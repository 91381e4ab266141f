"""``doctor``: what is wrong with a store, and which command mends it (SPEC S9).

Here is what concerns the store as a whole: its fallback, its embedder, its backups and the disk it is on. What is in
the database file is looked at where the driver is known.
"""

import platform
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from memstore import file_system
from memstore.backup import is_intact, is_present
from memstore.embedding import Embedder, identity_of
from memstore.errors import (
    EmbeddingError,
    EngineTooOld,
    FallbackError,
    MemstoreError,
    StoreError,
    StoreReadOnly,
    StoreTooNew,
    StoreUnsound,
)
from memstore.fallback import Fallback, Operation, is_name_of_ours
from memstore.operations import line_number
from memstore.paths import quoted
from memstore.pipelines.cost import is_open, local_day, next_midnight, waits_for_budget
from memstore.reserve import Reserve
from memstore.storage.base import BackupRow, Reader, Storage
from memstore.times import from_micros, render
from memstore.types import DoctorReport, Finding

if TYPE_CHECKING:
    from memstore.storage.pipeline_rows import Job

BACKUP = "memstore backup"
BAD_LINES_SHOWN = 10
BACKUP_AGE_DAYS = 7
LOG_BYTES = 64 * 2**20
"""The log is cut back to this once no reader holds it (``journal_size_limit``)."""
JOBS_READ = 10_000
LEAST_FREE_BYTES = 16 * 2**20
_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US

Key = tuple[str, str]


# --- the fallback ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Lines:
    """The messages that the day files hold: ``contained`` those that the database must have, with the client's id and
    the line's number. Numbers in ``void`` are of calls that were cut short."""

    written: set[Key] = field(default_factory=set)
    contained: dict[Key, tuple[tuple[str, ...] | None, int]] = field(default_factory=dict)
    void: list[range] = field(default_factory=list)
    faults: list[Finding] = field(default_factory=list)
    faulty: int = 0


def _in_the_way(fallback: Fallback) -> Iterator[Finding]:
    """What keeps every line from being written, until a person moves it."""
    folder = fallback.folder
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        yield _moved(folder, "a folder of its own")
        return
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if is_name_of_ours(path.name) and (path.is_symlink() or not path.is_file()):
            yield _moved(path, "a file")


def _moved(path: Path, wanted: str) -> Finding:
    message = f"{path} is not {wanted}: no line can be written; until it is moved away the database keeps them alone"
    return Finding("fallback", "error", message, f"mv {quoted(path)} {quoted(Path(f'{path}.moved'))}")


def check_fallback(
    storage: Storage, fallback: Fallback, way_back: str, backed_up_to: int | None = None
) -> list[Finding]:
    """The day files against the rows, both ways. Others may be writing: what they add meanwhile is left out.

    :param way_back: the command for a database that lacks rows.
    :param backed_up_to: what was recorded by that instant is in a sound backup that is there, so that it needs no line.
    """
    in_the_way = list(_in_the_way(fallback))
    if in_the_way:
        return in_the_way
    try:
        return [*_check_lines(storage, fallback, way_back, backed_up_to), *_check_modes(fallback)]
    except (OSError, FallbackError) as error:
        message = f"{fallback.folder.name} cannot be read: {error}; check its owner, mode and disk"
        return [Finding("fallback", "error", message)]


def _check_lines(
    storage: Storage, fallback: Fallback, way_back: str, backed_up_to: int | None
) -> list[Finding]:
    sizes = {day: fallback.size(day) for day in fallback.days()}
    with storage.read() as reader:
        marks = reader.fallback_marks()
        owed = {
            _key(operation) for _, operation in reader.unwritten_lines(None) if operation["op"] == "message"
        }
        owing = len(reader.unwritten_lines(None))
        held = [reader.backup_days(row.number) for row in reader.backups() if _is_there(row)]
        recorded: dict[Key, int] = {}
        sent: set[tuple[str, ...]] = set()
        for row in reader.dump_messages():
            recorded[row.team_id, row.id] = row.recorded_at
            if row.client_id is not None:
                sent.add((row.team_id, row.user_id, row.session, row.client_id))
    lines = _read(fallback, sizes, marks)
    lacking = recorded.keys() - lines.written - owed
    covered = {key for key in lacking if backed_up_to is not None and recorded[key] <= backed_up_to}
    gone = [
        key
        for key, (client, number) in lines.contained.items()
        if key not in recorded and client not in sent and not any(number in void for void in lines.void)
    ]
    return [
        *lines.faults,
        *_behind(sorted(day for day, size in sizes.items() if size > marks.get(day, 0))),
        *_cut(
            sorted(
                day
                for day, mark in marks.items()
                if mark > sizes.get(day, 0) and not any(days.get(day, 0) >= mark for days in held)
            )
        ),
        *_lacking(fallback, len(lacking - covered), len(covered)),
        *_owing(owing),
        *_gone(len(gone), way_back),
    ]


def _read(fallback: Fallback, sizes: dict[str, int], marks: dict[str, int]) -> _Lines:
    lines = _Lines()
    for day in fallback.days():
        for line in fallback.read(day):
            if line.operation is None:
                lines.faulty += 1
                if lines.faulty <= BAD_LINES_SHOWN and line.end <= sizes.get(day, 0):
                    message = (
                        f"{fallback.path(day).name} line {line.number}: {line.fault}; it is skipped. What it held is in "
                        "the database, or was never acknowledged: keep the file, and take a backup"
                    )
                    lines.faults.append(Finding("fallback", "warning", message))
            elif fallback.is_foreign(line.operation):
                message = f"{fallback.path(day).name} is another store's; none of it is taken: move it away"
                lines.faults.append(Finding("fallback", "warning", message))
                break
            else:
                _sort_in(lines, line.operation, contained=line.end <= marks.get(day, 0))
    return lines


def _sort_in(lines: _Lines, operation: Operation, *, contained: bool) -> None:
    if operation["op"] == "pending":  # settled by ordinary lines of its own
        lines.written.update((operation["team_id"], message["id"]) for message in operation["messages"])
    elif operation["op"] == "void":
        lines.void.append(range(operation["first"], operation["last"] + 1))
    elif operation["op"] == "message":
        lines.written.add(_key(operation))
        if contained:
            client = operation.get("client_id")
            of = tuple(str(operation[name]) for name in ("team_id", "user_id", "session"))
            whose = (*of, client) if client is not None else None
            lines.contained[_key(operation)] = whose, line_number(operation)


def _key(operation: Operation) -> Key:
    return operation["team_id"], operation["id"]


def _behind(days: list[str]) -> list[Finding]:
    if not days:
        return []
    message = f"lines of {', '.join(days)} are not in the database yet; reopening the store adopts them"
    return [Finding("fallback", "warning", message, "memstore doctor")]


def _cut(days: list[str]) -> list[Finding]:
    """A file that is shorter than what was taken from it. A day that was removed on purpose has no mark."""
    if not days:
        return []
    message = f"the day files {', '.join(days)} are gone or cut short; a recovery would lack their messages"
    return [Finding("fallback", "warning", message, BACKUP)]


def _lacking(fallback: Fallback, lacking: int, covered: int) -> list[Finding]:
    findings = []
    if lacking:
        message = (
            f"{lacking} messages have no line in {fallback.folder.name}: a recovery from it would lack them; "
            "keep a backup of the database"
        )
        findings.append(Finding("fallback", "warning", message, BACKUP))
    if covered:
        message = f"{covered} messages have no line in {fallback.folder.name} any more; a backup holds them"
        findings.append(Finding("fallback", "info", message))
    return findings


def _owing(operations: int) -> list[Finding]:
    if not operations:
        return []
    message = (
        f"{operations} changes are committed and have no line in the fallback yet, which could not be written; "
        "the next write that reaches it, or reopening the store, appends them"
    )
    return [Finding("fallback", "warning", message, "memstore doctor")]


def _gone(rows: int, way_back: str) -> list[Finding]:
    if not rows:
        return []
    message = f"{rows} lines of the fallback have no row in the database"
    return [Finding("fallback", "error", message, way_back)]


def _check_modes(fallback: Fallback) -> list[Finding]:
    return modes_of([fallback.folder, *(fallback.path(day) for day in fallback.days())])


def modes_of(paths: Iterable[Path]) -> list[Finding]:
    """Files and folders that others may read."""
    return [
        Finding(
            "file modes",
            "warning",
            f"{path.name} may be read by other users of this machine",
            f"chmod go= {quoted(path)}",
        )
        for path in paths
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]


# --- embedder, backups -------------------------------------------------------------------------------------


def check_embedder(storage: Storage, embedder: Embedder | None) -> list[Finding]:
    """Whether the store's vectors are the embedder's."""
    with storage.read() as reader:
        active = reader.generation("active")
        building = reader.generation("building")
    findings = []
    if building is not None:
        message = f"a change over to {building.identity.model} is unfinished"
        findings.append(Finding("embedder", "warning", message, "memstore reindex"))
    if embedder is None or active is None:
        return findings
    try:
        identity = identity_of(embedder)
    except EmbeddingError as error:
        return [*findings, Finding("embedder", "warning", f"the embedder is not usable: {error}")]
    if identity != active.identity:
        message = f"the store's vectors are of {active.identity.model}, the embedder is {identity.model}"
        findings.append(Finding("embedder", "warning", message, "memstore reindex"))
    return findings


def recorded_backups(storage: Storage) -> list[BackupRow]:
    """The recorded backups that are still there, in the order in which they were made; none where the file cannot be read for it."""
    try:
        with storage.read() as reader:
            return [row for row in reader.backups() if _is_there(row)]
    except StoreError:
        return []


def changed_backups(storage: Storage) -> set[str]:
    """Paths of recorded backups that are gone or have another size by now; none where the file cannot be read for it."""
    try:
        with storage.read() as reader:
            return {str(row.path) for row in reader.backups() if not _is_there(row)}
    except StoreError:
        return set()


def backed_up_to(present: list[BackupRow], now: int) -> int | None:
    """What was recorded by then, in microseconds, is in a backup. One that a wrong clock put into the future says nothing
    of that."""
    return max((row.taken_at for row in present if row.taken_at <= now), default=None)


def way_back(path: Path, backup: Path | None) -> str:
    """The command that puts a sound store in the place of one whose rows are damaged, and keeps that one. Messages that
    the fallback holds beyond a backup come back with it."""
    database = quoted(path)
    aside = f"mv {database} {quoted(Path(f'{path}.damaged'))} && " if path.exists() else ""
    if backup is not None:
        return f"{aside}memstore restore {quoted(backup)} --db {database}"
    return f"{aside}memstore recover --db {database}"


def with_what_recover_loses(finding: Finding) -> Finding:
    """Before a damaged database is given up for its fallback, whoever can still read memories saves them."""
    if finding.repair is None or "memstore recover" not in finding.repair:
        return finding
    advice = (
        "there is no backup, and the fallback holds messages and sessions only: save what can still be read of memories "
        "first (memstore sql 'SELECT * FROM v_memories', memstore export)"
    )
    return replace(finding, message=f"{finding.message}; {advice}")


def check_backups(
    path: Path, present: list[BackupRow], now: int, *, rows: int, full: bool = False
) -> list[Finding]:
    """When the last verified backup that is still there was taken. An empty store needs none.

    :param now: microseconds.
    :param full: read them, too: is each still the file that was verified?
    """
    findings = modes_of([Path(f"{path}.backups"), *(Path(row.path) for row in present)])
    for row in present if full else ():
        if not is_intact(row):
            message = (
                f"{row.path} is not the file any more that was verified; nothing can rely on it: remove it"
            )
            findings.append(Finding("backups", "error", message, BACKUP))
    return [*findings, *(_age_of_backups(present, now) if rows else [])]


def _age_of_backups(present: list[BackupRow], now: int) -> list[Finding]:
    if not present:
        message = "there is no verified backup: memories, dictionaries and stored recalls have no second copy"
        return [Finding("backups", "info", message, BACKUP)]
    last = present[-1]
    age = (
        now + _SECOND_US - last.taken_at
    ) // _DAY_US  # of two at one instant the later is named a moment later
    if age < 0:
        message = f"the last verified backup was taken in the future, by a clock that was wrong ({last.path})"
        return [Finding("backups", "warning", message, BACKUP)]
    if age > BACKUP_AGE_DAYS:
        message = f"the last verified backup is {age} days old ({last.path})"
        return [Finding("backups", "warning", message, BACKUP)]
    return []


def _is_there(row: BackupRow) -> bool:
    if not (isinstance(row.path, str) and isinstance(row.taken_at, int)):
        return False  # a damaged record; the check of the tables names it
    try:
        return is_present(row)
    except ValueError:  # a name that no file has
        return False


# --- the disk ----------------------------------------------------------------------------------------------


def place(path: Path, reserve: Reserve) -> dict[str, Any]:
    """Where the database is, and what room it and others take there. ``free_bytes`` and ``file_system`` are None
    where the system does not say."""
    return {
        "path": str(path),
        "file_system": file_system.kind_of(path),
        "free_bytes": file_system.free_bytes(path),
        "database_bytes": _size(path),
        "log_bytes": _size(Path(f"{path}-wal")),
        "reserve_bytes": reserve.held(),
    }


def check_place(found: dict[str, Any], reserve: Reserve) -> list[Finding]:
    """File system, free space, reserve, and the size of the log."""
    findings = []
    kind, free = found["file_system"], found["free_bytes"]
    if file_system.is_unsafe(kind):
        message = (
            f"the store is on {kind}, where locks of several processes do not hold: move it to a local disk"
        )
        findings.append(Finding("file system", "warning", message))
    elif file_system.is_doubtful(kind):
        message = (
            f"the store is on {kind}: make sure that locks and shared memory hold there, or use a local disk"
        )
        findings.append(Finding("file system", "warning", message))
    bound = LEAST_FREE_BYTES + found["log_bytes"] + found["database_bytes"] // 10
    if free is not None and free < bound:
        message = f"only {_mb(free)} MB are free (advised: {_mb(bound)} MB): free some before writes fail"
        findings.append(Finding("free space", "warning", message))
    held, due = found["reserve_bytes"], reserve.due()
    if held < due:
        message = f"the reserve holds {_mb(held)} of {_mb(due)} MB: on a full disk nothing could be deleted"
        findings.append(Finding("reserve", "info", message, "memstore reserve"))
    elif reserve.size and not held:
        message = "there is no room for a reserve: on a full disk nothing could be deleted; free some space"
        findings.append(Finding("reserve", "info", message))
    if found["log_bytes"] > LOG_BYTES:
        message = (
            f"the log {reserve.database.name}-wal takes {_mb(found['log_bytes'])} MB: some program has been reading "
            "without a pause, and keeps it from being emptied; end it"
        )
        findings.append(Finding("log", "warning", message, "memstore checkpoint"))
    return findings


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _mb(size: int) -> str:
    return f"{size / 2**20:.1f}"


# --- what models cost --------------------------------------------------------------------------------------


def check_models(storage: Storage, now: int, zone: ZoneInfo, daily_tokens: int | None) -> list[Finding]:
    """Teams whose background work waits for tomorrow or a larger budget, and models that are left alone."""
    findings: list[Finding] = []
    with storage.read() as reader:
        if daily_tokens is not None:
            findings += _check_budgets(reader, now, zone, daily_tokens)
        for breaker in reader.breakers():
            if is_open(breaker, now) and breaker.open_until is not None:
                message = (
                    f"the model {breaker.model} failed {breaker.failures} times in a row and is left alone until "
                    f"{render(from_micros(breaker.open_until))}; last: {breaker.last_error} (memstore jobs tells more)"
                )
                findings.append(Finding("models", "warning", message))
    return findings


def _check_budgets(reader: Reader, now: int, zone: ZoneInfo, daily_tokens: int) -> Iterator[Finding]:
    """Teams whose budget is used up, and those with a question that what is left of it does not cover."""
    waiting: dict[str, list[Job]] = {}
    for job in reader.jobs("queued", None, None, JOBS_READ):
        if job.team_id is not None and waits_for_budget(job, now):
            waiting.setdefault(job.team_id, []).append(job)
    for team_id in reader.team_ids():
        used = reader.tokens_used(team_id, local_day(now, zone))
        if used >= daily_tokens:
            until = render(from_micros(next_midnight(now, zone)))
            message = (
                f"team {team_id} has used {used} of {daily_tokens} tokens today: its background work waits until "
                f"{until}, or for a larger Settings.daily_tokens"
            )
            yield Finding("models", "warning", message)
        elif jobs := waiting.get(team_id):
            first = min(jobs, key=lambda job: job.job_no)
            message = (
                f"job {first.job_no} ({first.kind}) of team {team_id} waits for tokens, of which {used} of {daily_tokens} "
                f"are used today, and so do {len(jobs) - 1} others of the team: {first.last_error}"
            )
            yield Finding("models", "warning", message)


# --- versions, and a store that does not open --------------------------------------------------------------


def versions() -> dict[str, str]:
    """Of the programs around the database."""
    return {"memstore": metadata.version("memstore"), "python": platform.python_version()}


def unopened(path: Path, error: MemstoreError, reserve: Reserve, backup: Path | None) -> DoctorReport:
    """The report on a store that cannot be opened. The file is not touched.

    :param backup: the newest one.
    """
    where = place(path, reserve)
    finding = Finding("open", "error", str(error), _way_out(path, error, backup))
    findings = (finding, *check_place(where, reserve))
    return DoctorReport(ok=False, findings=findings, counts={}, versions=versions(), place=where)


def _way_out(path: Path, error: MemstoreError, backup: Path | None) -> str | None:
    """A command, where there is one; else the error says what to do."""
    if isinstance(error, StoreTooNew):
        return "pip install --upgrade memstore"
    if isinstance(error, EngineTooOld):
        return "pip install --upgrade apsw sqlite-vec"
    if isinstance(error, StoreReadOnly):
        return f"chmod u+rw {quoted(path)} {quoted(path.parent)}"
    return way_back(path, backup) if isinstance(error, StoreUnsound) else None
