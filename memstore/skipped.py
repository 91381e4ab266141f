"""Lines that could not be used: counted all, and the first of them kept."""

from collections.abc import Callable

from memstore.types import SkippedLine

LISTED = 1_000
"""So many are kept for the report: with a damaged file of millions of lines the report stays one that can be read."""


class SkippedLines:
    """The account of one run.

    :param told: is handed every one as it comes, for those who want them all.
    """

    def __init__(self, told: Callable[[SkippedLine], None] | None = None) -> None:
        self._told = told
        self._listed: list[SkippedLine] = []
        self.count = 0

    def add(self, line: SkippedLine) -> None:
        self.count += 1
        if len(self._listed) < LISTED:
            self._listed.append(line)
        if self._told is not None:
            self._told(line)

    @property
    def listed(self) -> tuple[SkippedLine, ...]:
        """The first :data:`LISTED`."""
        return tuple(self._listed)
