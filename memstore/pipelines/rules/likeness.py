"""How two statements relate: the same, one within the other, or the opposite. No judgement of what follows."""

from collections.abc import Sequence

from memstore.pipelines.rules.statement import AND, COMMA, ENDED, NOT, WHEN, Statement

_ENDS_BEFORE = frozenset(
    "becaus sinc with in on at for by dure everi when while 因为 由于 因 从而 这样 比如 例如".split()  # noqa: SIM905
)
"""Words before which a statement can end and still be whole."""
_CHANGES_MEANING = frozenset(
    """
    if unless whether only except said say think thought mayb perhap possibl might could would use-ed was were or but instead
    former previous previousli befor until want plan hope wish almost near tri
    如果 要是 假如 除非 只 只有 仅 曾 曾经 以前 之前 原来 原先 本来 可能 也许 或许 大概 据说 以为 听说 说 觉得 认为 想 打算 计划
    希望 差点 或 或者 还是 但 但是 取消 改 改成 改为 改到 改用 换 换成 chang-ed move-ed cancel-ed cancelled-ed
    """.split()  # noqa: SIM905
)
"""What is left out may not hold one of these, or the rest would say something else."""


def same(one: Statement, other: Statement) -> bool:
    """Whether two texts say the same in the same words; times may stand elsewhere."""
    if not one.tokens or not other.tokens:
        return bool(one.text) and one.text == other.text
    return one.negations == other.negations and _ordered(one.words) == _ordered(other.words)


def opposite(one: Statement, other: Statement) -> bool:
    """Whether one says of the same words that it is so, and the other that it is not."""
    if not one.tokens or not other.tokens or (one.negations + other.negations) % 2 == 0:
        return False
    return _ordered(_positive(one)) == _ordered(_positive(other)) != ((), ())


def covers(wide: Statement, narrow: Statement) -> bool:
    """Whether the wide statement holds the narrow one whole: as a clause, as its beginning, or as a member of a list.

    Quadratic in the tokens, which are few.
    """
    words = narrow.words
    least = 2
    if len(words) < least or len(words) > len(wide.words) or wide.negations != narrow.negations:
        return False
    starts = [0, *(i + 1 for i, token in enumerate(wide.tokens) if token in (COMMA, AND))]
    for start in starts:
        end = _matched(wide.tokens, start, words)
        if end is not None and _may_stop(wide.tokens, end) and _harmless(wide.tokens, (start, end)):
            return True
    return any(_in_list(wide.tokens, start, words) for start in starts)


def _in_list(tokens: Sequence[str], start: int, words: Sequence[str]) -> bool:
    """Whether the words are the head of a list and one of its later members: "likes (tea and) coffee"."""
    for cut in range(1, len(words)):
        if tokens[start : start + cut] != tuple(words[:cut]):
            return False
        for place in range(start + cut, len(tokens)):
            if tokens[place] == COMMA:
                break
            if tokens[place] != AND:
                continue
            end = _matched(tokens, place + 1, words[cut:])
            kept = ((start, start + cut), (place + 1, end or 0))
            if end is not None and _may_stop(tokens, end) and _harmless(tokens, *kept):
                return True
    return False


def _matched(tokens: Sequence[str], start: int, words: Sequence[str]) -> int | None:
    """Where the words end that begin at ``start``, separators passed over; None where they are not there."""
    place = start
    for word in words:
        while place > start and place < len(tokens) and tokens[place] in (COMMA, AND):
            place += 1
        if place >= len(tokens) or tokens[place] != word:
            return None
        place += 1
    return place


def _may_stop(tokens: Sequence[str], end: int) -> bool:
    return end == len(tokens) or tokens[end] in (COMMA, AND) or tokens[end] in _ENDS_BEFORE


def _harmless(tokens: Sequence[str], *kept: tuple[int, int]) -> bool:
    left_out = (t for i, t in enumerate(tokens) if not any(start <= i < end for start, end in kept))
    return not any(token in _CHANGES_MEANING or token in (NOT, ENDED) for token in left_out)


def _positive(of: Statement) -> tuple[str, ...]:
    return tuple(word for word in of.words if word not in (NOT, ENDED))


def _ordered(words: Sequence[str]) -> tuple[str, tuple[str, ...]] | tuple[tuple[()], tuple[()]]:
    """The words joined, since segmentation may cut them elsewhere, and apart from them the times."""
    times = tuple(word for word in words if word.startswith(WHEN))
    rest = [word for word in words if not word.startswith(WHEN)]
    if not times and not rest:
        return (), ()
    joined = "".join(f" {word} " if word.isascii() else word for word in rest)
    return joined, times
