"""Session keys ``agent:channel:chat_id``: the only constructor and the only parser (SPEC N1)."""

import re
import unicodedata
from typing import NamedTuple

from memstore.errors import InvalidSessionKey

MAX_KEY_LENGTH = 256
DEFAULT_CHANNEL = "default"
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


class SessionKey(NamedTuple):
    """The three parts; ``str()`` gives the stored form."""

    agent: str
    channel: str
    chat_id: str

    def __str__(self) -> str:
        return f"{self.agent}:{self.channel}:{self.chat_id}"


def session_key(agent: str, channel: str, chat_id: str) -> SessionKey:
    """Build a key from its parts.

    A key may later name a file, so path tricks are refused here, for every caller: ``..``, a leading slash or
    backslash, a backslash anywhere, drive letters, control characters, surrounding blanks. A slash inside a
    chat id is data (``a/b`` and ``a_b`` are two sessions) because no file is ever named by the raw key.

    :raises InvalidSessionKey: naming the part and the fault.
    """
    for part, value in (("agent", agent), ("channel", channel), ("chat id", chat_id)):
        _check_part(part, value)
    if ":" in agent or ":" in channel:
        raise InvalidSessionKey("':' separates the parts of a session key; it may stand in the chat id only")
    if "/" in agent or "/" in channel:
        raise InvalidSessionKey("'/' may stand in the chat id of a session key only")
    key = SessionKey(agent, channel, chat_id)
    if len(str(key)) > MAX_KEY_LENGTH:
        raise InvalidSessionKey(f"the session key is longer than {MAX_KEY_LENGTH} characters")
    return key


def _check_part(part: str, value: str) -> None:
    if not isinstance(value, str):
        raise InvalidSessionKey(f"the {part} of a session key must be text, not {type(value).__name__}")
    if not value or value != value.strip():
        raise InvalidSessionKey(f"the {part} of a session key is empty or has blanks around it: {value!r}")
    for character in value:
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            raise InvalidSessionKey(f"the {part} of a session key holds a control character: {value[:40]!r}")
    if value.startswith("/") or "\\" in value or _DRIVE.match(value):
        raise InvalidSessionKey(f"the {part} of a session key looks like a path: {value[:40]!r}")
    if any(piece in (".", "..") for piece in value.split("/")):
        raise InvalidSessionKey(f"the {part} of a session key holds '.' or '..': {value[:40]!r}")


def parse_session_key(text: str, agent: str | None) -> SessionKey:
    """Read a key as given by a caller whose scope names ``agent`` (or none).

    No colon: a bare chat id, completed to ``agent:default:<chat id>``. One colon: refused, since it could be
    either shape. More: split at the first two.

    :raises InvalidSessionKey: also when the key's agent is not the scope's.
    """
    if not isinstance(text, str):
        raise InvalidSessionKey(f"a session key must be text, not {type(text).__name__}")
    if _DRIVE.match(text):
        raise InvalidSessionKey(f"the session key looks like a path: {text[:40]!r}")
    colons = text.count(":")
    if colons == 0:
        if agent is None:
            raise InvalidSessionKey(
                "a bare chat id needs an agent: set Scope.agent_id or write agent:channel:chat_id"
            )
        return session_key(agent, DEFAULT_CHANNEL, text)
    if colons == 1:
        raise InvalidSessionKey(
            f"session key {text[:60]!r} has one colon; write agent:channel:chat_id, or a chat id without colons"
        )
    key = session_key(*text.split(":", 2))
    if agent is not None and key.agent != agent:
        raise InvalidSessionKey(
            f"session key {text[:60]!r} belongs to agent {key.agent!r}, but the scope's agent is {agent!r}"
        )
    return key
