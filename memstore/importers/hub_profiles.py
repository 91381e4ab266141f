"""Profiles of an AgentHub folder: texts that become versions of the agent's and the user's profile."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from memstore.errors import InvalidInput, NotPermitted
from memstore.importers.intake import Intake, Store, shown
from memstore.pipelines.profile_versions import TakenOver
from memstore.types import Scope

MAX_BYTES = 1024 * 1024
KEPT = "the store's profile was written by a person or a pipeline, and stays as it is"


class HubStore(Store, Protocol):
    """What the import of profiles needs of a store beside."""

    def import_profile(self, scope: Scope, which: Literal["agent", "user"], text: str) -> TakenOver: ...


@dataclass(frozen=True, slots=True)
class Profile:
    """A file with a profile: the agent's, or with ``agent`` None the user's."""

    path: Path
    agent: str | None


@dataclass(slots=True)
class Counted:
    stored: int = 0
    known: int = 0


def import_profiles(
    store: HubStore,
    intake: Intake,
    profiles: Iterable[Profile],
    scopes: set[Scope],
    team_id: str,
    user_id: str | None,
) -> Counted:
    """:param scopes: of the sessions that were imported: they say whose an agent is where ``user_id`` does not.

    :raises ImportStopped: when the store cannot take it.
    """
    counted = Counted()
    taken: dict[str | None, Path] = {}
    for profile in profiles:
        if profile.agent in taken:
            intake.skip(profile.path, f"the same profile was read from {shown(taken[profile.agent])} already")
            continue
        taken[profile.agent] = profile.path
        try:
            scope = _scope(profile, scopes, team_id, user_id)
            text = _text(profile.path)
            _take_over(store, intake, profile, scope, text, counted)
        except (InvalidInput, NotPermitted) as error:
            intake.skip(profile.path, str(error))
    return counted


def _scope(profile: Profile, scopes: set[Scope], team_id: str, user_id: str | None) -> Scope:
    """:raises InvalidInput: when it cannot be told whose profile it is."""
    if user_id is not None:
        return Scope(team_id, user_id, profile.agent)
    users = sorted({scope.user_id for scope in scopes if profile.agent in (None, scope.agent_id)})
    if len(users) != 1:
        raise InvalidInput(
            f"whose profile it is cannot be told: {len(users)} users have sessions here. To take it over for one of "
            "them, import again and name that user (user_id; --user)"
        )
    return Scope(team_id, users[0], profile.agent)


def _text(path: Path) -> str:
    """:raises InvalidInput: when the file holds no text."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidInput(f"it is larger than {MAX_BYTES} bytes, which no profile is")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the profile cannot be read: {error}") from error


def _take_over(
    store: HubStore, intake: Intake, profile: Profile, scope: Scope, text: str, counted: Counted
) -> None:
    found: list[TakenOver] = []
    which: Literal["agent", "user"] = "user" if profile.agent is None else "agent"
    intake.change(lambda: found.append(store.import_profile(scope, which, text)))
    (result,) = found
    if result.outcome == "kept":
        intake.skip(profile.path, KEPT)
    counted.stored += result.outcome == "stored"
    counted.known += result.outcome == "known"
    if result.left_out:
        intake.skip(
            profile.path, f"it is too long for a profile: its last {result.left_out} characters were left out"
        )
