"""Slots: the integer keys that make every user and every team one rowid range."""

from typing import NamedTuple

from memstore.errors import StoreLimit

NUMBER_BITS = 32
USER_BITS = 18
MAX_TEAM_NO = 2 ** (63 - USER_BITS - NUMBER_BITS) - 1
MAX_USER_NO = 2**USER_BITS - 1
MAX_NUMBER = 2**NUMBER_BITS - 1
SHARED_USER_NO = 0
"""The user number of a team's rows that others beside their owner may see."""


class SlotRange(NamedTuple):
    """First and last slot, both included."""

    first: int
    last: int


def owner_no(team_no: int, user_no: int) -> int:
    """:raises StoreLimit: when a number is out of room."""
    if not 1 <= team_no <= MAX_TEAM_NO:
        raise StoreLimit(f"one file holds {MAX_TEAM_NO} teams; use a second file for more")
    if not 0 <= user_no <= MAX_USER_NO:
        raise StoreLimit(f"a team holds {MAX_USER_NO} users; use a second file for more")
    return team_no << USER_BITS | user_no


def slot(owner: int, number: int) -> int:
    """:raises StoreLimit: when the owner's numbers are used up."""
    if not 1 <= number <= MAX_NUMBER:
        raise StoreLimit(f"one owner holds {MAX_NUMBER} rows; export and start a new file")
    return owner << NUMBER_BITS | number


def owner_range(owner: int) -> SlotRange:
    """All slots of one owner."""
    return SlotRange(owner << NUMBER_BITS, (owner + 1 << NUMBER_BITS) - 1)


def team_range(team_no: int) -> SlotRange:
    """All slots of one team."""
    return SlotRange(team_no << USER_BITS + NUMBER_BITS, (team_no + 1 << USER_BITS + NUMBER_BITS) - 1)
