"""What the stages of the pipelines hand each other: plain values, no database, no model.

A *judge* decides (a model, or the rules), a stage checks what it decided and turns it into changes, and storage
applies those in one transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Literal, Protocol, TypeVar

from memstore.llm import Usage
from memstore.types import Kind, Role, Scope, SourceKind

Language = Literal["zh", "en"]
Action = Literal["store", "skip", "update", "merge"]
ProfileName = Literal["agent", "user"]

ACTIONS: tuple[Action, ...] = ("store", "skip", "update", "merge")
MAX_MEMORY_CHARS = 1_000
"""Of one memory that a pipeline makes."""
MAX_SAID_CHARS = 20_000
"""Of one message that judges read; the rules read no more of it, and a model is shown no more."""
DEFAULT_PRIORITY = 50

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Judgement(Generic[T]):
    """What a judge decided, and what has to be kept about how.

    :param by: ``rules-<version>`` or the model's name.
    :param prompt: name and version of the prompt; None where no model was asked.
    :param reply: the model's reply as it came.
    """

    value: T
    by: str
    prompt: str | None = None
    reply: str | None = None
    usage: Usage = field(default_factory=Usage)


# --- L1 ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Said:
    """A message as the pipelines see it: its text parts alone.

    :param at: when it was said, in the speaker's own zone (``at.tzinfo``).
    :param by_principal: a user message that is unnamed or named as the user whose store this is; only these make
        persona memories and instructions.
    """

    id: str
    role: Role
    text: str
    at: datetime
    name: str | None = None
    source_kind: SourceKind = "user"
    trust: int = 60
    by_principal: bool = True


@dataclass(frozen=True, slots=True)
class Window:
    """What one extraction looks at.

    :param new: messages to extract from, in the order of the session; ``background`` is read only.
    :param scene: the situation as the last extraction of the session judged it; None before the first.
    :param language: of the conversation: of the prompt, and of what is written.
    :param unread: a sentence for each new message that was too long to be read whole.
    """

    scope: Scope
    session: str
    background: tuple[Said, ...]
    new: tuple[Said, ...]
    scene: str | None
    language: Language
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """A memory that a judge proposes. ``time_start`` and ``time_end`` are when what it tells of begins and ends."""

    content: str
    kind: Kind
    priority: int = DEFAULT_PRIORITY
    source_ids: tuple[str, ...] = ()
    time_start: datetime | None = None
    time_end: datetime | None = None


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found in a window. ``refused`` says, a sentence each, which proposals were dropped and why."""

    scene: str
    scene_changed: bool
    proposals: tuple[Proposal, ...]
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """A current memory that a new one is compared with."""

    id: str
    kind: Kind
    content: str
    priority: int
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Compared:
    """A proposal and its nearest current memories, best first."""

    proposal: Proposal
    neighbours: tuple[Known, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one verdict call looks at: all proposals of one extraction."""

    scope: Scope
    language: Language
    items: tuple[Compared, ...]
    now: datetime


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of one proposal (``item`` is its index).

    ``update``: the new content replaces the targets; ``merge``: ``content`` holds what the targets and the proposal
    say; ``skip``: ``target_ids`` name what covers it. ``content``, ``kind`` and ``priority`` None: the proposal's.
    ``target_items``: earlier items of the same comparison that are targets as well; they have no ids yet.
    """

    item: int
    action: Action
    target_ids: tuple[str, ...] = ()
    content: str | None = None
    kind: Kind | None = None
    priority: int | None = None
    reason: str = ""
    target_items: tuple[int, ...] = ()


# --- L2, L3 ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scene:
    """A scene as a judge sees it: a short document about one recurring situation."""

    id: str
    name: str
    content: str
    updated_at: datetime
    source_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SceneTask:
    """What one scene run looks at.

    :param memories: new since the last run, in the order in which they came; ``gone`` were superseded or deleted since.
    :param most: how many scenes there may be in the end; ``max_chars`` of each.
    """

    scope: Scope
    language: Language
    scenes: tuple[Scene, ...]
    memories: tuple[Known, ...]
    gone: tuple[Known, ...]
    most: int
    max_chars: int
    now: datetime


@dataclass(frozen=True, slots=True)
class SceneChange:
    """A change of the scenes that a judge proposes.

    :param scene_id: the scene that is written anew; None makes one. Content ``[DELETED]`` deletes it.
    :param merged_ids: further scenes that this one takes up; they are deleted.
    :param memory_ids: memories that it was written from, beside those of the scenes that it takes up.
    """

    scene_id: str | None
    name: str
    content: str
    memory_ids: tuple[str, ...] = ()
    merged_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileTask:
    """What one profile run looks at. Memories and messages are in the order in which they came; ``messages`` only where
    there is no memory."""

    scope: Scope
    profile: ProfileName
    language: Language
    current: str
    scenes: tuple[Scene, ...]
    memories: tuple[Known, ...]
    messages: tuple[Said, ...]
    max_chars: int
    now: datetime


class Judge(Protocol):
    """Decides what the pipelines do: a model, or the rules. Pure: no database, no clock.

    :raises memstore.errors.LLMError: when no usable decision could be had; the work is tried again later.
    """

    @property
    def name(self) -> str:
        """Kept with everything that was made by it."""
        ...

    def extract(self, window: Window) -> Judgement[Extraction]: ...

    def verdicts(self, comparison: Comparison) -> Judgement[Sequence[Verdict]]:
        """At most one for each item; an item without one is stored as it is."""
        ...

    def scenes(self, task: SceneTask) -> Judgement[Sequence[SceneChange]]: ...

    def profile(self, task: ProfileTask) -> Judgement[str]:
        """The whole new text."""
        ...
