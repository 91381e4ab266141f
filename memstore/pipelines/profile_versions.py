"""Profiles as their owner sees them, and writes them by hand."""

from dataclasses import dataclass, replace
from typing import Literal

from memstore.agent_settings import AgentSettings
from memstore.asking import principal
from memstore.canonical import check_encodable
from memstore.clock import Clock
from memstore.errors import InvalidInput, InvalidScope, NotFound, NotPermitted
from memstore.ids import new_id
from memstore.pipelines.values import ProfileName
from memstore.pipelines.written_text import clean_text, cut_text
from memstore.storage.base import Reader, Storage, Writer
from memstore.storage.pipeline_rows import Owner, ProfileRow, SourceLink, sealed
from memstore.times import from_micros, to_micros
from memstore.types import TRUST, ProfileRecord, Scope

NAMES: tuple[ProfileName, ...] = ("agent", "user")
IMPORTER = "import"
"""The actor of a profile that was taken over from another store."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What became of an imported profile. ``kept``: the one that is there stays, as somebody or something else wrote it.

    :param left_out: characters at the end that were more than a profile may have.
    """

    outcome: Literal["stored", "known", "kept"]
    left_out: int = 0


def subject_of(scope: Scope, which: str) -> str | None:
    """The agent whose profile is meant; None: the user's.

    :raises InvalidInput: for a profile that does not exist. :raises InvalidScope: where no agent is named.
    """
    if which not in NAMES:
        raise InvalidInput(f"profile {which!r:.60} is none of {', '.join(NAMES)}")
    if which == "user":
        return None
    if scope.agent_id is None:
        raise InvalidScope("an agent profile belongs to an agent: set Scope.agent_id")
    return scope.agent_id


class Profiles:
    """The profiles of whoever asks; nobody else can read or change them."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    # --- reading -------------------------------------------------------------------------------------------------

    def current(self, scope: Scope, which: str) -> ProfileRecord | None:
        subject = subject_of(scope, which)
        with self._storage.read() as reader:
            if not principal(reader, scope).is_member:
                return None
            row = reader.profile(_owner(scope), subject)
            return None if row is None else _record(reader, row)

    def history(self, scope: Scope, which: str) -> list[ProfileRecord]:
        subject = subject_of(scope, which)
        with self._storage.read() as reader:
            if not principal(reader, scope).is_member:
                return []
            return [_record(reader, row) for row in reader.profile_history(_owner(scope), subject)]

    # --- writing -------------------------------------------------------------------------------------------------

    def write(self, scope: Scope, which: str, text: str) -> ProfileRecord:
        """See :meth:`memstore.store.MemoryStore.write_profile`."""
        subject = subject_of(scope, which)
        _check(text)
        made: list[ProfileRow] = []
        with self._storage.write(stands=lambda reader: _stand(reader, made)) as tx:
            self._join(tx, scope)
            self._check_length(tx, scope, text)
            before = tx.profile(_owner(scope), subject)
            if before is not None and before.content == text:
                return _record(tx, before)
            row = self._row(tx, scope, subject, text)
            made.append(row)
            tx.put_profile(row)
            return _record(tx, row)

    def roll_back(self, scope: Scope, which: str, version: int) -> ProfileRecord:
        """See :meth:`memstore.store.MemoryStore.roll_back_profile`."""
        subject = subject_of(scope, which)
        made: list[ProfileRow] = []
        with self._storage.write(stands=lambda reader: _stand(reader, made)) as tx:
            self._join(tx, scope)
            old = self._old(tx, scope, subject, version)
            if old.state == "live":
                return _record(tx, old)
            if tx.profile_holds_what_left(old.team_id, old.id):
                raise InvalidInput(
                    f"version {version} of the profile tells of memories or messages that were deleted, hidden or put under "
                    "quarantine, and does not come back: write what is to stay of it (memstore memory write)"
                )
            fresh = self._row(tx, scope, subject, old.content)
            row = sealed(replace(fresh, source_kind=old.source_kind, trust=old.trust))
            made.append(row)
            tx.put_profile(row)
            sources = tx.sources_of(old.team_id, "profile", old.id, old.version)
            links = [SourceLink("profile", row.id, row.version, kind, one) for kind, one in sources]
            tx.add_sources(row.team_id, links)
            return _record(tx, row)

    def take_over(self, scope: Scope, which: str, text: str) -> TakenOver:
        """See :meth:`memstore.store.MemoryStore.import_profile`."""
        subject = subject_of(scope, which)
        _check(text)
        made: list[ProfileRow] = []
        with self._storage.write(stands=lambda reader: _stand(reader, made)) as tx:
            self._join(tx, scope)
            whole = clean_text(text)
            text = cut_text(whole, self._most(tx, scope))
            _check(text)
            versions = tx.profile_history(_owner(scope), subject)
            imported = [row for row in versions if row.actor == IMPORTER]
            live = next((row for row in versions if row.state == "live"), None)
            if (imported and imported[-1].content == text) or (live and live.content == text):
                return TakenOver("known")
            if live is not None and live.actor != IMPORTER:
                return TakenOver("kept")
            row = self._row(tx, scope, subject, text)
            row = sealed(replace(row, actor=IMPORTER, source_kind="import", trust=TRUST["import"]))
            made.append(row)
            tx.put_profile(row)
        return TakenOver("stored", len(whole) - len(text))

    def _join(self, tx: Writer, scope: Scope) -> None:
        if not tx.join(scope.team_id, scope.user_id, to_micros(self._clock.now())).is_member:
            raise NotPermitted(f"user {scope.user_id!r} is not a member of team {scope.team_id!r}")

    @staticmethod
    def _most(reader: Reader, scope: Scope) -> int:
        """Of the agent's settings; those of no agent are the defaults."""
        if scope.agent_id is None:
            return AgentSettings().profile_chars
        return AgentSettings(**reader.agent_settings(_owner(scope), scope.agent_id)).profile_chars

    def _check_length(self, reader: Reader, scope: Scope, text: str) -> None:
        most = self._most(reader, scope)
        if len(text) > most:
            raise InvalidInput(
                f"the profile has {len(text)} characters, {most} is the most: shorten it, or raise the agent's setting "
                "profile_chars"
            )

    @staticmethod
    def _old(tx: Writer, scope: Scope, subject: str | None, version: int) -> ProfileRow:
        versions = tx.profile_history(_owner(scope), subject)
        for row in versions:
            if row.version == version and not isinstance(version, bool):
                if row.state in ("quarantined", "deleted"):
                    raise InvalidInput(
                        f"version {version} of the profile is {row.state} and does not come back"
                    )
                return row
        there = ", ".join(str(row.version) for row in versions[-10:]) or "none"
        raise NotFound(f"the profile has no version {version!r:.20}; the newest are: {there}")

    def _row(self, reader: Reader, scope: Scope, subject: str | None, text: str) -> ProfileRow:
        now = self._clock.now()
        versions = [row.version for row in reader.profile_history(_owner(scope), subject)]
        return sealed(
            ProfileRow(
                team_id=scope.team_id,
                id=new_id(now),
                user_id=scope.user_id,
                agent_id=subject,
                profile="user" if subject is None else "agent",
                version=1 + max(versions, default=0),
                content=text,
                source_kind="user",
                trust=TRUST["user"],
                recorded_at=to_micros(now),
                actor=scope.user_id,
            )
        )


def _owner(scope: Scope) -> Owner:
    return Owner(scope.team_id, scope.user_id)


def _check(text: object) -> None:
    if not isinstance(text, str):
        raise InvalidInput(f"a profile is text, not {type(text).__name__}")
    check_encodable(text, "the profile")
    if not clean_text(text):
        raise InvalidInput(
            "a profile must not be empty, and this text has no character that can be seen: to have an earlier text again, roll back to its version "
            "(memstore profile --history, then --roll-back)"
        )


def _stand(reader: Reader, made: list[ProfileRow]) -> bool:
    """Whether what was written is stored: settles a commit whose outcome was left open."""
    return all(
        any(
            held.id == row.id
            for held in reader.profile_history(Owner(row.team_id, row.user_id), row.agent_id)
        )
        for row in made
    )


def _record(reader: Reader, row: ProfileRow) -> ProfileRecord:
    sources = reader.sources_of(row.team_id, "profile", row.id, row.version)
    return ProfileRecord(
        id=row.id,
        profile=row.profile,  # type: ignore[arg-type] # a CHECK constraint holds it
        version=row.version,
        content=row.content,
        agent_id=row.agent_id,
        state=row.state,  # type: ignore[arg-type]
        updated_at=from_micros(row.recorded_at),
        actor=row.actor,
        run_id=row.run_id,
        sources=tuple(one for kind, one in sources if kind != "profile"),
    )
