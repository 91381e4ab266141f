"""What was changed: deletions, sessions, titles, branches, memories and words are as the last calls left them."""

from collections.abc import Iterator

from evidence import Call  # noqa: TC002 - of this folder, and used for types alone
from look import Look


def check_deletions(look: Look) -> Iterator[str]:
    """What was deleted stays so, in the fallback too; nothing is deleted that nobody deleted."""
    named: dict[str, list[Call]] = {}
    for call in look.of("deletes"):
        named.setdefault(call["deletes"], []).append(call)
    newest = {row["id"]: row for row in look.tables.versions}
    for row in [*look.tables.messages, *newest.values()]:
        owners = [
            c
            for c in named.get("all", ())
            if tuple(c["scope"]) == (row["team_id"], row["user_id"], row["agent_id"])
        ]
        calls = [*named.get(row["id"], ()), *owners]
        if row["state"] == "deleted" and not calls:
            yield f"{row['id']} is deleted, and nobody deleted it"
        must = [
            c for c in calls
            if look.is_acked(c) and (c["deletes"] != "all" or look.said_before(row, c.begun))
        ]  # fmt: skip
        if must and row["state"] != "deleted":
            yield f"LOST {must[0].name}: {row['id']} was deleted, that was acknowledged, and it is back"
        if must and "pos" in row and row["id"] not in look.lines.deleted:
            yield f"LOST {must[0].name}: the deletion of {row['id']} has no line"


def check_sessions(look: Look) -> Iterator[str]:
    """Live windows that were cleared and sessions that were deleted stay so, and only those are."""
    done: dict[str, dict[tuple, list[Call]]] = {"clears": {}, "hides": {}}
    for key, calls in done.items():
        for call in look.of(key):
            if call.refused is None:
                calls.setdefault((*call.owner, call[key]), []).append(call)
    deleting = {tuple(call["scope"]) for call in look.of("deletes")}
    for row in look.tables.messages:
        session = row["team_id"], row["user_id"], row["session"]
        clears, hides = done["clears"].get(session, []), done["hides"].get(session, [])
        for call in (*clears, *hides):
            if not look.is_acked(call) or not look.said_before(row, call.begun):
                continue
            if row["live"]:
                yield f"LOST {call.name} ({call['op']}): {row['id']} is in the live window again"
            if call in hides and not row["hidden"]:
                yield f"LOST {call.name} ({call['op']}): {row['id']} is not hidden any more"
        if row["hidden"] and not hides:
            yield f"{row['id']} is hidden, and nobody deleted its session"
        touched = clears or hides or row["branch"] or (*session[:2], row["agent_id"]) in deleting
        if not row["live"] and not touched and row["state"] == "live":
            yield f"{row['id']} left the live window, and nobody cleared it"


def check_titles(look: Look) -> Iterator[str]:
    """A session has the title that was acknowledged last, or one that was on its way since."""
    hidden = {(*call.owner, call["hides"]) for call in look.of("hides")}
    renamed: dict[tuple, list[Call]] = {}
    for call in look.of("titles"):
        if call.refused is None:
            renamed.setdefault((*call.owner, call["titles"]), []).append(call)
    found = {
        (row["team_id"], row["user_id"], row["session"]): (row["title"], row["pinned"])
        for row in look.tables.rows("SELECT * FROM sessions")
    }
    for session, calls in renamed.items():
        acked = [number for number, call in enumerate(calls) if look.is_acked(call)]
        if acked and session not in hidden:
            allowed = {(call["title"], call["pinned"]) for call in calls[acked[-1] :]}
            if found.get(session) not in allowed:
                yield f"LOST {calls[acked[-1]].name}: the title of {session[2]} is {found.get(session)}"


def check_branches(look: Look) -> Iterator[str]:
    """The current branch of a transcript's session is the one of the last call."""
    deleted = {tuple(call["scope"]) for call in look.of("deletes") if call["deletes"] == "all"}
    talks: dict[tuple, list[Call]] = {}
    for call in look.of("branch"):
        talks.setdefault((*call["scope"], call["session"]), []).append(call)
    for (*scope, session), calls in talks.items():
        acked = [number for number, call in enumerate(calls) if look.is_acked(call)]
        if not acked or tuple(scope) in deleted:
            continue
        found = look.sessions.get((scope[0], scope[1], session), ())
        rows = [row["id"] for row in found if row["live"]]
        allowed = []
        for call in calls[acked[-1] :]:
            parts = look.messages.get(call.name, {})
            allowed.append([*call["branch"], *(row["id"] for part in sorted(parts) for row in parts[part])])
        if rows not in allowed:
            yield f"LOST {calls[acked[-1]].name}: {session} shows {len(rows)} messages, other than its client's last list"


def check_memories(look: Look) -> Iterator[str]:
    """Every acknowledged version is there; versions are numbered without a gap, and the last one is current."""
    rows = {(row["id"], row["version"]): row for row in look.tables.versions}
    for call in look.of("memory"):
        stored = look.versions.get(call.tag, {})
        if any(len(versions) > 1 for versions in stored.values()):
            yield f"{call.name}: a version is stored twice"
        if look.is_acked(call):
            row = rows.get(((call.done or {}).get("id"), (call.done or {}).get("version")))
            row = row or next((one for versions in stored.values() for one in versions), None)
            if row is None or row["content"] != call["memory"]["content"]:
                yield f"LOST {call.name} ({call['op']}): the acknowledged version is not in the database"
    deleted = {call["deletes"] for call in look.of("deletes")}
    current = dict(look.tables.connection.execute("SELECT id, version FROM memories").fetchall())
    numbers: dict[str, list[int]] = {}
    for (memory_id, version), row in rows.items():
        numbers.setdefault(memory_id, []).append(version)
        last = version == current.get(memory_id)
        if row["state"] == "live" and not last:
            yield f"version {version} of {memory_id} is live beside a later one"
        if last and row["state"] != "live" and memory_id not in deleted and "all" not in deleted:
            yield f"memory {memory_id} is {row['state']}, and nobody deleted it"
    for memory_id, versions in numbers.items():
        if versions != list(range(1, len(versions) + 1)) or current.get(memory_id) != len(versions):
            yield f"memory {memory_id} has versions {versions} and points to {current.get(memory_id)}"


def check_words(look: Look) -> Iterator[str]:
    words = {
        (r["team_id"], r["word"]) for r in look.tables.rows("SELECT team_id, word FROM dictionary_words")
    }
    for call in look.of("word"):
        if look.is_acked(call) and (call["scope"][0], call["word"]) not in words:
            yield f"LOST {call.name}: the word {call['word']} is not in the dictionary"
