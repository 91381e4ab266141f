"""What scenes and profiles may be written from (SPEC W11).

What was said by a tool, an assistant or somebody else in a group, or concluded by a model, becomes memories that can be
recalled, marked for what they are. It goes no further: a judge that read it while writing a scene could carry a planted
sentence into the text without naming where it came from, and from there into what every turn begins with.
"""

from memstore.storage.rows import MemoryRow, MessageRow
from memstore.types import TRUST

LEAST_TRUST = TRUST["import"]
OWN_WORDS = ("user", "import")


def may_make_scenes(row: MemoryRow, now: int) -> bool:
    """Trusted enough, and not expired. What is over stays: a scene tells what happened as well."""
    return row.trust >= LEAST_TRUST and not _expired(row, now)


def may_make_profiles(row: MemoryRow, now: int) -> bool:
    """The user's own words, and true still."""
    over = row.kind != "episodic" and row.valid_to is not None and row.valid_to <= now
    return is_own_words(row.source_kind, row.trust) and not over and not _expired(row, now)


def is_own_words(source_kind: str, trust: int) -> bool:
    return source_kind in OWN_WORDS and trust >= LEAST_TRUST


def said_by_principal(row: MessageRow) -> bool:
    """A message in the user's own words: unnamed, or named as the user whose store this is."""
    own = row.role == "user" and not _is_somebody_elses(row)
    return own and is_own_words(row.source_kind, row.trust)


def trust_of(row: MessageRow) -> int:
    """How far what is made of a message is trusted. Other people in a group count for no more than an assistant: it is not
    their store either."""
    return min(row.trust, TRUST["assistant"]) if _is_somebody_elses(row) else row.trust


def _is_somebody_elses(row: MessageRow) -> bool:
    return row.role == "user" and row.name not in (None, row.user_id)


def _expired(row: MemoryRow, now: int) -> bool:
    return row.expires_at is not None and row.expires_at <= now
