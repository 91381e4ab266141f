"""Settings of agents: kept in the store for each team, user and agent."""

from dataclasses import asdict
from typing import Any

import pytest

from cli_support import Cli
from conftest import OpenStore, leave_team
from memstore import MemoryStore, Scope
from memstore.agent_settings import NAMES, AgentSettings
from memstore.errors import ConfigError, InvalidInput, InvalidScope, NotPermitted


def test_without_changes_the_defaults_are_read_and_nothing_is_written(store: MemoryStore, ana: Scope) -> None:
    assert store.agent_settings(ana, "helper") == AgentSettings()
    with store._storage.read() as reader:
        assert reader.team_ids() == []


def test_changes_are_kept_added_to_and_reset(store: MemoryStore, ana: Scope, open_store: OpenStore) -> None:
    changed = store.agent_settings(ana, "helper", rounds=3, warm_up=[1, 2], model="small")
    assert changed == AgentSettings(rounds=3, warm_up=(1, 2), model="small")
    assert store.agent_settings(ana, "helper", idle_s=120).rounds == 3
    store.close()
    again = open_store()
    assert again.agent_settings(ana, "helper") == AgentSettings(
        rounds=3, warm_up=(1, 2), model="small", idle_s=120
    )
    left = again.agent_settings(ana, "helper", reset=["rounds", "model"], scenes=4)
    assert left == AgentSettings(warm_up=(1, 2), idle_s=120, scenes=4)
    assert again.agent_settings(ana, "helper") == left


def test_only_what_differs_is_kept_so_that_better_defaults_reach_an_agent(
    store: MemoryStore, ana: Scope
) -> None:
    store.agent_settings(ana, "helper", rounds=AgentSettings().rounds, scenes=4)
    with store._storage.read() as reader:
        from memstore.storage.pipeline_rows import Owner

        assert reader.agent_settings(Owner("acme", "ana"), "helper") == {"scenes": 4}


def test_they_are_one_agents_of_one_user_of_one_team(store: MemoryStore, ana: Scope) -> None:
    store.agent_settings(ana, "helper", rounds=3)
    for scope, agent in [
        (ana, "other"),
        (Scope("acme", "bo", "helper"), "helper"),
        (Scope("beta", "ana", "helper"), "helper"),
    ]:
        assert store.agent_settings(scope, agent) == AgentSettings()


@pytest.mark.parametrize(("changes", "error", "said"), [
    ({"round": 3}, InvalidInput, "no setting 'round'.*rounds"),
    ({"rounds": 0}, ConfigError, "rounds"),
    ({"scenes": 0}, ConfigError, "scenes must be a whole number from 1 to 15, not 0"),
    ({"scenes": 16}, ConfigError, "scenes must be a whole number from 1 to 15, not 16"),
    ({"idle_s": float("nan")}, ConfigError, "idle_s"),
    ({"warm_up": "1,2"}, ConfigError, "warm_up"),
    ({"model": " "}, ConfigError, "model"),
    ({"reset": ["wrong"]}, InvalidInput, "no setting 'wrong'"),
    ({"rounds": 3, "reset": ["rounds"]}, InvalidInput, "set and reset"),
    ({"scene_max_interval_s": 1}, ConfigError, "scene_max_interval_s"),
])  # fmt: skip
def test_what_makes_no_sense_changes_nothing(
    store: MemoryStore, ana: Scope, changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    store.agent_settings(ana, "helper", scenes=4)
    with pytest.raises(error, match=said):
        store.agent_settings(ana, "helper", **{"profile_chars": 100, **changes})
    assert store.agent_settings(ana, "helper") == AgentSettings(scenes=4)


@pytest.mark.parametrize("agent", ["", " ", None, 5])
def test_an_agent_that_cannot_be_one_is_refused(store: MemoryStore, ana: Scope, agent: Any) -> None:
    with pytest.raises((InvalidScope, InvalidInput)):
        store.agent_settings(ana, agent, rounds=3)


def test_who_left_the_team_neither_reads_nor_changes_them(store: MemoryStore, ana: Scope) -> None:
    store.agent_settings(ana, "helper", rounds=3)
    leave_team(store, ana)
    with pytest.raises(NotPermitted):
        store.agent_settings(ana, "helper")
    with pytest.raises(NotPermitted):
        store.agent_settings(ana, "helper", rounds=4)


def test_every_setting_can_be_set_on_the_command_line(store: MemoryStore) -> None:
    run = Cli(store.path)
    values = {
        name: value for name, value in asdict(AgentSettings()).items() if name not in ("warm_up", "model")
    }
    changed = run.answer("agent-settings", "helper", *(f"{name}={value}" for name, value in values.items()))
    assert set(changed) == set(NAMES)
    found = run.answer("agent-settings", "helper", "rounds=3", "idle_s=120", "warm_up=1,2", "model=small")
    assert (found["rounds"], found["idle_s"], found["warm_up"], found["model"]) == (3, 120, [1, 2], "small")
    found = run.answer("agent-settings", "helper", "warm_up=", "--reset", "rounds", "--reset", "model")
    assert (found["rounds"], found["warm_up"], found["model"]) == (5, [], None)
    assert store.agent_settings(Scope("default", "lin"), "helper").idle_s == 120
    assert "idle_s: 120" in run.shown("agent-settings", "helper")


@pytest.mark.parametrize("name", ["agent_id", "reset", "self", "scope", "changes", "rounds "])
def test_what_is_no_setting_is_wrong_use_on_the_command_line(store: MemoryStore, name: str) -> None:
    result = Cli(store.path)("agent-settings", "helper", f"{name}=1")
    assert result.exit_code == 2
    assert f"no setting named {name!r}; there are rounds" in result.stderr


def test_a_setting_that_is_given_twice_is_wrong_use(store: MemoryStore) -> None:
    run = Cli(store.path)
    result = run("agent-settings", "helper", "rounds=1", "scenes=3", "rounds=2")
    assert result.exit_code == 2
    assert "rounds is given twice" in result.stderr
    assert run.answer("agent-settings", "helper")["scenes"] == AgentSettings().scenes


@pytest.mark.parametrize("change", ["rounds", "=3", "rounds=many", "nothing=1"])
def test_a_change_that_cannot_be_read_is_wrong_use_or_named(store: MemoryStore, change: str) -> None:
    result = Cli(store.path)("agent-settings", "helper", change)
    assert result.exit_code in (1, 2)
    assert change.partition("=")[0] in result.stderr or "NAME=VALUE" in result.stderr
