"""What a sweep leaves to itself."""

from memstore.storage.base import Reader
from memstore.storage.pipeline_rows import UNDER_WAY

_EVERY_JOB = 1_000_000


def under_way(reader: Reader, kind: str) -> set[str | None]:
    """Keys of the jobs of a kind that wait, run, or gave up and wait for a person."""
    return {job.dedupe_key for state in UNDER_WAY for job in reader.jobs(state, kind, None, _EVERY_JOB)}
