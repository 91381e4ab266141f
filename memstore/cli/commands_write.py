"""Commands that make a store and change its rows: init, record, add, edit, delete."""

import sys
from pathlib import Path
from typing import Any

import click

from memstore.cli.inputs import messages_from, metadata_of
from memstore.cli.options import FreeText, Target, metadata_option, with_target
from memstore.cli.output import show
from memstore.errors import StoreExists
from memstore.types import KINDS, ROLES, VISIBILITIES, Message


@click.command()
@click.option(
    "--fold-variants", is_flag=True, help="Traditional and simplified characters find each other (extra zh)."
)
@with_target
def init(target: Target, *, fold_variants: bool) -> None:
    """Make a new, empty store.

    \b
    Example:
      memstore init --db memory.db --timezone Asia/Shanghai --fold-variants
    """
    if target.path.exists():
        raise StoreExists(f"{target.path.absolute()} exists already and is left as it is")
    with target.open(create=True, fold_variants=fold_variants) as store:
        made: dict[str, Any] = {"path": str(store.path), "timezone": store.timezone.key}
        show(target, "record", made | {"fold_variants": True} if fold_variants else made)


@click.command(cls=FreeText)
@click.argument("content", required=False)
@click.option("--session", required=True, metavar="KEY", help="agent:channel:chat_id, or a bare chat id.")
@click.option(
    "--role", type=click.Choice(ROLES), default="user", show_default=True, help="Who speaks in CONTENT."
)
@click.option("--name", help="The speaker's name, where a session has several people.")
@click.option("--id", "client_id", help="The client's own id; stored once per session.")
@click.option("--created-at", metavar="TIME", help="When it was said; now if not given.")
@click.option("--file", metavar="FILE", help='JSON lines {"role": …, "content": …}; - reads stdin.')
@click.option("--transcript", is_flag=True, help="The messages are the session's whole history.")
@with_target
def record(
    target: Target,
    *,
    content: str | None,
    session: str,
    role: Any,
    name: str | None,
    client_id: str | None,
    created_at: str | None,
    file: str | None,
    transcript: bool,
) -> None:
    """Keep conversation messages: CONTENT, or the lines of a file.

    \b
    Examples:
      memstore record "Shall we meet on Thursday?" --session reviewer:wecom:lin --user lin
      memstore record "周四见" --role assistant --session reviewer:wecom:lin --user lin
      memstore record --file turns.jsonl --session reviewer:wecom:lin --user lin
    """
    if (content is None) == (file is None):
        raise click.UsageError("give either CONTENT or --file (a file, or - for stdin)")
    if file is not None and (name, client_id, created_at) != (None, None, None):
        raise click.UsageError(
            "--name, --id and --created-at belong to CONTENT; in a file each line has its own"
        )
    scope = target.writer()
    if file is not None:
        messages = messages_from(_read(file), "stdin" if file == "-" else file)
    else:
        messages = [Message(role, content, id=client_id, name=name, created_at=created_at)]
    with target.open(create=True) as store:
        show(target, "record", store.record(scope, messages, session, transcript=transcript))


def _read(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


@click.command(cls=FreeText)
@click.argument("content")
@click.option("--kind", type=click.Choice(KINDS), default="episodic", show_default=True, help="What it is.")
@click.option(
    "--priority",
    type=int,
    default=50,
    show_default=True,
    help="0 to 100; -1: an instruction always injected.",
)
@metadata_option()
@click.option(
    "--visibility",
    type=click.Choice(VISIBILITIES),
    default="private",
    show_default=True,
    help="Who may read it.",
)
@click.option("--valid-from", metavar="TIME", help="True from then on; now if not given.")
@click.option("--valid-to", metavar="TIME", help="True until then.")
@click.option("--expires-at", metavar="TIME", help="Not returned any more from then on.")
@click.option("--session", metavar="KEY", help="The session that it comes from.")
@click.option(
    "--idempotency-key", metavar="KEY", help="A second call with it returns the memory of the first."
)
@with_target
def add(target: Target, *, content: str, metadata: tuple[str, ...], **options: Any) -> None:
    """Keep one memory, word for word. No model is called.

    \b
    Examples:
      memstore add "The launch moved to Thursday" --user lin --metadata project=apollo
      memstore add "喜欢简短的回答" --kind persona --user lin
    """
    scope = target.writer()
    found = metadata_of(metadata)
    with target.open(create=True) as store:
        show(target, "record", store.add(scope, content, metadata=found, **options))


@click.command()
@click.argument("memory_id", metavar="ID")
@click.option("--content", help="The new text.")
@click.option("--priority", type=int, help="0 to 100.")
@metadata_option(
    help="Takes the place of all metadata: KEY=VALUE, repeatable, or a JSON object; {} empties it."
)
@click.option("--valid-from", metavar="TIME", help="True from then on.")
@click.option("--valid-to", metavar="TIME", help="True until then.")
@click.option("--expires-at", metavar="TIME", help="Not returned any more from then on.")
@click.option("--expected-version", type=int, help="Refuse if the memory has moved on since.")
@with_target
def edit(target: Target, *, memory_id: str, metadata: tuple[str, ...], **changes: Any) -> None:
    """Change a memory. The version before is kept, see: memstore history.

    \b
    Example:
      memstore edit 01JZ… --content "The launch moved to Friday" --user lin
    """
    given = {name: value for name, value in changes.items() if value is not None}
    if metadata:
        given["metadata"] = metadata_of(metadata) or {}
    if not given.keys() - {"expected_version"}:
        raise click.UsageError("nothing to change: give --content, --priority, --metadata or a time")
    scope = target.asker()
    with target.open() as store:
        show(target, "record", store.update(scope, memory_id, **given))


@click.command()
@click.argument("row_id", metavar="[ID]", required=False)
@click.option(
    "--all", "everything", is_flag=True, help="All messages and memories of the user; with --agent, its."
)
@click.option("--yes", is_flag=True, help="Do not ask; needed for --all without a terminal.")
@with_target
def delete(target: Target, *, row_id: str | None, everything: bool, yes: bool) -> None:
    """Delete a memory or a message, or all of them. This is no erasure: history, fallback files and backups
    still hold them.

    \b
    Examples:
      memstore delete 01JZ… --user lin
      memstore delete --all --yes --user lin --agent reviewer
    """
    if (row_id is None) != everything:
        raise click.UsageError("give either an ID or --all")
    scope = target.asker()
    target.check_there()
    if everything and not yes:
        _confirm(target)
    with target.open() as store:
        if row_id is None:
            deleted = store.delete_all(scope)
        else:
            store.delete(scope, row_id)
            deleted = 1
    show(target, "record", {"deleted": deleted})


def _confirm(target: Target) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("--all deletes everything of the user; say so with --yes")
    whose = f"agent {target.agent}" if target.agent else "all agents"
    click.confirm(
        f"Delete all messages and memories of user {target.user} in team {target.need_team()} ({whose})?",
        abort=True,
        err=True,
    )


COMMANDS = (init, record, add, edit, delete)
