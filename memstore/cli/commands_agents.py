"""Settings of agents, what models cost, and quarantine: agent-settings, usage, quarantine, release."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import click

from memstore.agent_settings import NAMES
from memstore.cli.inputs import check_times, parse_json, times_of
from memstore.cli.options import TIME_FORMS, Function, Target, time_options, with_target
from memstore.cli.output import show
from memstore.types import Scope

NAME_VALUE = "NAME=VALUE"


@click.command("agent-settings")
@click.argument("agent_id", metavar="AGENT")
@click.argument("changes", nargs=-1, metavar="[NAME=VALUE]…")
@click.option("--reset", multiple=True, metavar="NAME", help="Back to the default. Repeatable.")
@with_target
def agent_settings(target: Target, *, agent_id: str, changes: Sequence[str], reset: Sequence[str]) -> None:
    """Show how conversations with an agent are worked on, or change it. A list is written as 1,2,4.

    \b
    Examples:
      memstore agent-settings helper --db memory.db --user lin
      memstore agent-settings helper rounds=3 idle_s=120 warm_up=1,2 --db memory.db --user lin
      memstore agent-settings helper --reset rounds --db memory.db --user lin
    """
    given = _settings(changes)
    scope = Scope(target.need_team(), target.need_user())
    with target.open(create=bool(given)) as store:
        result = store.agent_settings(scope, agent_id, reset=reset, **given)
    show(target, "record", asdict(result))


def _settings(changes: Sequence[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for change in changes:
        name, value = _setting(change)
        if name in given:
            raise click.BadParameter(f"{name} is given twice; which of the two?", param_hint=NAME_VALUE)
        given[name] = value
    return given


def _setting(text: str) -> tuple[str, Any]:
    """A name and its value; what kind of value it has to be is said where it is checked."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=NAME_VALUE)
    if name not in NAMES:  # nor a parameter of the call that changes them
        known = ", ".join(NAMES)
        raise click.BadParameter(f"no setting named {name!r:.60}; there are {known}", param_hint=NAME_VALUE)
    if name == "warm_up":
        return name, tuple(_plain(part.strip()) for part in value.strip("[]").split(",") if part.strip())
    if name == "model":
        return name, value or None
    return name, _plain(value)


def _plain(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


@click.command(epilog=TIME_FORMS)
@time_options("since", what="Days")
@click.option("--all-teams", is_flag=True, help="Of every team of the store.")
@with_target
def usage(target: Target, *, since: str | None, all_teams: bool) -> None:
    """What chat models cost the team, by day, model and task; tokens are estimated where a model did not report them.

    \b
    Example:
      memstore usage --since 2026-03-01 --db memory.db --format text
    """
    with target.open() as store:
        times = times_of({"since": since}, store.timezone)
        found = store.usage(None if all_teams else target.need_team(), since=times.get("since"))
    show(target, "usage", {"usage": found})


def _criteria(function: Function) -> Function:
    """The options that say which rows; all that are given have to hold."""
    decorated: Any = function
    options: tuple[Callable[..., Any], ...] = (
        click.option("--source", multiple=True, metavar="ID", help="A message or memory. Repeatable."),
        click.option("--session", metavar="SESSION", help="What was said in it."),
        click.option("--author", metavar="NAME", help="Who said it, or made the memory."),
        time_options("since", "until", "last", what="Recorded"),
    )
    for option in reversed(options):
        decorated = option(decorated)
    done: Function = decorated
    return done


def _given(target: Target, given: dict[str, Any], zone: Any) -> dict[str, Any]:
    check_times(given)
    times = times_of({name: given[name] for name in ("since", "until", "last")}, zone)
    return {
        "source": list(given["source"]) or None,
        "session": target.session(given["session"]),
        "author": given["author"],
        **times,
    }


@click.command(epilog=TIME_FORMS)
@_criteria
@with_target
def quarantine(target: Target, **given: Any) -> None:
    """Take what was said or made by a source out of recall, with all that was derived from it. `release` undoes it.

    \b
    Examples:
      memstore quarantine --session helper:web:42 --db memory.db --user lin
      memstore quarantine --author mallory --since 2026-03-01 --db memory.db --user lin
    """
    with target.open() as store:
        rows = store.quarantine(target.asker(), **_given(target, given, store.timezone))
    show(target, "record", {"quarantined": rows})


@click.command(epilog=TIME_FORMS)
@_criteria
@with_target
def release(target: Target, **given: Any) -> None:
    """Bring back what was put under quarantine, with what left because of it.

    \b
    Example:
      memstore release --session helper:web:42 --db memory.db --user lin
    """
    with target.open() as store:
        rows = store.release(target.asker(), **_given(target, given, store.timezone))
    show(target, "record", {"released": rows})


COMMANDS = (agent_settings, usage, quarantine, release)
