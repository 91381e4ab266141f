"""The options that every command has: which store, who asks, and how the answer is shown."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memstore.cli.failures import switch_debug_on
from memstore.clock import SystemClock
from memstore.config import (
    ENVIRONMENT,
    Settings,
    daily_tokens_allowed,
    from_environment,
    network_file_system_allowed,
)
from memstore.errors import StoreMissing
from memstore.paths import quoted
from memstore.session_key import DEFAULT_CHANNEL, session_key
from memstore.types import Scope
from memstore.wording import LANGUAGES

if TYPE_CHECKING:
    from memstore.store import MemoryStore

DEFAULT_TEAM = "default"
DEFAULT_AGENT = "default"

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Target:
    """The common options of one call."""

    db: str
    team: str | None
    user: str | None
    agent: str | None
    task: str | None
    embedder: str | None
    timezone: str | None
    as_text: bool
    network_file_system: bool = False
    llm: str | None = None

    @property
    def path(self) -> Path:
        return Path(self.db)

    def asker(self) -> Scope:
        """The scope for reading and for changing rows by id: without an agent, all agents of the user."""
        return Scope(self.need_team(), self.need_user(), self.agent, self.task)

    def writer(self) -> Scope:
        """The scope for new rows, which belong to some agent."""
        agent = DEFAULT_AGENT if self.agent is None else self.agent
        return Scope(self.need_team(), self.need_user(), agent, self.task)

    def need_team(self) -> str:
        return DEFAULT_TEAM if self.team is None else self.team

    def need_user(self) -> str:
        """:raises click.UsageError: when nobody was named; nobody is not everybody."""
        if not self.user:
            raise click.UsageError(f"who asks? Name the user by --user or {ENVIRONMENT['user']}")
        return self.user

    def session(self, session: str | None) -> str | None:
        """A session as a reader names it. A bare chat id is completed as ``record`` completed it."""
        if session is None or self.agent is not None or ":" in session:
            return session
        return str(session_key(DEFAULT_AGENT, DEFAULT_CHANNEL, session))

    def settings(self) -> Settings:
        return Settings(
            timezone=self.timezone,
            network_file_system=self.network_file_system,
            daily_tokens=daily_tokens_allowed(),
        )

    def open(self, *, create: bool = False, fold_variants: bool | None = None) -> "MemoryStore":
        """Open the store; only commands that bring something in make one.

        :param fold_variants: of a store that is made.
        :raises StoreMissing: when it is not there and is not to be made.
        """
        if not create:
            self.check_there()
        from memstore.store import MemoryStore

        return MemoryStore(
            self.path,
            self.embedder,
            settings=replace(self.settings(), fold_variants=fold_variants),
            llm=self.llm,
        )

    def check_there(self) -> None:
        """:raises StoreMissing: naming the command that makes the store, or makes it again."""
        if self.path.exists():
            return
        from memstore.backup import missing_but_not_lost

        path = self.path.absolute()
        found = missing_but_not_lost(path, SystemClock().now())
        if found is not None:
            raise StoreMissing(found)
        raise StoreMissing(
            f"there is no store at {path}. To make one run: memstore init --db {quoted(path)} "
            "(or check --db and MEMSTORE_DB)"
        )


def _target(values: dict[str, Any]) -> Target:
    if not values["db"]:
        raise click.UsageError(f"which store? Name its file by --db or {ENVIRONMENT['db']}")
    embedder = values["embedder"]
    return Target(
        db=values["db"],
        team=values["team"],
        user=values["user"],
        agent=values["agent"],
        task=values["task"],
        embedder=None if embedder in (None, "", "none") else embedder,
        timezone=values["timezone"],
        as_text=values["output_format"] == "text",
        network_file_system=values["network_file_system"] or network_file_system_allowed(),
        llm=None if values.get("llm") in (None, "", "none") else values["llm"],
    )


def _named(option: str, meta: str, text: str) -> Callable[[Function], Function]:
    return click.option(
        f"--{option}",
        metavar=meta,
        default=lambda: from_environment(option),
        help=f"{text} [{ENVIRONMENT[option]}]",
    )


debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=switch_debug_on,
    help="Show a traceback with an error.",
)

_OPTIONS: tuple[Callable[..., Any], ...] = (
    _named("db", "PATH", "The database file."),
    _named("team", "TEAM", "The asker's team; 'default' if none is named."),
    _named("user", "USER", "Who asks and whose rows they are."),
    _named(
        "agent", "AGENT", "Whose rows; if none is named, readers see all agents and new rows get 'default'."
    ),
    _named("task", "TASK", "Narrows to one task."),
    _named("embedder", "MODEL", "none (text search only), local, openai:MODEL, or st:NAME_OR_FOLDER."),
    click.option(
        "--timezone", metavar="ZONE", help="The store's IANA zone, fixed when it is made, like Asia/Shanghai."
    ),
    click.option(
        "--format",
        "output_format",
        type=click.Choice(["json", "text"]),
        default="json",
        show_default=True,
        help="JSON for programs, text for people.",
    ),
    click.option(
        "--network-file-system",
        is_flag=True,
        help="Open a store on a network file system all the same; only one process at a time may. "
        f"[{ENVIRONMENT['network_file_system']}=1]",
    ),
    debug_option,
)
_NAMES = (
    "db", "team", "user", "agent", "task", "embedder", "timezone", "output_format", "network_file_system",
)  # fmt: skip


def with_target(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the common options; it gets them as one :class:`Target`, its first argument."""

    @wraps(command)
    def call(**values: Any) -> None:
        common = {name: values.pop(name) for name in (*_NAMES, "llm") if name in values}
        command(_target(common), **values)

    decorated: Callable[..., None] = call
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


class FreeText(click.Command):
    """A command whose argument is anybody's text: ``-hook`` and ``- a list item`` are text, not options.

    No option here has a short form, so a single dash never begins one. A double dash does: a mistyped option
    must not become the text, unless ``--`` says that text follows.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["context_settings"] = {**kwargs.get("context_settings", {}), "ignore_unknown_options": True}
        super().__init__(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        self._refuse_unknown(ctx, args)
        return super().parse_args(ctx, args)

    def _refuse_unknown(self, ctx: click.Context, args: list[str]) -> None:
        known = {name: p for p in self.get_params(ctx) if isinstance(p, click.Option) for name in p.opts}
        remaining = iter(args)
        for argument in remaining:
            if argument == "--":
                return
            if argument.startswith("--"):
                name, equals, _ = argument.partition("=")
                if name not in known:
                    raise click.NoSuchOption(name, ctx=ctx)
                if not equals and not known[name].is_flag:
                    next(remaining, None)  # its value may begin with a dash


TIME_FORMS = (
    "A time, in the store's zone unless it names another: 2026-03-01, 2026-03-01T08:00, 2026-03, today, yesterday, "
    "now, '3d ago' (今天, 昨天, 现在, 3天前), or seconds since 1970."
)
"""For the help of commands with time options."""

_TIMES = {
    "since": ("TIME", "{what} then or later."),
    "until": ("TIME", "{what} before."),
    "last": ("SPAN", "{what} within that span before now: 30m, 12h, 7d, 2w (分钟, 小时, 天, 周)."),
    "as-of": ("TIME", "What was true then."),
    "known-at": ("TIME", "By what the store knew then."),
}


def time_options(*names: str, what: str = "") -> Callable[[Function], Function]:
    """Options that :func:`memstore.cli.inputs.times_of` reads; ``what`` says what happened in the interval."""

    def decorate(function: Function) -> Function:
        for name in reversed(names):
            meta, text = _TIMES[name]
            function = click.option(f"--{name}", metavar=meta, help=text.format(what=what))(function)
        return function

    return decorate


llm_option = _named(
    "llm", "MODEL", "none (rules for Chinese and English), openai:MODEL@BASE_URL, or openai:MODEL."
)
"""For commands that may have conversations judged; the key of a model is the environment's."""

language_option = click.option(
    "--language",
    type=click.Choice(LANGUAGES),
    default=lambda: from_environment("language") or "en",
    help=f"Of the sentences of --format text. [{ENVIRONMENT['language']}]",
)
limit_option = partial(
    click.option, "--limit", type=int, show_default=True, help="How many at most; 0 gives none."
)
metadata_option = partial(
    click.option,
    "--metadata",
    multiple=True,
    metavar="KEY=VALUE",
    help="VALUE is JSON where it can be read as JSON, else text; or a whole JSON object. Repeatable.",
)
