"""The text leg: one FTS5 table a team and layer, so that BM25's statistics are the team's own.

The tables keep their own copy of the tokens: a delete then needs no old tokens, and any SQLite of the last years
can open and MATCH them (FTS5's ``secure-delete`` and contentless options would shut it out).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from memstore.storage.base import Candidate, Ref
from memstore.storage.sqlite.connection import scalar
from memstore.storage.sqlite.filters import Sql
from memstore.storage.sqlite.keys import SlotRange
from memstore.text import IndexTokens, QueryTokens, Spoken, searchable_text
from memstore.types import Layer

ROW_TABLE: dict[Layer, str] = {"messages": "messages", "memories": "memory_versions"}
TEXT_COLUMNS: dict[Layer, str] = {
    "messages": "m.search_text, m.content, m.name, m.created_at",
    "memories": "m.content, NULL, NULL, NULL",
}
"""What :func:`spoken` reads. SQL's own JSON operators would stop at a NUL in the text."""
WORDS_WEIGHT = 1.0
LITERAL_WEIGHT = 0.03
SCORE_DIGITS = 9
"""Scores closer than this are equal: sums in another order differ in the 16th digit and would flip ties."""
PHRASE_ROWS_SEEN = 20_000
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


_SHADOW_NAMES = ("data", "idx", "content", "docsize", "config")


@dataclass(frozen=True, slots=True)
class TextTable:
    """An entry of ``text_indexes``."""

    name: str
    tokenizer: str
    filled_to: int


def shadows(name: str) -> list[str]:
    """The tables behind an FTS5 table."""
    return [f"{name}_{shadow}" for shadow in _SHADOW_NAMES]


def table_name(layer: Layer, team_no: int, state: str = "active") -> str:
    return f"text_{layer}_{team_no}{'_new' if state == 'building' else ''}"


def tables(connection: apsw.Connection, layer: Layer, team_id: str) -> dict[str, TextTable]:
    """A team's tables of a layer by state: ``active``, ``building``."""
    rows: list[Any] = connection.execute(
        "SELECT i.state, i.table_name, i.tokenizer, i.filled_to FROM text_indexes i JOIN teams t USING (team_no)"
        " WHERE t.team_id = ? AND i.layer = ?",
        (team_id, layer),
    ).fetchall()
    return {state: TextTable(*columns) for state, *columns in rows}


def spoken(text: str | None, content: str | None, name: str | None, said_at: int | None) -> Spoken:
    """What a row gives to the indexes, from :data:`TEXT_COLUMNS`."""
    if text is None and content is not None:
        text = searchable_text(json.loads(content))
    return Spoken(text or "", name, said_at)


def create(
    connection: apsw.Connection, layer: Layer, team_no: int, tokenizer: str, state: str = "active"
) -> None:
    """Make the table, empty, and note it in ``text_indexes`` with the tokenizer whose tokens it will hold."""
    name = table_name(layer, team_no, state)
    create_table(connection, name)
    connection.execute(
        "INSERT INTO text_indexes (table_name, team_no, layer, state, tokenizer) VALUES (?, ?, ?, ?, ?)",
        (name, team_no, layer, state, tokenizer),
    ).fetchall()


def create_table(connection: apsw.Connection, name: str) -> None:
    """The FTS5 table alone, empty."""
    connection.execute(
        f"CREATE VIRTUAL TABLE {name} USING fts5(words, literal, tokenize = 'unicode61 remove_diacritics 0')"
    ).fetchall()


def drop(connection: apsw.Connection, name: str) -> None:
    """Drop the table, also one that FTS5 cannot open any more because a table behind it is gone."""
    try:
        connection.execute(f"DROP TABLE IF EXISTS {name}").fetchall()
    except apsw.Error:
        for statement in _SHADOWS:
            connection.execute(statement.format(name=name)).fetchall()
        connection.execute(f"DROP TABLE IF EXISTS {name}").fetchall()
    for shadow in shadows(name):  # left behind where only the table in front of them was dropped
        connection.execute(f"DROP TABLE IF EXISTS {shadow}").fetchall()
    connection.execute("DELETE FROM text_indexes WHERE table_name = ?", (name,)).fetchall()


def switch(connection: apsw.Connection, layer: Layer, team_no: int) -> None:
    """Put the table that was built in the place of the active one, which may be damaged, unlisted or missing."""
    name, built = table_name(layer, team_no), table_name(layer, team_no, "building")
    drop(connection, name)
    connection.execute(  # one under another name than its own
        "DELETE FROM text_indexes WHERE team_no = ? AND layer = ? AND state = 'active'", (team_no, layer)
    ).fetchall()
    connection.execute(f"ALTER TABLE {built} RENAME TO {name}").fetchall()
    connection.execute(
        "UPDATE text_indexes SET table_name = ?, state = 'active' WHERE table_name = ?", (name, built)
    ).fetchall()


def delete(connection: apsw.Connection, name: str, slots: Sequence[int]) -> None:
    connection.execute(
        f"DELETE FROM {name} WHERE rowid IN (SELECT value FROM json_each(?))",
        (f"[{','.join(map(str, slots))}]",),
    ).fetchall()


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
    """Rows that hold any of the query's phrases."""
    phrases = (
        _quoted(" ".join(phrase.tokens)) + (" *" if phrase.prefix else "") for phrase in tokens.phrases
    )
    return f"literal : ({' OR '.join(phrases)})"


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
            yield Ref(slot), spoken(*columns).text
    finally:
        cursor.close()


def held_tokens(
    connection: apsw.Connection, name: str, slots: Sequence[int], tokens: QueryTokens
) -> dict[int, tuple[str, ...]]:
    """For each row the query's words that it holds and, where it holds none, its literal tokens."""
    rows: list[Any] = connection.execute(
        f"SELECT f.rowid, f.words, f.literal FROM json_each(?) j CROSS JOIN {name} f ON f.rowid = j.value",
        (f"[{','.join(map(str, slots))}]",),
    ).fetchall()
    return {slot: _held(set(words.split()), set(literal.split()), tokens) for slot, words, literal in rows}


def _held(words: set[str], literal: set[str], tokens: QueryTokens) -> tuple[str, ...]:
    matched = tuple(term for term in tokens.words if term in words)
    matched = matched or tuple(
        term
        for term in tokens.literal
        if term in literal or (term in tokens.prefixes and any(held.startswith(term) for held in literal))
    )
    return matched or next((p.tokens for p in tokens.phrases if literal.issuperset(p.tokens)), ())


def integrity_fault(connection: apsw.Connection, name: str) -> str | None:
    """What FTS5's own check says against the table, comparing it with its content; None when it is sound."""
    try:
        connection.execute(f"INSERT INTO {name} ({name}, rank) VALUES ('integrity-check', 1)").fetchall()
    except apsw.SQLError as error:
        return str(error)
    except apsw.CorruptError as error:
        return str(error)
    return None


def unfound_terms(connection: apsw.Connection, name: str, compared: int | None) -> int:
    """How many terms of the index a search does not find in as many rows as the index has them in.

    FTS5's own check reads the index from end to end; the table that leads a search to a term's page may be wrong all
    the same. ``compared``: so many terms are looked at, spread evenly; None: all.
    """
    vocabulary = f"{name}_terms"
    connection.execute(
        f"CREATE VIRTUAL TABLE temp.{vocabulary} USING fts5vocab('main', '{name}', 'col')"
    ).fetchall()
    try:
        total = int(scalar(connection, f"SELECT count(*) FROM temp.{vocabulary}"))
        every = 1 if compared is None else max(1, -(-total // compared))
        rows: list[Any] = connection.execute(
            f"SELECT term, col, doc FROM (SELECT *, row_number() OVER () AS number FROM temp.{vocabulary})"
            " WHERE number % ? = 0",
            (every,),
        ).fetchall()
        counting = f"SELECT count(*) FROM {name} WHERE {name} MATCH ?"
        return sum(
            scalar(connection, counting, (f"{column} : {_quoted(term)}",)) != documents
            for term, column, documents in rows
        )
    finally:
        connection.execute(f"DROP TABLE temp.{vocabulary}").fetchall()
