"""The public surface, pinned: names, signatures and fields that callers rely on."""

import inspect
from dataclasses import fields
from importlib import import_module

import pytest

import memstore
from memstore import MemoryStore, Message, Scope, ScopedStore, Settings
from memstore.embedding import EmbedderIdentity
from memstore.errors import InvalidInput
from memstore.ranking import reciprocal_rank_fusion
from memstore.testing import HashEmbedder, ManualClock

NAMES = [
    "AgentSettings",
    "AlreadyRunning",
    "BackupRecord",
    "BackupReport",
    "CandidateReport",
    "Change",
    "Checkpoint",
    "Clock",
    "ConfigError",
    "Degraded",
    "DictionaryReport",
    "DictionaryWord",
    "Difference",
    "DoctorReport",
    "Embedder",
    "EmbedderIdentity",
    "EmbedderMismatch",
    "EmbedderUnavailable",
    "EmbeddingError",
    "EmbeddingRejected",
    "Explanation",
    "ExtractReport",
    "FallbackDay",
    "FallbackError",
    "Finding",
    "GenerationRecord",
    "Hit",
    "ImportReport",
    "ImportStopped",
    "IndexReport",
    "InvalidInput",
    "InvalidScope",
    "InvalidSessionKey",
    "InvalidText",
    "InvalidTime",
    "JobRecord",
    "KeptDay",
    "LLM",
    "LLMError",
    "LLMOverBudget",
    "LLMRejected",
    "LLMReply",
    "LLMRequest",
    "LLMUnavailable",
    "LegReport",
    "LegSummary",
    "Memory",
    "MemoryStore",
    "MemstoreError",
    "Message",
    "NotFound",
    "NotPermitted",
    "OpenAIChat",
    "Page",
    "ProfileRecord",
    "PruneReport",
    "Reason",
    "Recall",
    "RecallExplanation",
    "RecallTrace",
    "Receipt",
    "RecoverReport",
    "Replay",
    "RestoreReport",
    "SceneRecord",
    "Scope",
    "ScopedStore",
    "SessionRecord",
    "Settings",
    "SkippedLine",
    "SpaceReport",
    "StoreError",
    "StoredMessage",
    "SystemClock",
    "Usage",
    "UsageRecord",
    "VerdictRecord",
    "WhyNot",
    "WorkReport",
]


def test_the_names_of_the_package():
    assert sorted(memstore.__all__) == sorted(NAMES)
    assert len(set(memstore.__all__)) == len(memstore.__all__)
    for name in memstore.__all__:
        assert getattr(memstore, name) is not None
    assert set(memstore.__all__) <= set(dir(memstore))
    with pytest.raises(AttributeError, match="nonsense"):
        memstore.nonsense  # noqa: B018
    assert memstore.__version__


def signature(function) -> dict[str, object]:
    """Parameter → default (``...``: none); keyword-only ones start with ``*``."""
    return {
        ("*" if p.kind is p.KEYWORD_ONLY else "") + name: (... if p.default is p.empty else p.default)
        for name, p in inspect.signature(function).parameters.items()
        if name != "self"
    }


NEEDED: dict[str, dict[str, object]] = {
    "record": {"scope": ..., "messages": ..., "session": ..., "transcript": False},
    "add": {
        "scope": ..., "content": ..., "kind": "episodic", "priority": 50, "metadata": None, "visibility": "private",
        "valid_from": None, "valid_to": None, "expires_at": None, "session": None, "idempotency_key": None,
    },
    "recall": {
        "scope": ..., "query": ..., "limit": 5, "kinds": None, "since": None, "until": None, "as_of": None,
        "known_at": None,
        "session": None, "metadata": None, "include_history": False, "explain": False, "trace": False,
        "timeout_s": 5.0,
    },
    "search_messages": {
        "scope": ..., "query": ..., "limit": 5, "session": None, "since": None, "until": None, "roles": None,
        "known_at": None, "metadata": None, "live_only": False, "explain": False, "trace": False, "timeout_s": 5.0,
    },
    "why_not": {
        "scope": ..., "id": ..., "query": ..., "limit": 5, "kinds": None, "roles": None, "since": None, "until": None,
        "as_of": None, "known_at": None, "session": None, "metadata": None, "include_history": False, "live_only": False,
        "timeout_s": 5.0,
    },
    "traces": {"scope": ..., "limit": 50},
    "replay": {"scope": ..., "trace_id": ...},
    "delete_trace": {"scope": ..., "trace_id": ...},
    "floors": {},
    "set_floors": {"values": ...},
    "words": {"scope": ...},
    "messages": {
        "scope": ..., "session": ..., "last": None, "since": None, "until": None, "roles": None, "live_only": False,
        "known_at": None,
    },
    "get": {"scope": ..., "id": ...},
    "get_all": {"scope": ..., "limit": 50, "cursor": None, "kinds": None, "as_of": None, "known_at": None},
    "changes": {"scope": ..., "since": ..., "until": None, "limit": 50, "cursor": None, "kinds": None},
    "update": {
        "scope": ..., "id": ..., "content": None, "kind": None, "priority": None, "metadata": None, "valid_from": None,
        "valid_to": None, "expires_at": None, "expected_version": None,
    },
    "delete": {"scope": ..., "id": ...},
    "delete_all": {"scope": ...},
    "history": {"scope": ..., "id": ...},
    "count": {"scope": ...},
    "sessions": {"scope": ...},
    "set_session": {"scope": ..., "session": ..., "title": None, "pinned": None},
    "clear_session": {"scope": ..., "session": ...},
    "delete_session": {"scope": ..., "session": ...},
    "index": {"progress": None},
    "reindex": {"progress": None},
    "generations": {},
    "roll_back_generation": {"number": None},
    "drop_generation": {"number": ...},
    "doctor": {"full": False},
    "examine": {"path": ..., "embedder": None, "clock": None, "settings": None, "full": False},
    "make_reserve": {},
    "release_reserve": {},
    "recover": {"path": ..., "out": None},
    "backup": {"to": None, "keep": 7, "progress": None},
    "backups": {},
    "restore": {"backup_file": ..., "path": ..., "settings": None, "progress": None},
    "buffered": {"messages": 100, "seconds": 1.0},
    "checkpoint": {},
    "vacuum": {},
    "compact": {"progress": None},
    "fallback_days": {},
    "prune_fallback": {"older_than_days": ...},
    "scoped": {"scope": ...},
    "close": {},
}  # fmt: skip


@pytest.mark.parametrize("verb", NEEDED)
def test_the_signatures_of_the_verbs(verb):
    found = {name.lstrip("*"): default for name, default in signature(getattr(MemoryStore, verb)).items()}
    assert {name: found.get(name, "missing") for name in NEEDED[verb]} == NEEDED[verb]
    needed_first = [name for name in NEEDED[verb] if NEEDED[verb][name] is ...]
    assert list(found)[: len(needed_first)] == needed_first
    extra = {name: default for name, default in found.items() if name not in NEEDED[verb]}
    assert ... not in extra.values()  # further options are optional


def test_limit_and_cursor_may_be_passed_by_place():
    for verb, places in (("recall", ["scope", "query", "limit"]), ("get_all", ["scope", "limit", "cursor"]),
                         ("messages", ["scope", "session", "last"]), ("record", ["scope", "messages", "session"])):  # fmt: skip
        assert list(signature(getattr(MemoryStore, verb)))[:3] == places


def test_a_store_is_made_of_a_path_and_little_else():
    found = signature(MemoryStore.__init__)
    assert list(found)[:4] == ["path", "embedder", "clock", "settings"]
    assert all(default is None for default in list(found.values())[1:])


def test_search_is_another_name_of_recall():
    assert MemoryStore.search is MemoryStore.recall


def test_a_scoped_store_has_the_same_verbs_without_the_scope():
    whole = {
        "floors",
        "set_floors",
        "generations",
        "roll_back_generation",
        "drop_generation",
        "index",
        "reindex",
        "doctor",
        "recover",
        "backup",
        "backups",
        "restore",
        "buffered",
        "checkpoint",
        "examine",
        "make_reserve",
        "release_reserve",
        "vacuum",
        "compact",
        "fallback_days",
        "prune_fallback",
        "scoped",
        "close",
    }
    for verb in NEEDED.keys() - whole:
        scoped, plain = getattr(ScopedStore, verb), getattr(MemoryStore, verb)
        assert callable(scoped), verb
        assert scoped.__doc__ == plain.__doc__


def test_a_scoped_store_asks_for_its_scope(store):
    ana, ben = store.scoped(Scope("acme", "ana", "helper")), store.scoped(Scope("acme", "ben", "helper"))
    made = ana.add("rain")
    ana.record([Message("user", "rain")], "chat", transcript=True)
    assert [hit.id for hit in ana.recall("rain", 3)] == [made.id]
    assert [ana.count(), ben.count()] == [{"memories": 1, "messages": 1}, {"memories": 0, "messages": 0}]
    assert ben.get(made.id) is None
    assert ana.update(made.id, content="snow").version == 2
    assert ana.delete_all() == 2
    with pytest.raises(InvalidInput):
        store.scoped("ana")


FIELDS = {
    "Scope": "team_id user_id agent_id task_id",
    "Message": "role content id name created_at tool_calls tool_call_id usage meta complete",
    "Checkpoint": "wal_bytes_before wal_bytes emptied",
    "Receipt": "ids stored session new conflicts",
    "Hit": "id content kind score rank layer user_id agent_id task_id session created_at visibility state version priority "
    "metadata role name position explanation",
    "Recall": "hits degraded took_ms explanation trace_id",
    "Degraded": "leg reason",
    "Explanation": "legs tokens visible_by literal sources factors",
    "LegReport": "rank score term note with_neighbours",
    "LegSummary": "asked brought weight floor model",
    "CandidateReport": "id place score outcome explanation excerpt duplicate_of",
    "RecallExplanation": "query words left_out filters legs coverage candidates",
    "Reason": "code values",
    "WhyNot": "id layer query rank reasons recall",
    "RecallTrace": "id layer query asked_at hit_ids",
    "Difference": "id rank_then rank_now reasons",
    "Replay": "trace recall differences",
    "Memory": "id version team_id user_id agent_id task_id content kind priority metadata visibility state session "
    "produced_by_agent source_kind trust valid_from valid_to expires_at created_at recorded_at superseded_at superseded_by "
    "actor arrival",
    "StoredMessage": "id client_id team_id user_id agent_id task_id session position arrival role name content text "
    "tool_calls tool_call_id usage meta complete live branch source_kind trust created_at recorded_at zone deleted_at",
    "Change": "at what id version before after",
    "SessionRecord": "session agent_id title pinned hidden created_at updated_at messages",
    "IndexReport": "embedded refused pending generation",
    "DoctorReport": "ok findings counts versions place",
    "BackupReport": "path taken_at bytes database_bytes sha256 messages memories removed",
    "BackupRecord": "path taken_at bytes sha256 verified_at present",
    "RestoreReport": "path backup schema_version messages memories adopted lost_lines",
    "SpaceReport": "bytes_before bytes_after log_bytes_before log_bytes_after pending strays retired",
    "FallbackDay": "day bytes lines contained backup",
    "KeptDay": "day bytes reason",
    "PruneReport": "removed freed_bytes kept",
    "GenerationRecord": "number model revision dim digest state vectors pending refused bytes created_at activated_at",
    "Settings": "timezone fold_variants durability candidate_factor rrf_k leg_weights busy_timeout_s reserve_bytes network_file_system",
    "EmbedderIdentity": "model revision dim query_prefix document_prefix",
}


@pytest.mark.parametrize("name", FIELDS)
def test_the_fields_of_the_values(name):
    made = getattr(memstore, name)
    found = [field.name for field in fields(made)]
    wanted = FIELDS[name].split()
    assert [field for field in found if field in wanted] == wanted
    assert made.__dataclass_params__.frozen


def test_values_with_few_arguments():
    assert Message("user", "hello") == Message(role="user", content="hello", id=None)
    assert Scope("t", "u") == Scope(team_id="t", user_id="u", agent_id=None, task_id=None)
    assert (Settings().rrf_k, Settings().candidate_factor, Settings().durability) == (60, 3, "disk")
    assert (Settings().timezone, Settings().busy_timeout_s) == (None, 5.0)
    assert EmbedderIdentity("m", "1", 8) == EmbedderIdentity("m", "1", 8, "", "")


def test_the_doubles_are_public():
    assert list(signature(HashEmbedder))[:3] == ["dim", "model", "revision"]
    assert isinstance(HashEmbedder(), memstore.Embedder)
    clock = ManualClock()
    assert isinstance(clock, memstore.Clock)
    before = clock.now()
    clock.advance(60)
    assert ((clock.now() - before).total_seconds(), clock.monotonic()) == (60, 60)
    clock.set(before)
    assert (clock.now(), clock.monotonic()) == (before, 60)


def test_the_fusion_is_public():
    assert signature(reciprocal_rank_fusion) == {
        "rankings": ...,
        "k": 60,
        "*weights": None,
        "*tie_break": None,
    }


def test_every_error_is_a_memstore_error():
    errors = import_module("memstore.errors")
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert all(issubclass(kind, memstore.MemstoreError) for kind in kinds)
    assert issubclass(memstore.InvalidInput, ValueError)
    assert issubclass(memstore.NotFound, LookupError)
    for kind in ("InvalidScope", "InvalidSessionKey", "InvalidText", "InvalidTime"):
        assert issubclass(getattr(memstore, kind), memstore.InvalidInput)


def test_verbs_and_public_values_are_documented():
    for verb in NEEDED:
        assert inspect.getdoc(getattr(MemoryStore, verb)), verb
    for name in memstore.__all__:
        assert inspect.getdoc(getattr(memstore, name)), name
