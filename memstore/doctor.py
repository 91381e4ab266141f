"""``doctor``: what is wrong with a store, and which command mends it (SPEC S9, first form)."""

import stat

from memstore.embedding import Embedder, identity_of
from memstore.errors import EmbeddingError
from memstore.fallback import Fallback
from memstore.storage.base import Storage
from memstore.types import Finding

RECOVER = "memstore recover --out NEW.db"
BAD_LINES_SHOWN = 10


def check_fallback(storage: Storage, fallback: Fallback) -> list[Finding]:
    """The day files against the rows, both ways. Others may be writing: what they add meanwhile is left out."""
    findings: list[Finding] = []
    sizes = {day: fallback.size(day) for day in fallback.days()}
    with storage.read() as reader:
        marks = {day: reader.fallback_mark(day) for day in sizes}
        stored = {(row.team_id, row.id) for row in reader.dump_messages()}
    behind = [day for day, size in sizes.items() if size > marks[day]]
    written: set[tuple[str, str]] = set()
    contained: set[tuple[str, str]] = set()
    bad = 0
    for day in fallback.days():
        for line in fallback.read(day):
            if line.operation is None:
                bad += 1
                if bad <= BAD_LINES_SHOWN and line.end <= sizes.get(day, 0):
                    message = f"{fallback.path(day).name} line {line.number}: {line.fault}"
                    findings.append(Finding("fallback", "warning", message))
            elif line.operation["op"] == "message":
                key = line.operation["team_id"], line.operation["id"]
                written.add(key)
                if line.end <= marks.get(day, 0):
                    contained.add(key)
    if behind:
        message = f"lines of {', '.join(behind)} are not in the database yet; reopening the store adopts them"
        findings.append(Finding("fallback", "warning", message, "memstore doctor"))
    if stored - written:
        message = (
            f"{len(stored - written)} messages have no line in {fallback.folder.name}: "
            "a recovery from it would lack them; keep a backup of the database"
        )
        findings.append(Finding("fallback", "warning", message))
    if contained - stored:
        message = f"{len(contained - stored)} lines of the fallback have no row in the database"
        findings.append(Finding("fallback", "error", message, RECOVER))
    findings.extend(_check_modes(fallback))
    return findings


def _check_modes(fallback: Fallback) -> list[Finding]:
    paths = [fallback.folder, *(fallback.path(day) for day in fallback.days())]
    return [
        Finding(
            "file modes",
            "warning",
            f"{path.name} may be read by other users of this machine",
            f"chmod go= {path}",
        )
        for path in paths
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]


def check_embedder(storage: Storage, embedder: Embedder | None) -> list[Finding]:
    """Whether the store's vectors are the embedder's."""
    with storage.read() as reader:
        active = reader.generation("active")
        building = reader.generation("building")
    findings = []
    if building is not None:
        message = f"a change over to {building.identity.model} is unfinished"
        findings.append(Finding("embedder", "warning", message, "memstore reindex"))
    if embedder is None or active is None:
        return findings
    try:
        identity = identity_of(embedder)
    except EmbeddingError as error:
        return [*findings, Finding("embedder", "warning", f"the embedder is not usable: {error}")]
    if identity != active.identity:
        message = f"the store's vectors are of {active.identity.model}, the embedder is {identity.model}"
        findings.append(Finding("embedder", "warning", message, "memstore reindex"))
    return findings
