"""What ``doctor`` finds in what is derived: text indexes and vectors. ``reindex`` makes all of it anew from the rows."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import apsw

from memstore.storage.sqlite import keys, text_index, vector_index
from memstore.storage.sqlite.connection import all_rows, scalar
from memstore.text import Tokenizer
from memstore.types import LAYERS, Finding, Layer

REINDEX = "memstore reindex"
MAX_TEAMS = 500
ROWS_COMPARED = 2_000
"""Of a larger table so many rows are compared with what was made from them, spread evenly, unless all are asked for."""
TERMS_COMPARED = 500
"""Of a text index so many terms are searched for, spread evenly, unless all are asked for."""
TokenizerOf = Callable[[str], Tokenizer]
"""Gives a team's tokenizer."""


@contextmanager
def snapshot(connection: apsw.Connection) -> Iterator[None]:
    """Statements that are compared with each other see one state, whatever others write meanwhile."""
    connection.execute("BEGIN").fetchall()
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT").fetchall()


def structure_fault(connection: apsw.Connection, tables: Iterable[str]) -> str | None:
    """What SQLite's integrity check says against the pages of some tables; None where it says nothing. Tables that
    are not there have none."""
    for table in tables:
        if not connection.table_exists("main", table):
            continue
        try:
            lines = all_rows(connection, f"PRAGMA integrity_check({table})")
        except (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError) as error:
            return f"{table}: {error}"
        if lines != [("ok",)]:
            return f"{table}: {lines[0][0]}"
    return None


def check_text(connection: apsw.Connection, tokenizer_of: TokenizerOf, *, full: bool) -> list[Finding]:
    findings = []
    teams = int(scalar(connection, "SELECT count(*) FROM teams"))
    if teams > MAX_TEAMS:
        message = f"{teams} teams in one file slow its opening; use a file a team, or PostgreSQL"
        findings.append(Finding("text index", "warning", message))
    other: dict[str, list[str]] = {}
    for name, team_id, layer, made_by in all_rows(
        connection,
        "SELECT i.table_name, t.team_id, i.layer, i.tokenizer FROM text_indexes i JOIN teams t USING (team_no)"
        " WHERE i.state = 'active' ORDER BY i.table_name",
    ):
        tokenizer = tokenizer_of(team_id)
        if made_by != tokenizer.identity:
            other.setdefault(f"({made_by}), this one is {tokenizer.identity}", []).append(name)
        fault = structure_fault(connection, text_index.shadows(name))
        fault = fault or text_index.integrity_fault(connection, name)
        if fault:
            findings.append(Finding("text index", "error", f"{name}: {fault}", REINDEX))
        else:
            compared = made_by == tokenizer.identity
            findings += _text_drift(connection, name, layer, tokenizer, compared=compared, full=full)
    for difference, names in other.items():
        message = f"{', '.join(names)}: made by another tokenizer {difference}"
        findings.append(Finding("tokenizer", "error", message, REINDEX))
    for (name,) in all_rows(connection, "SELECT table_name FROM text_indexes WHERE state = 'building'"):
        message = (
            f"{name} is being built, or was left unfinished; until then searches use the one that is there"
        )
        findings.append(Finding("text index", "warning", message, REINDEX))
    return [*findings, *_unlisted(connection, tokenizer_of)]


def _unlisted(connection: apsw.Connection, tokenizer_of: TokenizerOf) -> list[Finding]:
    """Layers of a team that hold words and have no index: a search there finds nothing without saying why."""
    findings = []
    for layer, table in text_index.ROW_TABLE.items():
        for team_no, team_id in all_rows(
            connection,
            "SELECT team_no, team_id FROM teams WHERE team_no NOT IN"
            " (SELECT team_no FROM text_indexes WHERE layer = ? AND state = 'active')",
            (layer,),
        ):
            slots = keys.team_range(team_no)
            rows = all_rows(
                connection,
                f"SELECT {text_index.TEXT_COLUMNS[layer]} FROM {table} m"
                " WHERE m.slot BETWEEN ? AND ? AND m.state <> 'deleted'",
                (slots.first, slots.last),
            )
            tokenizer = tokenizer_of(team_id)
            if any(tokenizer.index(text_index.spoken(*columns)) for columns in rows):
                message = f"the {layer} of team {team_id!r} are in no text index"
                findings.append(Finding("text index", "error", message, REINDEX))
    return findings


def _text_drift(
    connection: apsw.Connection, name: str, layer: Layer, tokenizer: Tokenizer, *, compared: bool, full: bool
) -> list[Finding]:
    """Rows that are missing from the index, that are too many, or that it holds under other words than theirs."""
    table, text = text_index.ROW_TABLE[layer], text_index.TEXT_COLUMNS[layer]
    try:
        missing = sum(
            bool(tokenizer.index(text_index.spoken(*columns)))
            for columns in all_rows(
                connection,
                f"SELECT {text} FROM {table} m JOIN teams t ON t.team_id = m.team_id"
                " JOIN text_indexes i ON i.team_no = t.team_no AND i.table_name = ?"
                f" WHERE m.state <> 'deleted' AND m.slot NOT IN (SELECT rowid FROM {name})",
                (name,),
            )
        )
        orphans = scalar(
            connection,
            f"SELECT count(*) FROM {name} f LEFT JOIN {table} m ON m.slot = f.rowid"
            " WHERE m.slot IS NULL OR m.state = 'deleted'",
        )
        stale, left_out = _stale(connection, name, layer, tokenizer, full=full) if compared else (0, 0)
        with snapshot(connection):
            unfound = text_index.unfound_terms(connection, name, None if full else TERMS_COMPARED)
    except apsw.Error as error:
        return [Finding("text index", "error", f"{name}: unreadable: {error}", REINDEX)]
    findings = []
    if missing or orphans or stale:
        message = f"{name}: {missing} rows are missing, {orphans} are too many, {stale} hold other tokens than theirs"
        findings.append(Finding("text index", "error", message, REINDEX))
    if unfound:
        message = f"{name}: {unfound} of its terms are not found by searches"
        findings.append(Finding("text index", "error", message, REINDEX))
    if left_out:
        message = (
            f"{name}: the tokens of {left_out} rows were not compared; memstore doctor --full compares all"
        )
        findings.append(Finding("text index", "info", message))
    return findings


def _stale(
    connection: apsw.Connection, name: str, layer: Layer, tokenizer: Tokenizer, *, full: bool
) -> tuple[int, int]:
    """(rows with tokens that are not their text's, rows not looked at): every n-th row of a large index."""
    total = int(scalar(connection, f"SELECT count(*) FROM {name}"))
    every = 1 if full else max(1, -(-total // ROWS_COMPARED))
    looked_at = stale = 0
    for words, literal, *columns in connection.execute(
        f"SELECT f.words, f.literal, {text_index.TEXT_COLUMNS[layer]} FROM"
        f" (SELECT rowid AS slot, row_number() OVER (ORDER BY rowid) AS number FROM {name}) n"
        f" CROSS JOIN {name} f ON f.rowid = n.slot JOIN {text_index.ROW_TABLE[layer]} m ON m.slot = n.slot"
        " WHERE n.number % ? = 0 AND m.state <> 'deleted'",
        (every,),
    ):
        looked_at += 1
        tokens = tokenizer.index(text_index.spoken(*columns))
        stale += (words, literal) != (tokens.words, tokens.literal)
    return stale, total - looked_at if every > 1 else 0


def check_vectors(connection: apsw.Connection, *, full: bool) -> list[Finding]:
    findings = []
    for generation, dim in all_rows(
        connection, "SELECT generation, dim FROM embedding_generations WHERE state = 'active'"
    ):
        for layer in LAYERS:
            name = vector_index.table_name(generation, layer)
            fault = structure_fault(connection, [name])
            if fault:
                findings.append(Finding("vectors", "error", fault, REINDEX))
                continue
            try:
                damaged = len(vector_index.damaged(connection, generation, layer, dim))
                lost, orphans = _vector_drift(connection, name, generation, layer)
            except apsw.Error as error:
                findings.append(Finding("vectors", "error", f"{name}: unreadable: {error}", REINDEX))
                continue
            if damaged or lost or orphans:
                message = f"{name}: {damaged} damaged, {lost} lost, {orphans} without a row"
                findings.append(Finding("vectors", "error", message, REINDEX))
    findings += [
        *_check_unqueued(connection),
        *_check_kept(connection, full=full),
        *_check_strays(connection),
    ]
    # A change over that is unfinished has its own finding: what waits there is not for 'memstore index' to do.
    answering = "(SELECT generation FROM embedding_generations WHERE state = 'active' UNION ALL SELECT 0)"
    queued = f"SELECT count(*) FROM pending_vectors WHERE generation IN {answering}"
    waiting = int(scalar(connection, f"{queued} AND refused IS NULL"))
    if waiting:
        findings.append(Finding("vectors", "info", f"{waiting} rows wait for a vector", "memstore index"))
    refused = int(scalar(connection, f"{queued} AND refused IS NOT NULL"))
    if refused:
        message = f"{refused} rows have no usable vector and are found by text only"
        findings.append(Finding("vectors", "info", message, REINDEX))
    return findings


def _check_unqueued(connection: apsw.Connection) -> list[Finding]:
    """Rows of a store without vectors that wait for none either: its first index run embeds them all the same."""
    if scalar(connection, "SELECT count(*) FROM embedding_generations"):
        return []
    lost = sum(
        int(
            scalar(
                connection,
                f"SELECT count(*) FROM {table} f WHERE NOT EXISTS (SELECT 1 FROM pending_vectors p"
                " WHERE p.generation = 0 AND p.layer = ? AND p.slot = f.rowid)",
                (layer,),
            )
        )
        for table, layer in all_rows(
            connection, "SELECT table_name, layer FROM text_indexes WHERE state = 'active'"
        )
    )
    message = f"{lost} rows have no vector and are not on the waiting list"
    return [Finding("vectors", "warning", message, REINDEX)] if lost else []


def _check_strays(connection: apsw.Connection) -> list[Finding]:
    """Entries of the waiting list that stand for no row, or for no generation that can be filled."""
    strays = int(
        scalar(
            connection,
            "SELECT count(*) FROM pending_vectors WHERE generation <> 0"
            " AND generation NOT IN (SELECT generation FROM embedding_generations WHERE state <> 'retired')",
        )
    )
    for layer in LAYERS:
        strays += scalar(
            connection,
            f"SELECT count(*) FROM pending_vectors p LEFT JOIN {text_index.ROW_TABLE[layer]} m ON m.slot = p.slot"
            " WHERE p.layer = ? AND (m.slot IS NULL OR m.state = 'deleted')",
            (layer,),
        )
    message = f"{strays} entries of the waiting list for vectors stand for no row"
    return [Finding("vectors", "warning", message, REINDEX)] if strays else []


def _check_kept(connection: apsw.Connection, *, full: bool) -> list[Finding]:
    """Generations that answer no search: are they readable, and is every deleted row gone from them. In full: each of
    their vectors too, since one of them may be gone back to."""
    findings = []
    for generation, state, dim in all_rows(
        connection, "SELECT generation, state, dim FROM embedding_generations WHERE state <> 'active'"
    ):
        repair = REINDEX if state == "building" else f"memstore generations drop {generation}"
        for layer in LAYERS:
            name = vector_index.table_name(generation, layer)
            rows = text_index.ROW_TABLE[layer]
            fault = structure_fault(connection, [name]) if full else None
            if fault:
                findings.append(Finding("vectors", "warning", fault, REINDEX))
                continue
            try:
                damaged = len(vector_index.damaged(connection, generation, layer, dim)) if full else 0
                orphans = scalar(
                    connection,
                    f"SELECT count(*) FROM {name} v LEFT JOIN {rows} m ON m.slot = v.slot"
                    " WHERE m.slot IS NULL OR m.state = 'deleted'",
                )
            except apsw.Error as error:
                findings.append(Finding("vectors", "warning", f"{name}: unreadable: {error}", repair))
                continue
            if orphans or damaged:
                message = f"{name}: {damaged} damaged, {orphans} without a row"
                findings.append(Finding("vectors", "warning", message, repair))
    return findings


def _vector_drift(connection: apsw.Connection, name: str, generation: int, layer: str) -> tuple[int, int]:
    lost = orphans = 0
    for (table,) in all_rows(
        connection, "SELECT table_name FROM text_indexes WHERE layer = ? AND state = 'active'", (layer,)
    ):
        lost += scalar(
            connection,
            f"SELECT count(*) FROM {table} f WHERE NOT EXISTS (SELECT 1 FROM {name} v WHERE v.slot = f.rowid)"
            " AND NOT EXISTS (SELECT 1 FROM pending_vectors p"
            "   WHERE p.generation = ? AND p.layer = ? AND p.slot = f.rowid)",
            (generation, layer),
        )
    rows = text_index.ROW_TABLE[layer]  # type: ignore[index]
    orphans = scalar(
        connection,
        f"SELECT count(*) FROM {name} v LEFT JOIN {rows} m ON m.slot = v.slot"
        " WHERE m.slot IS NULL OR m.state = 'deleted'",
    )
    return lost, orphans
