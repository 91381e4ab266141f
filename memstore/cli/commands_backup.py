"""The operator's commands for what must outlive a disk: backup, backups, restore, vacuum, compact, fallback."""

import re

import click

from memstore.cli.options import Target, with_target
from memstore.cli.output import show
from memstore.cli.progress import progress

LIST = "list"
PRUNE = "prune"
NOTHING_LEFT = "Nothing half-made counts as a backup; run the same command again."
NOTHING_RESTORED = "Nothing is at the target; run the same command again."
GOES_ON = "The store is whole; run the same command again to go on."

_SPAN = re.compile(r"(\d{1,6})(d|w)\Z", re.ASCII)
_DAYS = {"d": 1, "w": 7}


@click.command()
@click.option(
    "--to",
    metavar="PLACE",
    help="A folder, or a new file that ends in .gz.  [default: DATABASE.backups, beside the database]",
)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=7,
    show_default=True,
    help="So many of this store's backups in that folder stay; with a file as PLACE none is removed.",
)
@with_target
def backup(target: Target, *, to: str | None, keep: int) -> None:
    """Copy the whole store into a compressed file while others write, and read it back.

    Besides the messages it holds what the daily fallback does not: memories, dictionaries, vectors, stored recalls.

    \b
    Examples:
      memstore backup --db memory.db
      memstore backup --db memory.db --to /mnt/other-disk/memory --keep 30
    """
    with target.open() as store, progress("backing up (bytes)", when_stopped=NOTHING_LEFT) as report:
        result = store.backup(to, keep, report)
    show(target, "record", result)


@click.command()
@with_target
def backups(target: Target) -> None:
    """List the backups that the store knows of, and whether they are still there.

    \b
    Example:
      memstore backups --db memory.db --format text
    """
    with target.open() as store:
        show(target, "backups", {"backups": store.backups()})


@click.command()
@click.argument("file", metavar="BACKUP")
@with_target
def restore(target: Target, *, file: str) -> None:
    """Make the database at --db from a backup; nothing may be there.

    Messages that its fallback folder holds beyond the backup come back too.

    \b
    Example:
      memstore restore memory.db.backups/memory.db.20260301T120000.000000Z.v3.01JZ….gz --db memory.db
    """
    from memstore.store import MemoryStore

    with progress("restoring (bytes)", when_stopped=NOTHING_RESTORED) as report:
        result = MemoryStore.restore(file, target.path, settings=target.settings(), progress=report)
    show(target, "record", result)


@click.command()
@with_target
def vacuum(target: Target) -> None:
    """Give the free pages of the database file back to the file system. Writers wait meanwhile.

    It needs room for a second copy in SQLite's folder for temporary files (SQLITE_TMPDIR) and for a third beside the
    database.

    \b
    Example:
      memstore vacuum --db memory.db
    """
    with target.open() as store:
        show(target, "space", store.vacuum())


@click.command()
@with_target
def compact(target: Target) -> None:
    """Rewrite the text indexes without what is left of deleted rows, then vacuum.

    Vectors of retired generations stay: 'memstore generations drop NUMBER' frees them.

    \b
    Example:
      memstore compact --db memory.db
    """
    with target.open() as store, progress("compacting", when_stopped=GOES_ON) as report:
        show(target, "space", store.compact(report))


@click.command()
@click.argument("action", type=click.Choice([LIST, PRUNE]), default=LIST)
@click.option("--older-than", metavar="SPAN", help="With prune: 90d, or 12w.")
@with_target
def fallback(target: Target, *, action: str, older_than: str | None) -> None:
    """List the day files of the fallback, or remove old ones that a verified backup holds.

    After prune, 'memstore recover' alone lacks those days; 'memstore restore' brings everything back.

    \b
    Examples:
      memstore fallback --db memory.db --format text
      memstore fallback prune --older-than 90d --db memory.db
    """
    if action == LIST and older_than is not None:
        raise click.UsageError("list takes no --older-than: it shows every day")
    if action == PRUNE and older_than is None:
        raise click.UsageError("how old may a day file become? Say so by --older-than, like 90d")
    with target.open() as store:
        if older_than is None:
            show(target, "fallback_days", {"days": store.fallback_days()})
        else:
            show(target, "pruned", store.prune_fallback(_days(older_than)))


def _days(span: str) -> int:
    found = _SPAN.match(span.strip())
    if found is None:
        raise click.BadParameter(
            f"a number of days or weeks, like 90d or 12w, not {span!r:.40}", param_hint="--older-than"
        )
    return int(found[1]) * _DAYS[found[2]]


COMMANDS = (backup, backups, restore, vacuum, compact, fallback)
