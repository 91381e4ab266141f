"""Running the cases through a store, a user each."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.extraction.cases import PARTS, Case, load
from benchmarks.extraction.scoring import Found, Outcome, figures
from memstore import Memory, MemoryStore, Scope, Settings
from memstore.errors import LLMError
from memstore.llm import LLM
from memstore.testing import ScriptedLLM

SESSION = "helper:bench:case"
TRIES = 3
"""Of a model whose answer could not be used; after that the case counts as found empty."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked for.

    :param llm: who judges; None: the rules. :param part: ``choose``, ``report`` or None for both.
    :param limit: about so many cases.
    """

    llm: LLM | str | None = None
    part: str | None = None
    limit: int | None = None


def run(options: Options) -> dict[str, Any]:
    """Extract from every case, and score what was found."""
    cases = [case for case in load() if options.part in (None, case.part)]
    if options.limit is not None:
        cases = cases[:: max(1, len(cases) // options.limit)]
    settings = Settings(timezone="UTC", durability="process", reserve_bytes=0)
    with tempfile.TemporaryDirectory(prefix="memstore-bench-") as folder:
        path = Path(folder) / "memory.db"
        known = _prepared(path, settings, cases)
        with MemoryStore(path, settings=settings, llm=options.llm) as store:
            outcomes = [_outcome(store, case, known[case.id]) for case in cases]
    judges = sorted({outcome.by for outcome in outcomes})
    return {
        "benchmark": "extraction",
        **report.circumstances(None),
        "judge": judges[0] if len(judges) == 1 else judges,
        "cases": len(cases),
        "results": {
            "all": figures(outcomes),
            **{part: figures([one for one in outcomes if one.case.part == part]) for part in PARTS},
        },
        "wrong": [outcome.shown() for outcome in outcomes if outcome.wrong],
    }


def _scope(case: Case) -> Scope:
    return Scope("bench", case.id, "helper")


def _prepared(path: Path, settings: Settings, cases: list[Case]) -> dict[str, dict[str, str]]:
    """What was known and said before, covered by an extraction that found nothing; ids of the known memories by
    case."""
    ids: dict[str, dict[str, str]] = {}
    nothing = ScriptedLLM(lambda _request: '{"scene": "", "scene_changed": false, "memories": []}')
    with MemoryStore(path, settings=settings, llm=nothing) as store:
        for case in cases:
            scope = _scope(case)
            ids[case.id] = {
                store.add(scope, content, kind=kind).id: name  # type: ignore[arg-type] # checked by the store
                for name, kind, content in case.existing
            }
            if case.background:
                store.record(scope, case.background, SESSION)
                store.extract(scope, session=SESSION)
    return ids


def _outcome(store: MemoryStore, case: Case, known: dict[str, str]) -> Outcome:
    scope = _scope(case)
    receipt = store.record(scope, case.messages, SESSION)
    names = dict(zip(receipt.ids, (message.id or "" for message in case.messages), strict=True))
    extracted = None
    failures: list[str] = []
    while extracted is None and len(failures) < TRIES:
        try:
            extracted = store.extract(scope, session=SESSION)
        except LLMError as error:
            failures.append(str(error))
    if extracted is None:
        return Outcome(case, (), "failed", tuple(failures))
    found = []
    for verdict in extracted.verdicts:
        made = None if verdict.memory_id is None else store.get(scope, verdict.memory_id)
        metadata = made.metadata if isinstance(made, Memory) else {}
        found.append(
            Found(
                content=made.content if isinstance(made, Memory) else verdict.content,
                kind=verdict.kind,
                action=verdict.action,
                targets=frozenset(known.get(target, target) for target in verdict.target_ids),
                sources=frozenset(names.get(source, source) for source in verdict.source_ids),
                start=metadata.get("time_start"),
                end=metadata.get("time_end"),
            )
        )
    return Outcome(case, tuple(found), extracted.decided_by, tuple(failures))
