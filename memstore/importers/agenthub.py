"""Folders of AgentHub: a JSONL file a session, named by its key, with a small ``.meta.json`` beside it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from memstore.errors import InvalidInput, NotFound
from memstore.importers.hub_profiles import HubStore, Profile, import_profiles
from memstore.importers.intake import Intake, Placed, Store
from memstore.importers.lines import strict_object
from memstore.importers.turns import Turn
from memstore.session_key import SessionKey, session_key
from memstore.sessions import DEFAULT_TITLE
from memstore.times import parse_instant
from memstore.types import ImportReport, Progress, Scope, SkippedLine

SUMMARY_MARK = "[历史摘要]"
OLD_AGENT = "default"
MAX_META_BYTES = 1024 * 1024


def import_agenthub(
    store: HubStore,
    folder: str | Path,
    *,
    team_id: str = "default",
    user_id: str | None = None,
    progress: Progress | None = None,
    skipped: Callable[[SkippedLine], None] | None = None,
) -> ImportReport:
    """Import the sessions of an AgentHub folder with their titles, pins and creation times, and its profiles.

    The folder may be the one that holds ``data/``, ``data/`` itself, one agent's folder, or a workspace of the
    older layout. Running it again stores only what is new, and takes over titles and pins as they are there then.

    One AgentHub serves many chat users and does not say who they are beyond the chat id. So by default each
    chat id becomes a user of its own, who sees nothing of the others; with ``user_id`` all sessions are that
    user's.

    ``MEMORY.md`` becomes the profile of its agent, ``USER.md`` that of the user. Without ``user_id`` they are taken
    over only where one user alone has sessions of it: nobody's profile is shown to another. A profile that a person or
    a pipeline wrote stays.

    :param skipped: handed every line that could not be used; the report counts them all and names the first 1,000.
    :raises InvalidInput: when there is no such folder, or nothing in it looks like AgentHub's.
    :raises ImportStopped: when the store takes no more; see :func:`memstore.importers.import_jsonl`.
    """
    Scope(team_id, "-" if user_id is None else user_id)  # refuses what can be none before anything is read
    try:
        root = Path(folder).resolve(strict=True)
        homes = list(_homes(root))
        sessions = [
            (home, path) for home in homes for path in sorted(home.sessions.glob("*.jsonl")) if path.is_file()
        ]
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InvalidInput(f"{folder} cannot be imported: {error}") from error
    if not homes:
        raise InvalidInput(f"{folder} holds no AgentHub sessions (data/<agent>/sessions/*.jsonl)")
    intake = Intake(store, [path for _, path in sessions], progress, skipped)
    asked = [_import_session(store, intake, home, path, team_id, user_id) for home, path in sessions]
    for home in homes:
        _report_orphans(intake, home)
    scopes = {scope for scope in asked if scope is not None}
    counted = import_profiles(store, intake, _profiles(root, homes), scopes, team_id, user_id)
    return replace(intake.report(), profiles=counted.stored, profiles_known=counted.known)


@dataclass(frozen=True, slots=True)
class _Home:
    """A folder of session files and the agent they belong to."""

    agent: str
    sessions: Path


def _homes(root: Path) -> Iterator[_Home]:
    """Session folders, older layouts first: a session that was carried over keeps its order."""
    old = [*sorted(root.glob("workspace_*")), root / "workspace"]
    data = root / "data"
    if any(folder.is_dir() for folder in (*old, data)):
        candidates = [*old, *_children(root / "workspace"), *_children(data)]
    else:
        candidates = [root, *_children(root)]
    for folder in candidates:
        if (folder / "sessions").is_dir():
            yield _Home(_agent_of(folder, root), folder / "sessions")


def _children(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(child for child in folder.iterdir() if child.name != "sessions" and child.is_dir())


def _agent_of(folder: Path, root: Path) -> str:
    if folder.name == "workspace":
        return OLD_AGENT
    if folder.name.startswith("workspace_"):
        return folder.name.removeprefix("workspace_")
    if folder != root or folder.parent.name in ("data", "workspace"):
        return folder.name
    # A folder on its own: an agent's, if its files say so, else a workspace of the older layout.
    named = any(True for _ in (folder / "sessions").glob(f"{_literal(folder.name)}_*.jsonl"))
    return folder.name if named else OLD_AGENT


def _literal(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


@dataclass(frozen=True, slots=True)
class _Meta:
    """What a ``.meta.json`` says; None where it says nothing usable."""

    chat_id: str | None = None
    title: str | None = None
    pinned: bool | None = None
    created_at: Any = None
    faults: list[str] = field(default_factory=list)


def _import_session(
    store: Store, intake: Intake, home: _Home, path: Path, team_id: str, user_id: str | None
) -> Scope | None:
    """Whose session it is; None where nothing of it is held."""
    meta_path = _meta_path(path)
    meta = _read_meta(store, meta_path)
    try:
        key = _key_of(home.agent, path.name.removesuffix(".jsonl"), meta)
        scope = Scope(team_id, key.chat_id if user_id is None else user_id, key.agent)
    except InvalidInput as error:
        intake.refuse_file(path, f"its name gives no session key: {error}")
        held = 0
    else:
        held = intake.file(path, lambda turn: Placed(scope, key, _marked(turn)))
    for fault in meta.faults:
        intake.skip(meta_path, fault)
    if not held:
        return None
    told = partial(
        store.set_session,
        scope,
        str(key),
        title=meta.title,
        pinned=meta.pinned,
        created_at=meta.created_at,
    )
    try:
        intake.change(told)
    except NotFound:
        intake.skip(meta_path, "the session was deleted in this store; its title and pin were left alone")
    return scope


def _marked(turn: Turn) -> Turn:
    summary = (
        turn.role == "system" and isinstance(turn.content, str) and turn.content.startswith(SUMMARY_MARK)
    )
    return replace(turn, meta={**turn.meta, "agenthub": "summary"}) if summary else turn


def _key_of(agent: str, stem: str, meta: _Meta) -> SessionKey:
    """The key that a file name was made of by writing ``_`` for ``:``. The name alone is ambiguous where a part
    holds ``_``: the chat id beside it decides, else the channel is what stands before the first one.

    :raises InvalidInput: when that gives no key.
    """
    tail = None if meta.chat_id is None else "_" + meta.chat_id.replace(":", "_")
    if meta.chat_id is not None and tail is not None:
        if stem.endswith(tail) and stem != tail:
            channel = stem.removesuffix(tail).removeprefix(f"{agent}_")
            return session_key(agent, channel, meta.chat_id)
        meta.faults.append(f"chat_id {meta.chat_id!r:.60} is not the one of the file name, which counts")
    rest = stem.removeprefix(f"{agent}_")
    if "_" not in rest:  # then it was no agent, but a channel of the same name
        rest = stem
    channel, underscore, chat_id = rest.partition("_")
    if not underscore:
        raise InvalidInput("it is not <channel>_<chat id>")
    return session_key(agent, channel, chat_id)


def _meta_path(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".jsonl") + ".meta.json")


def _read_meta(store: Store, path: Path) -> _Meta:
    if not path.is_file():
        return _Meta()
    try:
        if path.stat().st_size > MAX_META_BYTES:
            return _Meta(faults=["it is too large to be session metadata"])
        record = strict_object(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, InvalidInput) as error:
        return _Meta(faults=[f"session metadata cannot be read: {error}"])
    return _checked_meta(store, record)


def _checked_meta(store: Store, record: Mapping[str, Any]) -> _Meta:
    """Take what is usable, field by field: a broken pin does not cost the title."""
    values: dict[str, Any] = {}
    faults = []
    for name, kind in (("chat_id", str), ("title", str), ("pinned", bool)):
        value = record.get(name)
        if isinstance(value, kind):
            values[name] = value
        elif value is not None:
            faults.append(f"{name} is {value!r:.40}, which is of no use")
    created_at = record.get("created_at")
    try:
        if created_at is not None:
            parse_instant(created_at, store.timezone)
    except InvalidInput as error:
        faults.append(f"created_at: {error}")
        created_at = None
    title = values.get("title")
    if title is not None and title.strip() in ("", DEFAULT_TITLE):
        values["title"] = None  # nobody gave it one: the first message is a better title
    return _Meta(created_at=created_at, faults=faults, **values)


def _report_orphans(intake: Intake, home: _Home) -> None:
    for meta in sorted(home.sessions.glob("*.meta.json")):
        if not meta.with_name(meta.name.removesuffix(".meta.json") + ".jsonl").is_file():
            intake.skip(meta, "no session file beside it: the chat was cleared and holds no messages")


def _profiles(root: Path, homes: list[_Home]) -> list[Profile]:
    """Profile files, the likelier place of one first."""
    folders = {home.sessions.parent: home.agent for home in homes}
    for folder in (*_children(root / "data"), *_children(root / "workspace")):
        if (folder / "memory").is_dir():  # an agent that remembers, and whose sessions were cleared
            folders.setdefault(folder, _agent_of(folder, root))
    found = [
        Profile(place / "MEMORY.md", agent)
        for folder, agent in sorted(folders.items())
        for place in (folder / "memory", folder)
    ]
    places = [root / "auth", root, root / "memory", root / "workspace"]
    for folder in sorted(folders):
        places += [folder / "memory", folder]
    found += [Profile(place / "USER.md", None) for place in places]
    found += [Profile(place / "MEMORY.md", OLD_AGENT) for place in (root / "memory", root)]
    unique: dict[Path, Profile] = {}
    for profile in found:
        if profile.path.is_file():
            unique.setdefault(profile.path, profile)
    return list(unique.values())
