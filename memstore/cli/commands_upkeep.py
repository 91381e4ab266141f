"""The operator's commands: index, reindex, recover, doctor, sql."""

import sys
from dataclasses import replace

import click

from memstore.cli.failures import FAILED
from memstore.cli.options import Target, with_target
from memstore.cli.output import show
from memstore.cli.progress import progress
from memstore.config import ENVIRONMENT

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


@click.command()
@click.option("--full", is_flag=True, help="Compare the tokens of every row, however many there are.")
@with_target
def doctor(target: Target, *, full: bool) -> None:
    """Look for damage and drift; nothing is changed. Exits with 1 when something is wrong.

    \b
    Example:
      memstore doctor --db memory.db --format text
    """
    with target.open() as store:
        report = store.doctor(full=full)
    show(target, "doctor", report)
    if not report.ok:
        click.get_current_context().exit(FAILED)


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

    with Inspection(target.path.absolute(), write=write) as inspection:
        if statement is None and sys.stdin.isatty():
            inspection.shell()
            return
        if statement is None:
            statement = sys.stdin.buffer.read().decode("utf-8-sig")
        show(target, "rows", {"rows": inspection.rows(statement)})


COMMANDS = (index, reindex, recover, doctor, sql)
