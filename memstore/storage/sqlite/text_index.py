"""The text leg: one FTS5 table a team and layer, so that BM25's statistics are the team's own.

The tables keep their own copy of the tokens: a delete then needs no old tokens, and any SQLite of the last years
can open and MATCH them (FTS5's ``secure-delete`` and contentless options would shut it out).
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import apsw

from memstore.storage.base import Candidate, Ref
from memstore.storage.sqlite.filters import Sql
from memstore.storage.sqlite.keys import SlotRange
from memstore.text import IndexTokens, QueryTokens, searchable_text
from memstore.types import Layer

ROW_TABLE: dict[Layer, str] = {"messages": "messages", "memories": "memory_versions"}
TEXT_COLUMNS: dict[Layer, str] = {"messages": "m.search_text, m.content", "memories": "m.content, NULL"}
"""What :func:`row_text` reads. SQL's own JSON operators would stop at a NUL in the text."""
WORDS_WEIGHT = 1.0
LITERAL_WEIGHT = 0.5
SCORE_DIGITS = 9
"""Scores closer than this are equal: sums in another order differ in the 16th digit and would flip ties."""
PHRASE_ROWS_SEEN = 5_000
"""How many rows with the query's tokens in sequence are looked at for a literal match."""


_SHADOWS = (
    "CREATE TABLE IF NOT EXISTS {name}_data (id INTEGER PRIMARY KEY, block BLOB)",
    "CREATE TABLE IF NOT EXISTS {name}_idx (segid, term, pgno, PRIMARY KEY (segid, term)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS {name}_content (id INTEGER PRIMARY KEY, c0, c1)",
    "CREATE TABLE IF NOT EXISTS {name}_docsize (id INTEGER PRIMARY KEY, sz BLOB)",
    "CREATE TABLE IF NOT EXISTS {name}_config (k PRIMARY KEY, v) WITHOUT ROWID",
    "INSERT OR IGNORE INTO {name}_config (k, v) VALUES ('version', 4)",
)
"""The tables behind an FTS5 table of format 4, as FTS5 makes them; with all there, it can be dropped."""


def table_name(layer: Layer, team_no: int) -> str:
    return f"text_{layer}_{team_no}"


def row_text(text: str | None, content: str | None) -> str:
    """The text of a row from :data:`TEXT_COLUMNS`."""
    if text is None and content is not None:
        return searchable_text(json.loads(content))
    return text or ""


def create(connection: apsw.Connection, layer: Layer, team_no: int) -> None:
    """Make the table, empty, and note it in ``text_indexes``."""
    name = table_name(layer, team_no)
    connection.execute(
        f"CREATE VIRTUAL TABLE {name} USING fts5(words, literal, tokenize = 'unicode61 remove_diacritics 0')"
    ).fetchall()
    connection.execute(
        "INSERT OR IGNORE INTO text_indexes (table_name, team_no, layer) VALUES (?, ?, ?)",
        (name, team_no, layer),
    ).fetchall()


def drop(connection: apsw.Connection, name: str) -> None:
    """Drop the table, also one that FTS5 cannot open any more because a table behind it is gone."""
    try:
        connection.execute(f"DROP TABLE IF EXISTS {name}").fetchall()
    except apsw.Error:
        for statement in _SHADOWS:
            connection.execute(statement.format(name=name)).fetchall()
        connection.execute(f"DROP TABLE IF EXISTS {name}").fetchall()
    connection.execute("DELETE FROM text_indexes WHERE table_name = ?", (name,)).fetchall()


def insert(connection: apsw.Connection, name: str, rows: Sequence[tuple[int, IndexTokens]]) -> None:
    """Rows by ascending slot: FTS5 flushes what it gathered at each step back."""
    connection.executemany(
        f"INSERT INTO {name} (rowid, words, literal) VALUES (?, ?, ?)",
        [(slot, tokens.words, tokens.literal) for slot, tokens in sorted(rows)],
    ).fetchall()


def match_expression(tokens: QueryTokens) -> str:
    """An FTS5 query of which no part is the user's syntax: every token is letters and digits, and quoted."""
    words = [_quoted(term) for term in tokens.words]
    literal = [_quoted(term) + (" *" if term in tokens.prefixes else "") for term in tokens.literal]
    columns = [("words", words), ("literal", literal)]
    return " OR ".join(f"{column} : ({' OR '.join(terms)})" for column, terms in columns if terms)


def phrase_expression(tokens: QueryTokens) -> str:
    return f"literal : {_quoted(' '.join(tokens.phrase))}{' *' if tokens.phrase_prefix else ''}"


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def search(
    connection: apsw.Connection,
    layer: Layer,
    name: str,
    tokens: QueryTokens,
    slots: SlotRange,
    where: Sql,
    k: int,
) -> list[Candidate]:
    """The k best rows of one slot range.

    FTS5 hands its rows over best first and the filter is asked row by row until k have passed and no further one
    can tie with the last: so the filter stands before top-k, and rows are visited only as needed.
    """
    sql, bindings = where
    cursor = connection.execute(
        f"SELECT {name}.rowid, {name}.rank, m.recorded_at, m.arrival, m.id"
        f" FROM {name} CROSS JOIN {ROW_TABLE[layer]} m ON m.slot = {name}.rowid"
        f" WHERE {name} MATCH ? AND {name}.rank MATCH ? AND {name}.rowid BETWEEN ? AND ? AND {sql}"
        f" ORDER BY {name}.rank",
        (
            match_expression(tokens),
            f"bm25({WORDS_WEIGHT}, {LITERAL_WEIGHT})",
            slots.first,
            slots.last,
            *bindings,
        ),
    )
    found: list[Candidate] = []
    try:
        for slot, rank, recorded_at, arrival, row_id in cursor:
            candidate = Candidate(Ref(slot), round(-rank, SCORE_DIGITS), recorded_at, arrival, row_id)
            if len(found) >= k and candidate.score < found[k - 1].score:
                break
            found.append(candidate)
    finally:
        cursor.close()
    found.sort(key=lambda c: (-c.score, *c.tie))
    return found[:k]


def phrase_rows(
    connection: apsw.Connection, layer: Layer, name: str, tokens: QueryTokens, slots: SlotRange, where: Sql
) -> Iterator[tuple[Ref, str]]:
    """Rows whose ``literal`` column holds the query's phrase, with their text, newest first."""
    sql, bindings = where
    cursor = connection.execute(
        f"SELECT {name}.rowid, {TEXT_COLUMNS[layer]}"
        f" FROM {name} CROSS JOIN {ROW_TABLE[layer]} m ON m.slot = {name}.rowid"
        f" WHERE {name} MATCH ? AND {name}.rowid BETWEEN ? AND ? AND {sql}"
        f" ORDER BY {name}.rowid DESC LIMIT {PHRASE_ROWS_SEEN}",
        (phrase_expression(tokens), slots.first, slots.last, *bindings),
    )
    try:
        for slot, *columns in cursor:
            yield Ref(slot), row_text(*columns)
    finally:
        cursor.close()


def matched_words(connection: apsw.Connection, name: str, slot: int, tokens: QueryTokens) -> tuple[str, ...]:
    """The query's words (and, where no word matches, its literal tokens) that the row holds."""
    rows: list[Any] = connection.execute(
        f"SELECT words, literal FROM {name} WHERE rowid = ?", (slot,)
    ).fetchall()
    if not rows:
        return ()
    words, literal = (set(column.split()) for column in rows[0])
    matched = tuple(term for term in tokens.words if term in words)
    return matched or tuple(
        term
        for term in tokens.literal
        if term in literal or (term in tokens.prefixes and any(held.startswith(term) for held in literal))
    )


def integrity_fault(connection: apsw.Connection, name: str) -> str | None:
    """What FTS5's own check says against the table, comparing it with its content; None when it is sound."""
    try:
        connection.execute(f"INSERT INTO {name} ({name}, rank) VALUES ('integrity-check', 1)").fetchall()
    except apsw.SQLError as error:
        return str(error)
    except apsw.CorruptError as error:
        return str(error)
    return None
