"""Answers for people. Everything shown comes from stored text, so what could steer a terminal is escaped."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

import click

from memstore.times import render
from memstore.types import (
    BackupRecord,
    Change,
    DictionaryWord,
    DoctorReport,
    ExtractReport,
    FallbackDay,
    GenerationRecord,
    JobRecord,
    Memory,
    ProfileRecord,
    PruneReport,
    Recall,
    RecallTrace,
    Replay,
    SceneRecord,
    SessionRecord,
    SpaceReport,
    StoredMessage,
    UsageRecord,
    VerdictRecord,
    WhyNot,
)
from memstore.wording import Language, degraded_text, hit_lines, recall_lines, replay_lines, why_not_text

PREVIEW_CHARS = 200
UNBOUNDED_WIDTH = 1_000
"""Columns of a table that goes to a file or a pipe: nothing is wrapped there."""

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def safe(text: str) -> str:
    """Text that cannot move the cursor, change colours or reverse its direction."""
    return _STEERING.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return render(value.replace(microsecond=0))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, Mapping | list | tuple):
        from memstore.cli.output import to_json

        return safe(to_json(value))
    return safe(str(value))


def _preview(value: object, chars: int = PREVIEW_CHARS) -> str:
    line = " ".join(_shown(value).split())
    return line if len(line) <= chars else line[: chars - 1] + "…"


def _lines(text: str, indent: str = "   ") -> None:
    for line in text.split("\n"):
        click.echo(f"{indent}{safe(line)}")


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = None if sys.stdout.isatty() else UNBOUNDED_WIDTH
    console = Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(Text(safe(head)), overflow="fold")
    for row in rows:
        table.add_row(*(Text(_preview(cell)) for cell in row))
    console.print(table)


def recall(answer: Recall, language: Language = "en") -> None:
    """Hits, best first, each with its explanation where one was asked for; then the recall as a whole."""
    for hit in answer.hits:
        click.echo(
            f"{hit.rank}. {hit.score:.4f}  {_shown(hit.role or hit.kind)}  {_shown(hit.created_at)}  {hit.id}"
        )
        _lines(hit.content)
        for line in hit_lines(hit.explanation, language) if hit.explanation is not None else ():
            _lines(line, "     ")
    if not answer.hits:
        click.echo("no hits" if language == "en" else "没有结果")
    for part in answer.degraded:
        click.echo(safe(degraded_text(part, language)))
    for line in recall_lines(answer, language):
        click.echo(safe(line))
    if answer.trace_id is not None:
        click.echo(f"trace: {answer.trace_id}")


def why_not(document: WhyNot, language: Language = "en") -> None:
    """Why a row did not come back."""
    _lines(why_not_text(document, language), "")


def traces(document: Mapping[str, Any]) -> None:
    """Stored recalls, the newest first."""
    found: list[RecallTrace] = document["traces"]
    if found:
        rows = [(t.id, t.asked_at, t.layer, len(t.hit_ids), t.query) for t in found]
        _table(("id", "asked", "layer", "hits", "query"), rows)
    else:
        click.echo("no stored recalls")


def replay(document: Replay, language: Language = "en") -> None:
    """A stored recall asked again: what is different."""
    click.echo(f"{document.trace.id}  {_shown(document.trace.asked_at)}  {_preview(document.trace.query)}")
    for line in replay_lines(document, language):
        click.echo(safe(line))


def memories(document: Mapping[str, Any]) -> None:
    """A page of memories, and how to go on."""
    found: list[Memory] = document["memories"]
    if found:
        rows = [(m.id, m.kind, m.priority, m.agent_id, m.recorded_at, m.content) for m in found]
        _table(("id", "kind", "priority", "agent", "recorded", "content"), rows)
    else:
        click.echo("no memories")
    if document["next_cursor"]:
        click.echo(f"there are more: --cursor {document['next_cursor']} (or --all)")


def versions(document: Mapping[str, Any]) -> None:
    """The versions of a memory, oldest first; of a message, the message."""
    rows = [
        (v.version, v.state, v.recorded_at, v.actor, v.superseded_by, v.content)
        if isinstance(v, Memory)
        else (1, "deleted" if v.deleted_at else "live", v.recorded_at, v.role, None, v.text)
        for v in document["versions"]
    ]
    _table(("version", "state", "recorded", "by", "superseded by", "content"), rows)


def changes(document: Mapping[str, Any]) -> None:
    """What became of memories, oldest first: old → new."""
    found: list[Change] = document["changes"]
    if found:
        rows = [(c.at, c.what, c.id, c.version, _old_and_new(c)) for c in found]
        _table(("changed", "what", "id", "version", "memory"), rows)
    else:
        click.echo("no changes")
    if document["next_cursor"]:
        click.echo(f"there are more: --cursor {document['next_cursor']} (or a larger --limit)")


_SHOWN_DIFFERENCES = ("priority", "visibility", "expires_at", "metadata")


def _old_and_new(change: Change) -> str:
    old, new = change.before, change.after
    if old is None or new is None:
        only = old or new
        return "" if only is None else only.content
    differences = [
        f"{name} {_shown(getattr(old, name)) or '-'} → {_shown(getattr(new, name)) or '-'}"
        for name in _SHOWN_DIFFERENCES
        if getattr(old, name) != getattr(new, name)
    ]
    wording = new.content
    if old.content != new.content:  # each cut by itself, so that a long old text does not hide the new one
        wording = f"{_preview(old.content, PREVIEW_CHARS // 3)} → {_preview(new.content, PREVIEW_CHARS // 3)}"
    return "; ".join([_preview(wording, PREVIEW_CHARS * 2 // 3 + 3), *differences])


def sessions(document: Mapping[str, Any]) -> None:
    """Sessions, pinned first."""
    found: list[SessionRecord] = document["sessions"]
    if not found:
        click.echo("no sessions")
        return
    rows = [(s.session, s.messages, s.pinned, s.updated_at, s.title) for s in found]
    _table(("session", "messages", "pinned", "updated", "title"), rows)


def messages(document: Mapping[str, Any]) -> None:
    """A session's messages as a conversation."""
    found: list[StoredMessage] = document["messages"]
    for message in found:
        aside = "" if message.live else "  (not in the live window)"
        who = f"{message.role} {_shown(message.name)}".strip()
        click.echo(f"{who}  {_shown(message.created_at)}  {message.id}{aside}")
        _lines(message.text)
    if not found:
        click.echo("no messages")


def record(document: Any) -> None:
    """The fields of one value, one a line; lists of values indented below their name."""
    if is_dataclass(document) and not isinstance(document, type):
        pairs = [(f.name, getattr(document, f.name)) for f in fields(document)]
    else:
        pairs = list(document.items())
    for name, value in pairs:
        if isinstance(value, tuple) and value and is_dataclass(value[0]):
            click.echo(f"{name}:")
            for item in value:
                _lines(", ".join(_shown(getattr(item, f.name)) for f in fields(item)))
        elif isinstance(value, str) and "\n" in value:
            click.echo(f"{name}:")
            _lines(value)
        elif value not in (None, (), [], {}):
            click.echo(f"{name}: {_shown(value)}")


def doctor(report: DoctorReport) -> None:
    """What was found, and the commands that mend it."""
    for finding in report.findings:
        click.echo(f"{finding.severity}: {finding.check}: {safe(finding.message)}")
        if finding.repair:
            click.echo(f"   to mend it: {safe(finding.repair)}")
    click.echo("sound" if report.ok else "not sound")
    for group in (report.counts, report.place, report.versions):
        if group:
            shown = ((name, "unknown" if value is None else _shown(value)) for name, value in group.items())
            click.echo(", ".join(f"{name} {value}" for name, value in shown))


def generations(document: Mapping[str, Any]) -> None:
    """The embedding generations, by number."""
    found: list[GenerationRecord] = document["generations"]
    if not found:
        click.echo("no vectors yet; run: memstore index --embedder MODEL")
        return
    shown = ("number", "state", "model", "revision", "dim", "vectors", "pending", "refused", "activated_at")
    rows = [(*(getattr(g, name) for name in shown), f"{g.bytes / 1e6:.1f}") for g in found]
    _table((*shown[:-1], "activated", "MB"), rows)


def backups(document: Mapping[str, Any]) -> None:
    """The recorded backups, oldest first."""
    found: list[BackupRecord] = document["backups"]
    if not found:
        click.echo("no backups yet; run: memstore backup")
        return
    rows = [(b.taken_at, f"{b.bytes / 1e6:.1f}", b.present, b.path) for b in found]
    _table(("taken", "MB", "there", "file"), rows)


def space(document: SpaceReport) -> None:
    """What a vacuum gave back."""
    before, after = document.bytes_before / 1e6, document.bytes_after / 1e6
    click.echo(f"database: {before:.1f} MB before, {after:.1f} MB now")
    before, after = document.log_bytes_before / 1e6, document.log_bytes_after / 1e6
    click.echo(f"write-ahead log: {before:.1f} MB before, {after:.1f} MB now")
    if document.pending:
        click.echo("another process is still reading: the files shrink when it is through")
    if document.strays:
        click.echo(f"{document.strays} index entries without a row were removed")
    for number in document.retired:
        click.echo(f"generation {number} is retired and kept; to free it: memstore generations drop {number}")


def fallback_days(document: Mapping[str, Any]) -> None:
    """The day files, oldest first."""
    found: list[FallbackDay] = document["days"]
    if not found:
        click.echo("no day files")
        return
    rows = [(d.day, d.bytes, d.lines, d.contained, d.backup or "none") for d in found]
    _table(("day", "bytes", "lines", "in the database", "in the backup"), rows)


def pruned(document: PruneReport) -> None:
    """Day files that went, and those that stayed with the reason."""
    click.echo(f"removed {len(document.removed)} day files, {document.freed_bytes} bytes")
    for day in document.removed:
        click.echo(f"  {safe(day)}")
    if document.kept:
        click.echo("kept:")
    for kept in document.kept:
        click.echo(f"  {safe(kept.day)}  {kept.bytes} bytes: {safe(kept.reason)}")


def words(document: Mapping[str, Any]) -> None:
    """The words of a dictionary."""
    found: list[DictionaryWord] = document["words"]
    if not found:
        click.echo("no words")
        return
    _table(
        ("word", "frequency", "added by", "added"),
        [(w.word, w.frequency, w.added_by, w.added_at) for w in found],
    )


def usage(document: Mapping[str, Any]) -> None:
    """What models cost, by day."""
    found: list[UsageRecord] = document["usage"]
    if not found:
        click.echo("no model was asked")
        return
    shown = ("team_id", "day", "model", "task", "calls", "failures", "input_tokens", "output_tokens")
    heads = ("team", "day", "model", "task", "calls", "failed", "tokens asked", "answered")
    _table(heads, [[getattr(row, name) for name in shown] for row in found])


def scenes(document: Mapping[str, Any]) -> None:
    """Scenes, or the versions of one, each with its text and where it comes from."""
    found: list[SceneRecord] = document["scenes"]
    for scene in found:
        aside = "" if scene.state == "live" else f"  ({scene.state})"
        click.echo(
            f"{safe(scene.name)}  version {scene.version}{aside}  {_shown(scene.updated_at)}  {scene.id}"
        )
        _lines(scene.content)
        click.echo(safe(f"   by {scene.actor} from {', '.join(scene.sources)}; agent {scene.agent_id}"))
    if not found:
        click.echo("no scenes")


def profiles(document: Mapping[str, Any]) -> None:
    """The versions of a profile, oldest first."""
    found: list[ProfileRecord] = document["profiles"]
    for one in found:
        aside = "" if one.state == "live" else f"  ({one.state})"
        click.echo(f"version {one.version}{aside}  {_shown(one.updated_at)}  by {safe(one.actor)}")
        _lines(one.content)
    if not found:
        click.echo("no versions")


def text(document: Mapping[str, Any]) -> None:
    """A text as it is."""
    _lines(document["text"], "")


def jobs(document: Mapping[str, Any]) -> None:
    """Jobs, the newest first."""
    found: list[JobRecord] = document["jobs"]
    if not found:
        click.echo("no jobs")
        return
    heads = (
        "job",
        "kind",
        "state",
        "user",
        "about",
        "attempts",
        "next try",
        "model calls",
        "tokens",
        "last error",
    )
    _table(heads, [(*_job_columns(job), job.last_error) for job in found])


def _job_columns(job: JobRecord) -> tuple[object, ...]:
    tokens = job.input_tokens + job.output_tokens
    user = "/".join(part for part in (job.team_id, job.user_id) if part)
    next_try = (job.not_before or "now") if job.state == "queued" else None
    return (job.job_no, job.kind, job.state, user, job.subject, job.attempts, next_try, job.calls, tokens)


def rows(document: Mapping[str, Any]) -> None:
    """The rows of a statement; each block of equal columns is a table."""
    block: list[dict[str, object]] = []
    for row in document["rows"]:
        if block and row.keys() != block[0].keys():
            _block(block)
            block = []
        block.append(row)
    _block(block)


def _block(block: Sequence[Mapping[str, object]]) -> None:
    if block:
        _table(tuple(block[0]), [tuple(row.values()) for row in block])


def bench(document: Mapping[str, Any]) -> None:
    """Scores a leg, what was found wanting, and floors where they were looked for."""
    legs = document["legs"]
    measures = next((list(scores) for scores in legs.values() if scores), [])
    rows = [(leg, *(scores[name] for name in measures)) for leg, scores in legs.items() if scores]
    click.echo(f"{document['questions']} questions with right rows")
    _table(("leg", *measures), rows)
    for leg, reason in document["degraded"].items():
        click.echo(f"without the {leg} leg: {safe(reason)}")
    none, latency = document["none"], document["latency_ms"]
    if none["questions"]:
        click.echo(f"nothing to find: {none['empty_answers']} of {none['questions']} answers were empty")
    click.echo(f"an answer took {latency['p50']} ms (p50), {latency['p95']} ms (p95)")
    if document["worst"]:
        click.echo("worst answered (ranks of the right rows, - where missing):")
    for entry in document["worst"]:
        ranks = "; ".join(
            f"{leg} {', '.join('-' if rank is None else str(rank) for rank in found)}"
            for leg, found in entry["ranks"].items()
        )
        click.echo(f"  line {entry['line']}: {_preview(entry['query'], 80)}  [{ranks}]")
    if "calibration" in document:
        _calibration(document["calibration"])


def _calibration(found: Mapping[str, Any]) -> None:
    for leg, of_leg in found["legs"].items():
        if of_leg["floor"] is None:
            click.echo(f"floor of the {leg} leg: none ({of_leg['right_rows']} right rows are too few)")
        else:
            click.echo(
                f"floor of the {leg} leg: {of_leg['floor']:.6f} (loses {of_leg['lost']} of "
                f"{of_leg['right_rows']} right rows)"
            )
    click.echo(
        "stored for the store's model; the figures above are with these floors"
        if found["applied"]
        else "not stored (--apply stores them); the figures above are with these floors"
    )


def verdicts(document: Mapping[str, Any]) -> None:
    """What was decided about proposed memories, each with what it was decided from."""
    found: list[VerdictRecord] = document["verdicts"]
    for record in found:
        _verdict(record)
    if not found:
        click.echo("no verdicts")
    if document["next_cursor"]:
        click.echo(f"there are more: --cursor {document['next_cursor']}")


def _verdict(record: VerdictRecord) -> None:
    by = record.decided_by if record.prompt is None else f"{record.decided_by} ({record.prompt})"
    click.echo(f"{record.id}  {record.action}  {_shown(record.decided_at)}  by {safe(by)}")
    _lines(f"{record.kind} {record.priority}: {record.content}")
    _lines(f"from {', '.join(record.source_ids)} in {record.session}", "     ")
    replaced = dict(record.candidates)
    what = "covered by" if record.action == "skip" else "in place of"
    for target in record.target_ids:
        _lines(f"{what} {target}  {_preview(replaced.get(target, 'of the same extraction'))}", "     ")
    if record.memory_id is not None:
        _lines(f"made {record.memory_id}", "     ")
    if record.reason:
        _lines(f"because: {record.reason}", "     ")
    if record.undone_at is not None:
        _lines(f"undone {_shown(record.undone_at)} by {record.undone_by}", "     ")


def extracted(document: ExtractReport) -> None:
    """What a session's pending messages became."""
    by = f", by {safe(document.decided_by)}" if document.decided_by else ""
    click.echo(f"{document.messages} messages of {safe(document.session)}{by}")
    if document.scene:
        _lines(f"situation: {document.scene}")
    for record in document.verdicts:
        _verdict(record)
    for reason in document.refused:
        _lines(f"refused: {reason}")
    if document.messages and not document.verdicts:
        click.echo("nothing to keep")


SPOKEN_VIEWS: Mapping[str, Callable[[Any, Language], None]] = {
    "recall": recall,
    "why_not": why_not,
    "replay": replay,
}
"""Those with sentences, which exist in several languages."""

VIEWS: Mapping[str, Callable[[Any], None]] = {
    "traces": traces,
    "memories": memories,
    "versions": versions,
    "changes": changes,
    "sessions": sessions,
    "messages": messages,
    "record": record,
    "doctor": doctor,
    "generations": generations,
    "backups": backups,
    "space": space,
    "fallback_days": fallback_days,
    "pruned": pruned,
    "words": words,
    "usage": usage,
    "scenes": scenes,
    "profiles": profiles,
    "text": text,
    "jobs": jobs,
    "rows": rows,
    "bench": bench,
    "verdicts": verdicts,
    "extracted": extracted,
}
