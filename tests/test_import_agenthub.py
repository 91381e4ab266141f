"""Importing AgentHub folders. Numbers in test names are those of the catalogue of cases that users met."""

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memstore import InvalidInput, MemoryStore, Scope, Settings, StoredMessage
from memstore.importers import import_agenthub
from memstore.storage.pipeline_rows import Owner
from memstore.testing import HashEmbedder, ManualClock
from memstore.types import ImportReport, SessionRecord

_numbers = itertools.count()
START_MS = 1_768_464_000_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryStore]:
    """One store for the file: tests keep apart by team."""
    path = tmp_path_factory.mktemp("agenthub") / "memory.db"
    chosen = Settings(timezone="Asia/Shanghai", durability="process")
    with MemoryStore(path, HashEmbedder(), ManualClock(datetime(2026, 6, 1, tzinfo=UTC)), chosen) as opened:
        yield opened


@pytest.fixture
def team() -> str:
    return f"team-{next(_numbers)}"


def said(*words: str, start_ms: int = START_MS) -> bytes:
    roles = itertools.cycle(("user", "assistant"))
    return b"".join(
        json.dumps(
            {"role": role, "content": text, "timestamp": start_ms + 1000 * n}, ensure_ascii=False
        ).encode()
        + b"\n"
        for n, (role, text) in enumerate(zip(roles, words, strict=False))
    )


def put(path: Path, data: bytes | dict[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        data if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False, indent=1).encode()
    )
    return path


def held(store: MemoryStore, team: str, user: str, session: str) -> list[StoredMessage]:
    return store.messages(Scope(team, user), session)


def texts(store: MemoryStore, team: str, user: str, session: str) -> list[str]:
    return [message.text for message in held(store, team, user, session)]


def the_session(store: MemoryStore, team: str, user: str) -> SessionRecord:
    (record,) = store.sessions(Scope(team, user))
    return record


def skipped(report: ImportReport) -> list[tuple[str, int]]:
    return [(Path(s.file).name, s.line) for s in report.skipped]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A whole AgentHub: two agents with three sessions, profiles, and what else lies about."""
    reviewer = tmp_path / "data" / "reviewer" / "sessions"
    put(reviewer / "reviewer_wecom_zhangsan.jsonl", said("审核这份合同", "好的"))
    put(
        reviewer / "reviewer_wecom_zhangsan.meta.json",
        {
            "chat_id": "zhangsan",
            "title": "合同审核",
            "created_at": START_MS - 60_000,
            "updated_at": START_MS,
            "pinned": True,
        },
    )
    put(reviewer / "reviewer_feishu_group_1.jsonl", said("周报在哪里", "在共享盘"))
    put(
        tmp_path / "data" / "default" / "sessions" / "default_cli_direct.jsonl",
        said("你好", "你好！", "再见"),
    )
    put(tmp_path / "data" / "reviewer" / "memory" / "MEMORY.md", b"# memory\n")
    put(tmp_path / "auth" / "USER.md", b"# user\n")
    put(tmp_path / "data" / "reviewer" / "agent.json", b"{}")
    put(tmp_path / "src" / "sessions" / "not_a_session.jsonl", said("no"))
    return tmp_path


# --- layouts ---------------------------------------------------------------------------------------------------


def test_a_whole_folder(store: MemoryStore, team: str, root: Path) -> None:
    report = import_agenthub(store, root, team_id=team)
    assert (report.files, report.read, report.stored, report.known, report.empty_files) == (3, 7, 7, 0, ())
    assert texts(store, team, "zhangsan", "reviewer:wecom:zhangsan") == ["审核这份合同", "好的"]
    assert texts(store, team, "group_1", "reviewer:feishu:group_1") == ["周报在哪里", "在共享盘"]
    assert texts(store, team, "direct", "default:cli:direct") == ["你好", "你好！", "再见"]
    first = held(store, team, "zhangsan", "reviewer:wecom:zhangsan")[0]
    assert (first.role, first.agent_id, first.source_kind) == ("user", "reviewer", "import")
    assert first.created_at == datetime(2026, 1, 15, 8, tzinfo=UTC)

    record = the_session(store, team, "zhangsan")
    assert (record.title, record.pinned) == ("合同审核", True)
    assert record.created_at == datetime(2026, 1, 15, 7, 59, tzinfo=UTC)
    assert the_session(store, team, "group_1").title == "周报在哪里"

    assert sorted(skipped(report)) == [("MEMORY.md", 0), ("USER.md", 0)]
    assert all("whose profile it is cannot be told" in s.reason for s in report.skipped)
    assert (report.profiles, report.profiles_known) == (0, 0)
    assert store.read_memory(Scope(team, "zhangsan", "reviewer")) == ""


@pytest.mark.parametrize(
    ("part", "sessions"), [("", 3), ("data", 3), ("data/reviewer", 2), ("data/default", 1)], ids=str
)
def test_the_folder_may_be_a_part(
    store: MemoryStore, team: str, root: Path, part: str, sessions: int
) -> None:
    report = import_agenthub(store, root / part, team_id=team, user_id="me")
    assert report.files == sessions
    assert import_agenthub(store, root, team_id=team, user_id="me").known == report.stored
    assert {s.session for s in store.sessions(Scope(team, "me"))} == {
        "reviewer:wecom:zhangsan",
        "reviewer:feishu:group_1",
        "default:cli:direct",
    }


def test_an_agents_folder_that_was_copied_away(store: MemoryStore, team: str, root: Path) -> None:
    away = root / "backup" / "reviewer"
    away.parent.mkdir()
    (root / "data" / "reviewer").rename(away)
    import_agenthub(store, away, team_id=team, user_id="me")
    assert {s.agent_id for s in store.sessions(Scope(team, "me"))} == {"reviewer"}


@pytest.mark.parametrize(
    ("where", "below", "agent"),
    [
        ("workspace/sessions", "", "default"),
        ("workspace/sessions", "workspace", "default"),
        ("anything/sessions", "anything", "default"),
        ("workspace/writer/sessions", "", "writer"),
        ("workspace/writer/sessions", "workspace", "writer"),
        ("workspace/writer/sessions", "workspace/writer", "writer"),
        ("workspace_writer/sessions", "", "writer"),
        ("workspace_writer/sessions", "workspace_writer", "writer"),
    ],
)
def test_older_layouts(
    store: MemoryStore, team: str, tmp_path: Path, where: str, below: str, agent: str
) -> None:
    put(tmp_path / where / "wecom_li_si.jsonl", said("在吗", "在"))
    report = import_agenthub(store, tmp_path / below, team_id=team)
    assert report.stored == 2
    assert texts(store, team, "li_si", f"{agent}:wecom:li_si") == ["在吗", "在"]


def test_a_session_in_both_layouts_is_one_session_in_order(
    store: MemoryStore, team: str, tmp_path: Path
) -> None:
    put(tmp_path / "workspace" / "sessions" / "cli_x.jsonl", said("一", "二"))
    put(
        tmp_path / "data" / "default" / "sessions" / "default_cli_x.jsonl",
        said("一", "二", "三", "四")[len(said("一")) :],
    )
    report = import_agenthub(store, tmp_path, team_id=team)
    assert (report.stored, report.known) == (4, 1)
    assert texts(store, team, "x", "default:cli:x") == ["一", "二", "三", "四"]


def test_one_user_for_all_sessions(store: MemoryStore, team: str, root: Path) -> None:
    import_agenthub(store, root, team_id=team, user_id="me")
    assert len(store.sessions(Scope(team, "me"))) == 3
    assert store.sessions(Scope(team, "zhangsan")) == []


@pytest.mark.parametrize("wrong", [{"user_id": ""}, {"team_id": ""}, {"user_id": " x"}])
def test_a_scope_that_is_none_is_raised_at_once(
    store: MemoryStore, root: Path, wrong: dict[str, str]
) -> None:
    with pytest.raises(InvalidInput):
        import_agenthub(store, root, **wrong)


def test_no_agenthub_is_an_error(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "data" / "reviewer").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "data", tmp_path / "missing", "a\0b"):
        with pytest.raises(InvalidInput):
            import_agenthub(store, folder)


# --- names and metadata ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "chat_id", "key"),
    [
        ("coder_wecom_a", None, "coder:wecom:a"),
        ("wecom_a", None, "coder:wecom:a"),
        ("coder_wecom_a_b_c", None, "coder:wecom:a_b_c"),
        ("coder_wecom_a_b", "a:b", "coder:wecom:a:b"),
        ("coder_my_channel_a", "a", "coder:my_channel:a"),
        ("coder_my_channel_a", None, "coder:my:channel_a"),
        ("coder_x", None, "coder:coder:x"),
        ("coder_x", "x", "coder:coder:x"),
        ("coder_http_会话一", None, "coder:http:会话一"),
        ("other_http_a", None, "coder:other:http_a"),
    ],
)
def test_file_names_give_session_keys(
    store: MemoryStore, team: str, tmp_path: Path, name: str, chat_id: str | None, key: str
) -> None:
    sessions = tmp_path / "data" / "coder" / "sessions"
    put(sessions / f"{name}.jsonl", said("hello"))
    if chat_id is not None:
        put(sessions / f"{name}.meta.json", {"chat_id": chat_id})
    report = import_agenthub(store, tmp_path, team_id=team, user_id="me")
    assert report.skipped == ()
    assert the_session(store, team, "me").session == key


def test_an_agent_with_underscores(store: MemoryStore, team: str, tmp_path: Path) -> None:
    put(tmp_path / "data" / "code_review" / "sessions" / "code_review_cli_x.jsonl", said("hello"))
    import_agenthub(store, tmp_path, team_id=team, user_id="me")
    assert the_session(store, team, "me").session == "code_review:cli:x"


HOSTILE = ["coder_.._x", "coder_cli_..", "coder_cli_a\nb", "coder_cli_a\\b", "coder_cli_", "nounderscore",
           "coder_cli_\udcff", "coder_cli_C:\\x", "_", ".", "coder_cli_ x"]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_case_70_hostile_names_are_reported(store: MemoryStore, team: str, tmp_path: Path, name: str) -> None:
    sessions = tmp_path / "hub" / "data" / "coder" / "sessions"
    put(sessions / f"{name}.jsonl", said("evil"))
    put(sessions / "coder_cli_good.jsonl", said("good"))
    report = import_agenthub(store, tmp_path / "hub", team_id=team, user_id="me")
    (reported,) = report.skipped
    reported.file.encode()
    assert (reported.file.isprintable(), reported.line) == (True, 0)
    assert "session key" in reported.reason
    assert report.empty_files == (reported.file,)
    assert (report.files, report.stored) == (2, 1)
    assert texts(store, team, "me", "coder:cli:good") == ["good"]
    assert [p.name for p in tmp_path.iterdir()] == ["hub"]


@pytest.mark.parametrize("chat_id", ["x" * 300, "../../etc/passwd", "a\0b", 7, "", "someone"])
def test_case_70_a_hostile_chat_id_beside_the_file(
    store: MemoryStore, team: str, tmp_path: Path, chat_id: object
) -> None:
    sessions = tmp_path / "data" / "coder" / "sessions"
    put(sessions / "coder_cli_a_b.jsonl", said("hello"))
    put(sessions / "coder_cli_a_b.meta.json", {"chat_id": chat_id, "title": "kept"})
    report = import_agenthub(store, tmp_path, team_id=team, user_id="me")
    assert skipped(report) == [("coder_cli_a_b.meta.json", 0)]
    assert "chat_id" in report.skipped[0].reason
    record = the_session(store, team, "me")
    assert (record.session, record.title) == ("coder:cli:a_b", "kept")


def test_case_70_a_long_name(store: MemoryStore, team: str, tmp_path: Path) -> None:
    agent = "a" * 60
    put(tmp_path / "data" / agent / "sessions" / f"cli_{'x' * 200}.jsonl", said("hello"))
    report = import_agenthub(store, tmp_path, team_id=team)
    assert "longer than" in report.skipped[0].reason
    assert report.stored == 0


@pytest.mark.parametrize(
    ("meta", "title", "pinned", "faults"),
    [
        (b"{broken", "hello", False, 1),
        (b"[]", "hello", False, 1),
        (b"\xff\xfe\xff", "hello", False, 1),
        (b"[" * 100_000, "hello", False, 1),
        (b'{"title":"a"}{"title":"b"}', "hello", False, 1),
        (b'{"title":"\\ud800"}', "hello", False, 1),
        (b" " * 2_000_000 + b"{}", "hello", False, 1),
        (b'{"title":"kept","pinned":"yes","created_at":"yesterday"}', "kept", False, 2),
        (b'{"title":17,"pinned":true}', "hello", True, 1),
        (b'\xef\xbb\xbf{"title":" bom ","pinned":null}\r\n', "bom", False, 0),
        ('{"title":"新会话","pinned":true}'.encode(), "hello", True, 0),
        (b'{"title":""}', "hello", False, 0),
        (b"{}", "hello", False, 0),
    ],
)
def test_metadata_that_is_broken_costs_no_message(
    store: MemoryStore, team: str, tmp_path: Path, meta: bytes, title: str, pinned: bool, faults: int
) -> None:
    path = put(tmp_path / "data" / "coder" / "sessions" / "coder_cli_x.jsonl", said("hello", "yes"))
    put(path.with_suffix(".meta.json"), meta)
    report = import_agenthub(store, tmp_path, team_id=team)
    assert report.stored == 2
    assert skipped(report) == [("coder_cli_x.meta.json", 0)] * faults
    record = the_session(store, team, "x")
    assert (record.title, record.pinned) == (title, pinned)


def test_a_cleared_chat_is_reported(store: MemoryStore, team: str, tmp_path: Path) -> None:
    sessions = tmp_path / "data" / "coder" / "sessions"
    put(sessions / "coder_cli_gone.meta.json", {"chat_id": "gone", "title": "gone"})
    put(sessions / "coder_cli_empty.jsonl", b"")
    put(sessions / "coder_cli_empty.meta.json", {"chat_id": "empty", "title": "empty"})
    report = import_agenthub(store, tmp_path, team_id=team)
    assert skipped(report) == [("coder_cli_gone.meta.json", 0)]
    assert [Path(name).name for name in report.empty_files] == ["coder_cli_empty.jsonl"]
    assert store.sessions(Scope(team, "empty")) == []


# --- lines -----------------------------------------------------------------------------------------------------


def test_summaries_are_marked(store: MemoryStore, team: str, tmp_path: Path) -> None:
    records = [
        {"role": "system", "content": "[历史摘要] 用户在准备合同", "timestamp": START_MS},
        {"role": "system", "content": "be kind", "timestamp": START_MS},
        {"role": "user", "content": "[历史摘要] 是什么", "timestamp": START_MS},
    ]
    data = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    put(tmp_path / "data" / "coder" / "sessions" / "coder_cli_x.jsonl", data)
    import_agenthub(store, tmp_path, team_id=team)
    found = held(store, team, "x", "coder:cli:x")
    assert [(m.role, m.meta) for m in found] == [
        ("system", {"agenthub": "summary"}),
        ("system", {}),
        ("user", {}),
    ]


@pytest.mark.parametrize(
    ("spoil", "lost"),
    [
        pytest.param(lambda rows: [*rows[:9], rows[9][:20]], [10], id="torn"),
        pytest.param(lambda rows: [*rows[:3], rows[3][:20], *rows[4:]], [4], id="line 4 cut"),
        pytest.param(lambda rows: [*rows[:3], bytes(50), *rows[4:]], [4], id="NUL"),
        pytest.param(lambda rows: [*rows[:3], rows[3] + rows[4], *rows[5:]], [], id="joined"),
        pytest.param(
            lambda rows: [*rows[:3], rows[3].replace(b"1768", b'"x'), *rows[4:]], [4], id="bad time"
        ),
    ],
)
def test_case_45_broken_lines(store: MemoryStore, team: str, tmp_path: Path, spoil, lost: list[int]) -> None:
    words = [f"第 {n} 句" for n in range(1, 11)]
    rows = said(*words).splitlines()
    path = tmp_path / "data" / "coder" / "sessions" / "coder_cli_x.jsonl"
    put(path, b"\n".join(spoil(rows)))
    report = import_agenthub(store, tmp_path, team_id=team)
    assert skipped(report) == [("coder_cli_x.jsonl", n) for n in lost]
    assert texts(store, team, "x", "coder:cli:x") == [w for n, w in enumerate(words, 1) if n not in lost]
    put(path, b"\n".join(rows))
    again = import_agenthub(store, tmp_path, team_id=team)
    assert (again.stored, again.known, again.skipped) == (len(lost), 10 - len(lost), ())


def test_case_49_again_moved_and_appended(store: MemoryStore, team: str, root: Path) -> None:
    def imported(where: Path) -> tuple[int, int]:
        report = import_agenthub(store, where, team_id=team)
        return report.stored, report.known

    assert imported(root) == (7, 0)
    assert imported(root) == (0, 7)
    moved = root / "copy"
    moved.mkdir()
    (root / "data").rename(moved / "data")
    assert imported(moved) == (0, 7)
    with (moved / "data" / "default" / "sessions" / "default_cli_direct.jsonl").open("ab") as stream:
        stream.write(said("又来了", "欢迎", start_ms=START_MS + 60_000))
    assert imported(moved) == (2, 7)
    assert texts(store, team, "direct", "default:cli:direct")[-2:] == ["又来了", "欢迎"]
    assert (the_session(store, team, "zhangsan").title, the_session(store, team, "zhangsan").pinned) == (
        "合同审核",
        True,
    )


def test_case_49_a_rewritten_file_adds_its_summary_only(
    store: MemoryStore, team: str, tmp_path: Path
) -> None:
    path = tmp_path / "data" / "coder" / "sessions" / "coder_cli_x.jsonl"
    rows = said(*(f"第 {n} 句" for n in range(30)))
    put(path, rows)
    import_agenthub(store, tmp_path, team_id=team)
    summary = json.dumps({"role": "system", "content": "[历史摘要] 前十句", "timestamp": START_MS + 99_000})
    put(path, summary.encode() + b"\n" + b"\n".join(rows.splitlines()[10:]))
    report = import_agenthub(store, tmp_path, team_id=team)
    assert (report.stored, report.known) == (1, 20)
    assert len(texts(store, team, "x", "coder:cli:x")) == 31


def test_a_session_deleted_here_stays_deleted(store: MemoryStore, team: str, root: Path) -> None:
    import_agenthub(store, root, team_id=team)
    store.delete_session(Scope(team, "zhangsan"), "reviewer:wecom:zhangsan")
    report = import_agenthub(store, root, team_id=team)
    assert report.stored == 0
    assert ("reviewer_wecom_zhangsan.meta.json", 0) in skipped(report)
    assert store.sessions(Scope(team, "zhangsan")) == []
    assert texts(store, team, "zhangsan", "reviewer:wecom:zhangsan") == []


def test_progress_ends_at_the_whole(store: MemoryStore, team: str, root: Path) -> None:
    seen: list[tuple[int, int]] = []
    import_agenthub(store, root, team_id=team, progress=lambda *step: seen.append(step))
    total = sum(path.stat().st_size for path in (root / "data").rglob("*.jsonl"))
    assert seen == sorted(seen)
    assert len(seen) >= 3
    assert seen[-1] == (total, total)


# --- profiles ----------------------------------------------------------------------------------------------------


def profiles_of(store: MemoryStore, team: str, user: str, agent: str) -> tuple[str, str]:
    scope = Scope(team, user, agent)
    return store.read_memory(scope), str(store.profile(scope, "user") or "")


def test_profiles_become_versions(store: MemoryStore, team: str, root: Path) -> None:
    report = import_agenthub(store, root, team_id=team, user_id="me")
    assert (report.profiles, report.profiles_known, report.skipped) == (2, 0, ())
    assert profiles_of(store, team, "me", "reviewer") == ("# memory", "# user")
    assert store.read_memory(Scope(team, "me", "default")) == ""
    record = store.profile(Scope(team, "me", "reviewer"), "agent")
    assert record is not None
    assert (record.actor, record.version, record.sources) == ("import", 1, ())

    again = import_agenthub(store, root, team_id=team, user_id="me")
    assert (again.profiles, again.profiles_known) == (0, 2)
    put(root / "auth" / "USER.md", "# user\n喝龙井\n".encode())
    changed = import_agenthub(store, root, team_id=team, user_id="me")
    assert (changed.profiles, changed.profiles_known) == (1, 1)
    versions = store.profile_history(Scope(team, "me"), "user")
    assert [(v.content, v.state) for v in versions] == [("# user", "superseded"), ("# user\n喝龙井", "live")]


def test_imported_profiles_are_trusted_as_imports(store: MemoryStore, team: str, root: Path) -> None:
    import_agenthub(store, root, team_id=team, user_id="me")
    with store._storage.read() as reader:
        row = reader.profile(Owner(team, "me"), "reviewer")
    assert row is not None
    assert (row.source_kind, row.trust, row.visibility) == ("import", 40, "private")


def test_a_profile_that_a_person_wrote_later_stays(store: MemoryStore, team: str, root: Path) -> None:
    scope = Scope(team, "me", "reviewer")
    import_agenthub(store, root, team_id=team, user_id="me")
    store.write_memory(scope, "by hand")
    same = import_agenthub(store, root, team_id=team, user_id="me")
    assert (same.profiles, same.profiles_known, same.skipped) == (0, 2, ())
    put(root / "data" / "reviewer" / "memory" / "MEMORY.md", b"# newer\n")
    report = import_agenthub(store, root, team_id=team, user_id="me")
    assert (report.profiles, report.profiles_known) == (0, 1)
    assert skipped(report) == [("MEMORY.md", 0)]
    assert store.read_memory(scope) == "by hand"


def test_without_a_user_a_profile_goes_to_the_only_one(
    store: MemoryStore, team: str, root: Path, tmp_path: Path
) -> None:
    put(root / "data" / "default" / "memory" / "MEMORY.md", b"of direct alone\n")
    report = import_agenthub(store, root, team_id=team)
    assert report.profiles == 1
    assert store.read_memory(Scope(team, "direct", "default")) == "of direct alone"
    assert sorted(skipped(report)) == [("MEMORY.md", 0), ("USER.md", 0)]
    for user in ("zhangsan", "group_1", "direct"):
        assert store.profile(Scope(team, user), "user") is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b" \n", "must not be empty"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"x" * (1024 * 1024 + 1), "larger than"),
    ],
    ids=["blank", "no text", "huge"],
)
def test_what_is_no_profile_is_reported(
    store: MemoryStore, team: str, root: Path, data: bytes, reason: str
) -> None:
    put(root / "auth" / "USER.md", data)
    report = import_agenthub(store, root, team_id=team, user_id="me")
    assert report.stored == 7
    assert [s.reason for s in report.skipped if reason in s.reason]
    assert store.profile(Scope(team, "me"), "user") is None


def test_a_long_profile_is_cut_and_reported(store: MemoryStore, team: str, root: Path) -> None:
    put(root / "auth" / "USER.md", b"\xef\xbb\xbf" + "一行内容\r\n".encode() * 2_000)
    report = import_agenthub(store, root, team_id=team, user_id="me")
    text = profiles_of(store, team, "me", "reviewer")[1]
    assert text == "\n".join(["一行内容"] * 800)
    assert "last 6000 characters were left out" in report.skipped[0].reason
    again = import_agenthub(store, root, team_id=team, user_id="me")
    assert (again.profiles, again.profiles_known) == (0, 2)


def test_one_agents_folder_brings_its_own_profile(store: MemoryStore, team: str, root: Path) -> None:
    report = import_agenthub(store, root / "data" / "reviewer", team_id=team, user_id="me")
    assert report.profiles == 1
    assert profiles_of(store, team, "me", "reviewer") == ("# memory", "")
    assert store.read_memory(Scope(team, "me", "default")) == ""


def test_the_older_layout_and_agents_without_sessions(store: MemoryStore, team: str, tmp_path: Path) -> None:
    put(tmp_path / "workspace" / "sessions" / "cli_direct.jsonl", said("hello"))
    put(tmp_path / "workspace" / "memory" / "MEMORY.md", b"older\n")
    put(tmp_path / "workspace" / "USER.md", b"the user\n")
    put(tmp_path / "data" / "quiet" / "memory" / "MEMORY.md", b"quiet\n")
    put(tmp_path / "data" / "quiet" / "MEMORY.md", b"in another place\n")
    report = import_agenthub(store, tmp_path, team_id=team, user_id="me")
    assert report.profiles == 3
    assert profiles_of(store, team, "me", "default") == ("older", "the user")
    assert store.read_memory(Scope(team, "me", "quiet")) == "quiet"
    assert "read from" in report.skipped[0].reason
