"""The operator's commands: index, reindex, recover, doctor, reserve, sql."""

import sys
from dataclasses import replace

import click

from memstore.cli.failures import FAILED
from memstore.cli.options import Target, with_target
from memstore.cli.output import show
from memstore.cli.progress import progress
from memstore.config import ENVIRONMENT
from memstore.paths import quoted

RESUMES = "What was done stays; run the same command again to go on from there."
BEGINS_ANEW = "Nothing half-made is left at the target; run the same command again to recover."


@click.command()
@with_target
def index(target: Target) -> None:
    """Compute the vectors that are missing. Can be stopped and goes on where it was.

    \b
    Example:
      memstore index --db memory.db --embedder local
    """
    if target.embedder is None:
        raise click.UsageError(
            f"vectors need a model: name it by --embedder (like 'local') or {ENVIRONMENT['embedder']}"
        )
    with target.open() as store, progress("embedding", when_stopped=RESUMES) as report:
        result = store.index(report)
    show(target, "record", result)


@click.command()
@click.option(
    "--fold-variants/--no-fold-variants",
    default=None,
    help="From now on traditional and simplified characters find each other, or not.",
)
@with_target
def reindex(target: Target, *, fold_variants: bool | None) -> None:
    """Make the text indexes anew, and change over to the model named by --embedder. Searches go on meanwhile.

    \b
    Examples:
      memstore reindex --db memory.db --embedder st:BAAI/bge-small-zh-v1.5
      memstore reindex --db memory.db --fold-variants
    """
    with target.open() as store, progress("indexing", when_stopped=RESUMES) as report:
        result = store.reindex(report, fold_variants=fold_variants)
    show(target, "record", result)


@click.command()
@click.option("--out", metavar="NEW", help="Write the rebuilt store here and leave the file at --db alone.")
@click.option(
    "--fold-variants/--no-fold-variants",
    default=None,
    help="Whether traditional and simplified characters find each other (default: as the fallback says).",
)
@with_target
def recover(target: Target, *, out: str | None, fold_variants: bool | None) -> None:
    """Rebuild messages and sessions from the daily fallback files. Memories and dictionaries come from a backup.

    \b
    Examples:
      memstore recover --db memory.db
      memstore recover --db damaged.db --out rebuilt.db
    """
    from memstore.store import MemoryStore

    with progress("recovering", when_stopped=BEGINS_ANEW) as report:
        settings = replace(target.settings(), fold_variants=fold_variants)
        result = MemoryStore.recover(target.path, out, settings=settings, progress=report)
    show(target, "record", result)


def _with_store(repair: str | None, target: Target) -> str | None:
    """The command as it can be pasted, whatever MEMSTORE_DB says."""
    if repair is None or not repair.startswith("memstore ") or "--db" in repair:
        return repair
    return f"{repair} --db {quoted(target.path)}"


@click.command()
@click.option("--full", is_flag=True, help="Look at every row, vector and token, however many there are.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout; it is the default.")
@with_target
def doctor(target: Target, *, full: bool, as_json: bool) -> None:
    """Look for damage and drift; nothing is mended. Exits with 1 when something is wrong.

    Opening the store for it brings an older schema up to date and takes up what waits in the fallback, as any opening.

    \b
    Examples:
      memstore doctor --db memory.db --format text
      memstore doctor --db memory.db --full --json
    """
    target.check_there()
    from memstore.store import MemoryStore

    report = MemoryStore.examine(target.path, target.embedder, settings=target.settings(), full=full)
    findings = tuple(replace(found, repair=_with_store(found.repair, target)) for found in report.findings)
    report = replace(report, findings=findings)
    show(replace(target, as_text=target.as_text and not as_json), "doctor", report)
    if not report.ok:
        click.get_current_context().exit(FAILED)


@click.command()
@click.option("--release", is_flag=True, help="Give it up: its room is free for a few more writes.")
@with_target
def reserve(target: Target, *, release: bool) -> None:
    """Bring the reserve to its size: room beside the database that lets deletes run when the disk is full.

    \b
    Example:
      memstore reserve --db memory.db
    """
    with target.open() as store:
        freed = store.release_reserve() if release else 0
        held = 0 if release else store.make_reserve()
        wanted = store.settings.reserve_bytes
    show(target, "record", {"held_bytes": held, "freed_bytes": freed, "wanted_bytes": wanted})
    if not release and wanted and not held:
        click.get_current_context().exit(FAILED)


@click.command()
@with_target
def checkpoint(target: Target) -> None:
    """Empty the write-ahead log into the database file now. It is done without being asked when the store is idle.

    \b
    Example:
      memstore checkpoint --db memory.db
    """
    with target.open() as store:
        result = store.checkpoint()
    show(target, "record", result)


@click.command()
@click.argument("statement", required=False)
@click.option(
    "--write", is_flag=True, help="Allow changes. They bypass the rules, the indexes and the fallback."
)
@with_target
def sql(target: Target, *, statement: str | None, write: bool) -> None:
    """Run SQL on the store, read-only unless --write is given. The operator sees every user's rows.

    Without a STATEMENT: a shell on a terminal, else the statements of stdin. The views v_messages, v_memories,
    v_memory_history and v_sessions have readable times.

    \b
    Example:
      memstore sql "SELECT session, role, text FROM v_messages ORDER BY created_at DESC LIMIT 5" --db memory.db
    """
    target.check_there()
    from memstore.storage.sqlite.inspection import Inspection

    path, forced = target.path.absolute(), target.network_file_system
    with Inspection(path, write=write, network_file_system=forced) as inspection:
        if statement is None and sys.stdin.isatty():
            inspection.shell()
            return
        if statement is None:
            statement = sys.stdin.buffer.read().decode("utf-8-sig")
        show(target, "rows", {"rows": inspection.rows(statement)})


COMMANDS = (index, reindex, recover, doctor, checkpoint, reserve, sql)
