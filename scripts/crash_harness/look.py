"""One look at what a crash left: the journal, the database and the fallback, side by side."""

from pathlib import Path

from evidence import (
    TAG,
    Acknowledgements,
    Call,
    Lines,
    Row,
    Tables,
    by_tag,
    read_database,
    read_lines,
    text_of,
)


class Look:
    """One look at a round's folder. What was acknowledged in the first ``acked`` lines of the journal must be there;
    whatever was begun by the end of the look may be."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.folder, self.mode = folder, mode
        journal = Acknowledgements(folder / "acknowledged.jsonl")
        self.acked = journal.lines
        self.tables: Tables = read_database(folder / "store.db", live=mode == "live")
        self.lines: Lines = read_lines(folder / "store.db.fallback")
        journal.read_on()
        self.calls = list(journal.calls.values())
        self.messages = by_tag(self.tables.messages, text_of)
        self.versions = by_tag(self.tables.versions, str)
        self.written = by_tag(list(self.lines.messages.values()), text_of)
        self.sessions: dict[tuple[str, str, str], list[Row]] = {}
        for row in sorted(self.tables.messages, key=lambda row: row["pos"]):
            self.sessions.setdefault((row["team_id"], row["user_id"], row["session"]), []).append(row)
        self.acked_at: dict[str, int] = {}
        for call in self.calls:
            if call.done is not None and call.ended is not None:
                self.acked_at[call.tag] = min(call.ended, self.acked_at.get(call.tag, call.ended))

    def is_acked(self, call: Call) -> bool:
        return call.done is not None and call.ended is not None and call.ended < self.acked

    def of(self, key: str) -> list[Call]:
        return [call for call in self.calls if key in call.begin]

    def said_before(self, row: Row, number: int) -> bool:
        """Whether what a row says had been acknowledged before that line of the journal."""
        tag = TAG.search(row["content"])
        return tag is not None and self.acked_at.get(tag[1], number) < number
