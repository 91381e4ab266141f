"""Commands for what is written from memories: scenes, profile, memory."""

import sys

import click

from memstore.cli.options import FreeText, Target, with_target
from memstore.cli.output import show
from memstore.errors import NotFound
from memstore.pipelines.values import ProfileName

PROFILES = click.Choice(["agent", "user"])


@click.command()
@click.option("--history", metavar="ID", help="Every version of this scene, deleted ones included.")
@with_target
def scenes(target: Target, *, history: str | None) -> None:
    """Show the scenes: short documents about recurring situations, written from memories.

    \b
    Examples:
      memstore scenes --user lin --format text
      memstore scenes --history 01JZ… --user lin
    """
    scope = target.asker()
    with target.open() as store:
        found = store.scenes(scope) if history is None else store.scene_history(scope, history)
    show(target, "scenes", {"scenes": found})


@click.command()
@click.argument("which", type=PROFILES, default="user")
@click.option("--history", is_flag=True, help="Every version, oldest first.")
@click.option("--roll-back", type=int, metavar="VERSION", help="Give it the text of that version again.")
@with_target
def profile(target: Target, *, which: ProfileName, history: bool, roll_back: int | None) -> None:
    """Show the user's profile, which all agents share, or an agent's.

    \b
    Examples:
      memstore profile --user lin --format text
      memstore profile agent --agent reviewer --user lin --history
      memstore profile user --user lin --roll-back 3
    """
    if history and roll_back is not None:
        raise click.UsageError("--history shows, --roll-back changes: give one of them")
    scope = target.writer() if which == "agent" else target.asker()
    with target.open() as store:
        if history:
            show(target, "profiles", {"profiles": store.profile_history(scope, which)})
            return
        if roll_back is not None:
            show(target, "record", store.roll_back_profile(scope, which, roll_back))
            return
        found = store.profile(scope, which)
    if found is None:
        raise NotFound(
            f"there is no {which} profile yet: memstore work writes it after some conversation, and memstore memory write "
            "writes an agent's"
        )
    show(target, "record", found)


@click.group()
def memory() -> None:
    """Read or write the profile of an agent: what it keeps in mind about its work with the user.

    \b
    Examples:
      memstore memory read --agent reviewer --user lin --format text
      memstore memory write "Reviews contracts. Answer in Chinese." --agent reviewer --user lin
    """


@memory.command("read")
@with_target
def read_memory(target: Target) -> None:
    """Print the agent's profile; empty before there is one.

    \b
    Example:
      memstore memory read --agent reviewer --user lin --format text
    """
    scope = target.writer()
    with target.open() as store:
        text = store.read_memory(scope)
    show(target, "text", {"text": text})


@memory.command("write", cls=FreeText)
@click.argument("text", required=False)
@with_target
def write_memory(target: Target, *, text: str | None) -> None:
    """Write the agent's profile; the version before is kept. Without TEXT it is read from stdin.

    \b
    Examples:
      memstore memory write "Reviews contracts. Answer in Chinese." --agent reviewer --user lin
      memstore memory write --agent reviewer --user lin < MEMORY.md
    """
    scope = target.writer()
    if text is None:
        text = _standard_input()
    with target.open(create=True) as store:
        show(target, "record", store.write_memory(scope, text))


def _standard_input() -> str:
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"what came on stdin is no UTF-8 text: {error}") from error


COMMANDS = (scenes, profile, memory)
