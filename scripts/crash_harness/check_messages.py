"""Messages: what was said is there, once, as a whole, in its order, and in the fallback too."""

import json
from collections import Counter
from collections.abc import Iterator

from evidence import Call, Row
from look import Look


def check_said(look: Look) -> Iterator[str]:
    """Acknowledged messages are there, once, as they were said; no call is there in part; a refused one not at all."""
    for call in look.of("said"):
        stored = look.messages.get(call.tag, {})
        if any(len(rows) > 1 for rows in stored.values()):
            yield f"{call.name}: a message is stored twice"
        if call["whole"] and 0 < len(stored) < len(call["said"]):
            yield f"{call.name}: {len(stored)} of the {len(call['said'])} messages of one call are stored"
        if call["must_fail"] and (stored or look.versions.get(call.tag)):
            yield f"{call.name}: {call['op']} was refused and stored all the same"
        if look.is_acked(call) and not call["must_fail"]:
            yield from _check_acked_messages(look, call, stored)


def _check_acked_messages(look: Look, call: Call, stored: dict[int, list[Row]]) -> Iterator[str]:
    ids = (call.done or {}).get("ids", ())[-len(call["said"]) :]
    kept = (call.done or {}).get("stored", "both")
    if len(stored) < len(call["said"]) and (kept != "fallback" or look.mode == "settled"):
        yield f"LOST {call.name} ({call['op']}): {len(call['said']) - len(stored)} acknowledged messages are not in the database"
        return
    written = look.written.get(call.tag, {})
    if len(written) < len(call["said"]) and kept != "database":
        yield f"LOST {call.name} ({call['op']}): {len(call['said']) - len(written)} acknowledged messages have no line"
    for part, content in enumerate(call["said"], 1):
        for row in stored.get(part, ()):
            if json.loads(row["content"]) != content or row["session"] != call["session"]:
                yield f"{call.name}: message {part} is not what was said"
            if (row["team_id"], row["user_id"]) != call.owner:
                yield f"{call.name}: message {part} belongs to another user"
            if ids and row["id"] != ids[part - 1]:
                yield f"{call.name}: message {part} has another id than was acknowledged"
            if call["whole"] and call["clients"] and row["client_id"] != call["clients"][part - 1]:
                yield f"{call.name}: message {part} lost its client's id"
    positions = [row["pos"] for part in sorted(stored) for row in stored[part]]
    if call["whole"] and positions and positions != list(range(positions[0], positions[0] + len(positions))):
        yield f"{call.name}: the messages of one call are not together: {positions}"


def check_fallback(look: Look) -> Iterator[str]:
    """The fallback holds every row of the database, as it is there; settled, the database holds every line."""
    owed = {
        json.loads(operation)["id"]
        for operation in look.tables.values("SELECT operation FROM unwritten_lines")
        if json.loads(operation)["op"] == "message"
    }
    client_ids = {(row["session"], row["client_id"]) for row in look.tables.messages if row["client_id"]}
    rows = {row["id"]: row for row in look.tables.messages}
    for row in rows.values():
        line = look.lines.messages.get(row["id"])
        if line is None:
            if row["id"] not in owed:
                yield f"message {row['id']} is in the database and has no line"
        elif any(
            line.get(name) != row[name] for name in ("content", "session", "client_id", "checksum", "role")
        ):
            yield f"message {row['id']} differs from its line"
        elif look.mode == "settled" and look.lines.places.get(row["id"]) != (row["pos"], row["arrival"]):
            yield f"message {row['id']} stands elsewhere than its line says"
    for one in look.lines.twice:
        yield f"message {one} has two lines"
    if look.mode == "settled":
        for one, line in look.lines.messages.items():
            if one not in rows and (line["session"], line.get("client_id")) not in client_ids:
                yield f"the line of message {one} was never adopted"


def check_order(look: Look) -> Iterator[str]:
    """Inside a session positions, inside a user arrivals, are given out once."""
    for columns in (("team_id", "user_id", "session", "pos"), ("team_id", "user_id", "arrival")):
        twice = [
            key
            for key, n in Counter(tuple(r[c] for c in columns) for r in look.tables.messages).items()
            if n > 1
        ]
        if twice:
            yield f"given out twice: {columns[-1]} of {twice[:3]}"
