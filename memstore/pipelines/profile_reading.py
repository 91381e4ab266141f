"""What a profile run looks at.

The agent profile: the agent's scenes and memories. The user profile is shared by all of the user's agents, so that only
persona memories go into it: nothing that belongs to one agent, and nothing that another user shared. Where there is no
memory, the user's own words in the last sessions. Everything in either is the user's own words (SPEC W11).
"""

from dataclasses import dataclass
from datetime import tzinfo
from typing import Literal

from memstore.canonical import checksum
from memstore.pipelines.scene_reading import known, scene_sources, seen_scene
from memstore.pipelines.trusted import is_own_words, may_make_profiles, said_by_principal
from memstore.pipelines.values import ProfileName, ProfileTask, Said
from memstore.pipelines.written_text import language_of
from memstore.sessions import message_text
from memstore.storage.base import Reader
from memstore.storage.pipeline_rows import Cursor, Owner, ProfileRow, RowKind, SceneRow
from memstore.storage.rows import MemoryRow, MessageRow
from memstore.times import from_micros
from memstore.types import Scope

ProfileStage = Literal["agent_profile", "user_profile"]

MAX_MEMORIES = 200
READ_MEMORIES = 1_000
"""Of which the newest that may be used are taken."""
SESSIONS = 10
MESSAGES_EACH = 30
MESSAGE_CHARS = 200


@dataclass(frozen=True, slots=True)
class ProfileView:
    """One snapshot. Memories and messages are in the order in which they came.

    :param before: the live profile. :param base: the version that the next one goes on from: the live one, but for facts
        of it that were taken back. :param scene_memories: ids of those that the scenes were written from.
    :param reached: arrival of the user's newest row.
    """

    cursor: Cursor
    before: ProfileRow | None
    base: ProfileRow | None
    scenes: tuple[SceneRow, ...]
    scene_memories: tuple[str, ...]
    memories: tuple[MemoryRow, ...]
    messages: tuple[MessageRow, ...]
    reached: int

    @property
    def current(self) -> str:
        return "" if self.base is None else self.base.content

    @property
    def is_news(self) -> bool:
        """Whether there is anything to write from that the live profile was not written from."""
        if not self._anything:
            return False
        return self.before is None or self.is_withdrawn or self.note() != self.cursor.note

    @property
    def is_withdrawn(self) -> bool:
        """Whether the live profile tells of something that was deleted, hidden or put under quarantine."""
        return self.base is not self.before

    @property
    def is_baseless(self) -> bool:
        """The same, and there is nothing to write another one from."""
        return self.is_withdrawn and not self._anything

    @property
    def _anything(self) -> bool:
        return bool(self.scenes or self.memories or self.messages)

    def note(self) -> str:
        """Names everything that was looked at, but for the profile itself."""
        return checksum(
            [[row.id, row.version] for row in self.scenes],
            sorted([row.id, row.version] for row in self.memories),
            sorted(row.id for row in self.messages),
        )

    def sources(self) -> list[tuple[RowKind, str]]:
        """By kind and id. The text to go on from is one: a writer who is shown it carries it on. So are the memories of
        the scenes: a scene is written anew without one that is gone, and the profile has it still."""
        found: list[tuple[RowKind, str]] = [("scene", row.id) for row in self.scenes]
        memories = dict.fromkeys([*(row.id for row in self.memories), *self.scene_memories])
        found += [("memory", one) for one in memories]
        found += [("message", row.id) for row in self.messages]
        return found if self.base is None else [*found, ("profile", self.base.id)]

    def least_trusted(self) -> tuple[str, int]:
        """Kind and trust of the least trusted source."""
        trusts = [(row.source_kind, row.trust) for row in self.scenes]
        trusts += [(row.source_kind, row.trust) for row in self.memories]
        trusts += [(row.source_kind, row.trust) for row in self.messages]
        if self.base is not None:
            trusts.append((self.base.source_kind, self.base.trust))
        return min(trusts, key=lambda one: one[1])


def look(reader: Reader, of: Owner, agent_id: str | None, now: int) -> ProfileView:
    """:param agent_id: None: for the user's profile."""
    cursor = reader.cursor(of, *cursor_name(agent_id))
    scenes = () if agent_id is None else _scenes(reader, of, agent_id)
    newest = reader.newest_memories(of, agent_id, READ_MEMORIES)
    usable = [row for row in newest if may_make_profiles(row, now)]
    if agent_id is None:
        usable = [row for row in usable if row.kind == "persona" and row.agent_id is None]
    memories = tuple(reversed(usable[:MAX_MEMORIES]))
    messages = () if scenes or memories else _messages(reader, of, agent_id)
    reached = max(cursor.arrival, reader.last_arrival(of))
    before = reader.profile(of, agent_id)
    base = _base(reader, of, before)
    told = tuple(one for scene in scenes for one in scene_sources(reader, scene))
    return ProfileView(cursor, before, base, scenes, told, memories, messages, reached)


def cursor_name(agent_id: str | None) -> tuple[ProfileStage, str]:
    """Stage and subject of a profile's cursor."""
    return ("user_profile", "") if agent_id is None else ("agent_profile", agent_id)


def _base(reader: Reader, of: Owner, before: ProfileRow | None) -> ProfileRow | None:
    """The live version, unless something that it was written from was deleted, hidden or put under quarantine: nobody can
    tell which sentence came from it. Then the last one that a person wrote; what is left says the rest anew."""
    if before is None or not reader.profile_holds_what_left(before.team_id, before.id):
        return before
    for row in reversed(reader.profile_history(of, before.agent_id)):
        by_hand = row.run_id is None and row.state == "superseded"
        if by_hand and not reader.profile_holds_what_left(row.team_id, row.id):
            return row
    return None


def _scenes(reader: Reader, of: Owner, agent_id: str) -> tuple[SceneRow, ...]:
    """Those that are the user's own words, and whose memories are all current: of the others nobody can tell which
    sentence came from what is gone."""
    return tuple(
        row
        for row in reader.scenes(of, agent_id)
        if is_own_words(row.source_kind, row.trust) and _is_current(reader, row)
    )


def _is_current(reader: Reader, scene: SceneRow) -> bool:
    found = (reader.memory(scene.team_id, one) for one in scene_sources(reader, scene))
    return all(row is not None and row.state == "live" for row in found)


def _messages(reader: Reader, of: Owner, agent_id: str | None) -> tuple[MessageRow, ...]:
    rows = reader.last_messages(of, agent_id, SESSIONS, MESSAGES_EACH)
    return tuple(row for row in rows if said_by_principal(row) and message_text(row).strip())


def task_of(
    view: ProfileView, of: Owner, agent_id: str | None, max_chars: int, now: int, zone: tzinfo
) -> ProfileTask:
    """What the judge is asked."""
    profile: ProfileName = "user" if agent_id is None else "agent"
    scenes = tuple(seen_scene(row, (), zone) for row in view.scenes)
    memories = tuple(known(row, zone) for row in view.memories)
    messages = tuple(_said(row, zone) for row in view.messages)
    texts = [one.content for one in scenes] + [one.content for one in memories]
    texts += [one.text for one in messages]
    return ProfileTask(
        scope=Scope(of.team_id, of.user_id, agent_id),
        profile=profile,
        language=language_of(texts),
        current=view.current,
        scenes=scenes,
        memories=memories,
        messages=messages,
        max_chars=max_chars,
        now=from_micros(now).astimezone(zone),
    )


def _said(row: MessageRow, zone: tzinfo) -> Said:
    return Said(
        id=row.id,
        role="user",
        text=message_text(row)[:MESSAGE_CHARS],
        at=from_micros(row.created_at).astimezone(zone),
        name=row.name,
        source_kind=row.source_kind,  # type: ignore[arg-type] # a CHECK constraint holds it
        trust=row.trust,
    )
