"""Plain JSONL transcripts: one message a line."""

import stat
from collections.abc import Callable
from pathlib import Path

from memstore.errors import InvalidInput
from memstore.importers.intake import Intake, Placed, Store
from memstore.importers.turns import Turn
from memstore.session_key import SessionKey, parse_session_key
from memstore.types import ImportReport, Progress, Scope, SkippedLine

DEFAULT_TEAM = "default"
DEFAULT_AGENT = "default"


def import_jsonl(
    store: Store,
    path: str | Path,
    *,
    team_id: str | None = None,
    user_id: str | None = None,
    agent_id: str | None = None,
    task_id: str | None = None,
    session: str | None = None,
    progress: Progress | None = None,
    skipped: Callable[[SkippedLine], None] | None = None,
) -> ImportReport:
    """Import a JSONL file, or all ``*.jsonl`` files below a folder.

    Running it again, also after an interruption, after moving the file or after appending to it, stores only
    what is new. Lines that cannot be used are reported by number and stop nothing.

    A line goes where it says: its ``team_id``, ``user_id``, ``agent_id``, ``task_id`` and session. What is given
    here stands for lines that say nothing, and a line that names another team, user, agent or task than the one
    given is skipped. The team and the agent are "default" where neither names one; a line without a user is
    skipped.

    A session without colons is a chat id. Lines without a session go to a chat named after the file's first
    message (``import-…``), which moving the file does not change. Where that message has no time the file's
    name counts too: two talks that both begin with "hello" stay two.

    :param session: the session of all lines, whatever they say.
    :param progress: called with the bytes done and the bytes of all files.
    :param skipped: handed every line that could not be used; the report counts them all and names the first 1,000.
    :raises InvalidInput: when there is nothing to import, or what is given here cannot be a scope or session.
    :raises ImportStopped: when the store takes no more (locked, disk full, damaged). What was read until then is kept,
        its ``report`` counts it, and running the import again goes on from there.
    """
    given = _Given(team_id, user_id, agent_id, task_id, session)
    files = _files(Path(path))
    intake = Intake(store, files, progress, skipped)
    for file in files:
        intake.file(file, _Placing(given, file.name).place)
    return intake.report()


def _files(path: Path) -> list[Path]:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InvalidInput(f"{path} cannot be imported: {error}") from error
    if stat.S_ISDIR(mode):
        files = sorted(found for found in path.rglob("*.jsonl") if found.is_file())
        if not files:
            raise InvalidInput(f"{path} holds no *.jsonl file")
        return files
    if not stat.S_ISREG(mode):
        raise InvalidInput(f"{path} is no file and no folder")
    return [path]


class _Given:
    """What the caller said about all lines; checked before the first is read."""

    def __init__(
        self,
        team_id: str | None,
        user_id: str | None,
        agent_id: str | None,
        task_id: str | None,
        session: str | None,
    ) -> None:
        Scope(
            DEFAULT_TEAM if team_id is None else team_id,
            "-" if user_id is None else user_id,
            agent_id,
            task_id,
        )
        self.team_id, self.user_id, self.agent_id, self.task_id = team_id, user_id, agent_id, task_id
        self.session = session
        if session is not None:
            _key(session, agent_id)


def _key(session: str, agent_id: str | None) -> SessionKey:
    if agent_id is None and ":" not in session:
        agent_id = DEFAULT_AGENT
    return parse_session_key(session, agent_id)


class _Placing:
    """Where the lines of one file go."""

    def __init__(self, given: _Given, file_name: str) -> None:
        self._given = given
        self._file_name = file_name
        self._unnamed_chat: str | None = None

    def place(self, turn: Turn) -> Placed:
        given = self._given
        if self._unnamed_chat is None:
            place = "" if turn.time is not None else self._file_name
            self._unnamed_chat = f"import-{turn.digest(turn.id or '', place)[:12]}"
        team_id = _agreed("team", given.team_id, turn.team_id) or DEFAULT_TEAM
        user_id = _agreed("user", given.user_id, turn.user_id)
        if user_id is None:
            raise InvalidInput("the line names no user; say whose it is with user_id")
        agent_id = _agreed("agent", given.agent_id, turn.agent_id)
        task_id = _agreed("task", given.task_id, turn.task_id)
        key = _key(given.session or turn.session or self._unnamed_chat, agent_id)
        return Placed(Scope(team_id, user_id, key.agent, task_id), key, turn)


def _agreed(what: str, given: str | None, named: str | None) -> str | None:
    if given is not None and named is not None and given != named:
        raise InvalidInput(f"the line belongs to {what} {named!r:.60}, not to {given!r:.60}")
    return named if given is None else given
