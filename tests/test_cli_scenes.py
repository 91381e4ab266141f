"""The commands for scenes and profiles: scenes, profile, memory."""

import pytest

from cli_support import Cli
from conftest import FAST
from memstore import MemoryStore, Scope
from memstore.testing import ManualClock
from writing_support import Desk, one_scene


@pytest.fixture
def cli(tmp_path):
    return Cli(tmp_path / "memory.db")


@pytest.fixture
def told(cli):
    """A store in which lin's agent made a scene of two memories, and both profiles."""
    clock = ManualClock()
    with MemoryStore(cli.db, clock=clock, settings=FAST) as store:
        desk = Desk(store, clock, Scope("default", "lin", "default"))
        desk.talk(session="default:web:1")
        desk.extracted("喝龙井\x1b[31m", kind="persona", session="default:web:1")
        desk.extracted("去了成都", session="default:web:1")
        desk.judge.writes = one_scene
        desk.judge.tells = lambda task: f"the {task.profile}'s profile"
        for kind in ("scenes", "agent_profile", "user_profile"):
            assert desk.work(kind, force=True) == "done"
    return cli


def test_scenes_are_listed_with_their_sources(told):
    (scene,) = told.answer("scenes")["scenes"]
    assert (scene["name"], scene["version"], scene["state"]) == ("Everything", 1, "live")
    assert scene["content"] == "喝龙井[31m\n去了成都"
    assert len(scene["sources"]) == 2
    shown = told.shown("scenes")
    assert "Everything" in shown
    assert scene["sources"][0] in shown
    assert told.answer("scenes", "--agent", "other")["scenes"] == []
    assert told.shown("scenes", "--agent", "other") == "no scenes\n"


def test_the_history_of_a_scene(told):
    (scene,) = told.answer("scenes")["scenes"]
    assert told.answer("scenes", "--history", scene["id"])["scenes"] == [scene]
    result = told("scenes", "--history", "nobody")
    assert result.exit_code == 1
    assert "no scene 'nobody'" in result.stderr
    assert told("scenes", "--history", scene["id"], "--user", "bob").exit_code == 1


def test_profiles_are_shown(told):
    assert told.answer("profile")["content"] == "the user's profile"
    assert told.answer("profile", "agent")["content"] == "the agent's profile"
    assert "content: the user's profile" in told.shown("profile", "user")
    for missing in (("agent", "--agent", "other"), ("user", "--user", "bob")):
        result = told("profile", *missing)
        assert result.exit_code == 1
        assert "memory write" in result.stderr


def test_versions_and_rolling_back(told):
    told.answer("memory", "write", "by hand")
    versions = told.answer("profile", "agent", "--history")["profiles"]
    assert [(one["version"], one["state"]) for one in versions] == [(1, "superseded"), (2, "live")]
    assert told.shown("profile", "agent", "--history").startswith("version 1  (superseded)")
    assert told.answer("profile", "agent", "--roll-back", "1")["version"] == 3
    assert told.answer("memory", "read")["text"] == "the agent's profile"
    assert told("profile", "agent", "--roll-back", "9").exit_code == 1
    assert told("profile", "agent", "--roll-back", "1", "--history").exit_code == 2
    assert told("profile", "team").exit_code == 2
    assert told.shown("profile", "--history", "--user", "bob") == "no versions\n"


def test_memory_is_read_and_written(cli):
    assert cli.answer("memory", "write", "--agent", "reviewer", "- 合同用中文审")["agent_id"] == "reviewer"
    assert cli.shown("memory", "read", "--agent", "reviewer") == "- 合同用中文审\n"
    assert cli.answer("memory", "write", stdin="two\nlines\n")["content"] == "two\nlines\n"
    assert cli.answer("memory", "read") == {"text": "two\nlines\n"}


@pytest.mark.parametrize(
    ("stdin", "code", "words"),
    [(b"", 2, "must not be empty"), (b"\xff\xfe\x00", 2, "no UTF-8"), (b"x" * 5_000, 2, "4000 is the most")],
)
def test_what_is_no_profile_is_refused(cli, stdin, code, words):
    result = cli("memory", "write", stdin=stdin)
    assert result.exit_code == code
    assert words in result.stderr


def test_nobody_is_not_everybody(cli):
    for command in (("scenes",), ("profile",), ("memory", "read")):
        assert cli(*command, MEMSTORE_USER=None).exit_code == 2
