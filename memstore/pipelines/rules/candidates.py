"""What the rules of a language find in a sentence, before dates are made absolute."""

import re
from dataclasses import dataclass

from memstore.types import Kind

ALLERGY = 90
HEALTH = 85
IDENTITY = 80
INSTRUCTION = 80
CHANGE = 70
FAMILY = 70
TOOLS = 65
PREFERENCE = 60
HABIT = 60
DECISION = 60
DEADLINE = 60
EVENT = 50

MAX_CLAUSE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Rule:
    """A statement of the speaker. A named group ``o`` is what a correction behind it replaces."""

    pattern: re.Pattern[str]
    kind: Kind
    priority: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A clause that says something to keep, in the speaker's words."""

    text: str
    kind: Kind
    priority: int
