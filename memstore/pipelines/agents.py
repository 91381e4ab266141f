"""The settings of an asker's agents, read and changed (SPEC W12)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from memstore.agent_settings import NAMES, AgentSettings
from memstore.asking import principal
from memstore.errors import InvalidInput, NotPermitted
from memstore.storage.base import Storage
from memstore.storage.pipeline_rows import Owner
from memstore.types import Scope

_DEFAULTS = AgentSettings()


def settings_of(storage: Storage, scope: Scope, agent_id: str) -> AgentSettings:
    """The asker's own agent's, else the defaults."""
    of = _owner(scope, agent_id)
    with storage.read() as reader:
        if not principal(reader, scope).is_member and scope.team_id in reader.team_ids():
            raise _no_member(scope)  # of a team that nobody wrote for yet the first writer will be one
        return AgentSettings(**reader.agent_settings(of, agent_id))


def change_settings(
    storage: Storage,
    scope: Scope,
    agent_id: str,
    changes: Mapping[str, Any],
    reset: Sequence[str],
    now: int,
) -> AgentSettings:
    """Keep what differs from the defaults afterwards.

    :raises InvalidInput: for a name that is none. :raises memstore.errors.ConfigError: for a value that makes no sense.
    """
    of = _owner(scope, agent_id)
    names = _checked_names(changes, reset)
    with storage.write() as tx:
        if not tx.join(scope.team_id, scope.user_id, now).is_member:
            raise _no_member(scope)
        kept = {name: value for name, value in tx.agent_settings(of, agent_id).items() if name not in names}
        changed = replace(AgentSettings(), **{**kept, **changes})
        standard = asdict(_DEFAULTS)
        differing = {name: value for name, value in asdict(changed).items() if value != standard[name]}
        tx.set_agent_settings(of, agent_id, differing, now)
    return changed


def _owner(scope: Scope, agent_id: str) -> Owner:
    if agent_id is None:
        raise InvalidInput("settings are an agent's: name it")
    replace(scope, agent_id=agent_id)  # says what is wrong with an id that cannot be one
    return Owner(scope.team_id, scope.user_id)


def _checked_names(changes: Mapping[str, Any], reset: Sequence[str]) -> set[str]:
    """The settings that lose the value they have."""
    if isinstance(reset, str):
        reset = [reset]
    for name in [*changes, *reset]:
        if name not in NAMES:
            raise InvalidInput(f"there is no setting {name!r:.60} of an agent; there are {', '.join(NAMES)}")
    both = sorted(changes.keys() & set(reset))
    if both:
        raise InvalidInput(f"{both[0]} cannot be set and reset at once; leave one out")
    return {*changes, *reset}


def _no_member(scope: Scope) -> NotPermitted:
    return NotPermitted(f"user {scope.user_id!r} is not a member of team {scope.team_id!r}")
