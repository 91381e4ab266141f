"""What a judge proposed, checked against what was really said. Nothing of it is believed: neither which messages it
names, nor that what it calls a rule is the user's."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memstore.pipelines.closeness import HAN, contained, contained_closely, is_chinese
from memstore.pipelines.values import (
    DEFAULT_PRIORITY,
    MAX_MEMORY_CHARS,
    Extraction,
    Proposal,
    Said,
    Window,
)
from memstore.types import KINDS, MAX_PRIORITY, Kind

ANSWER_MARGIN = 0.25
"""An assistant repeats what it was told in its own words: its messages count as the origin only when they are nearer by
so much."""
_OWN_WEIGHT = 3
"""How much the user's words count against an answer to them where they make a rule or speak of the user: an answer
takes it from them only where next to nothing of it is theirs."""
_OF_THE_KIND: Mapping[Kind, re.Pattern[str]] = {
    "instruction": re.compile(
        r"\b(?:always|never|every time|whenever|from now on|from today|in future|don't|do not|stop|no longer|call me"
        r"|please (?:keep|use|reply|answer|write|call))\b"
        r"|以后|今后|从现在|从今|每次|每回|一律|始终|一直|永远|不要|别再|别用|不许|不准|请用|请叫|叫我|都用|都要",
        re.IGNORECASE,
    ),
    "persona": re.compile(r"\b(?:I|I'm|I've|my|mine|we|our)\b|(?<![帮给替为让请诉])[我咱]", re.IGNORECASE),
}
"""Words with which people make a rule, or speak of themselves."""
_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class Checked:
    """A proposal that may become a memory.

    :param sources: messages that it rests on, new ones among them; of earlier ones only who told it rather than those.
    :param own: whether it is said in the words of the user whose store this is, so that it may be a rule or a trait, and
        may replace what the user said before.
    """

    proposal: Proposal
    sources: tuple[Said, ...]
    own: bool

    @property
    def least_trusted(self) -> Said:
        return min(self.sources, key=lambda source: source.trust)

    @property
    def told_at(self) -> Said:
        """The last of its messages, in the order of the session."""
        return self.sources[-1]


def check_proposals(extraction: Extraction, window: Window) -> tuple[tuple[Checked, ...], tuple[str, ...]]:
    """What may become memories, in the order of the reply, and why the rest may not, beside what was not read."""
    kept: list[Checked] = []
    refused = [*window.unread, *extraction.refused]
    for number, proposal in enumerate(extraction.proposals, 1):
        checked = _checked(proposal, window)
        if isinstance(checked, str):
            shown = " ".join(str(proposal.content).split())[:_SHOWN_CHARS]
            refused.append(f"memory {number} ({encodable(shown)!r}) {checked}")
        else:
            kept.append(checked)
    return tuple(kept), tuple(refused)


def _checked(proposal: Proposal, window: Window) -> Checked | str:
    """The proposal as it may be stored, or why it may not."""
    content = encodable(proposal.content).strip()[:MAX_MEMORY_CHARS].strip()
    if not content:
        return "has a blank content"
    if proposal.kind not in KINDS:
        return f"is of no kind that there is: {proposal.kind!r:.40}"
    sources = _sources(proposal, window)
    if isinstance(sources, str):
        return sources
    proposal = replace(proposal, content=content, priority=clamped(proposal.priority))
    if proposal.kind == "episodic":
        return _event(proposal, sources, window)
    return _own_statement(proposal, sources, window)


def _sources(proposal: Proposal, window: Window) -> tuple[Said, ...] | str:
    """The new messages that it names; where it names none that exists, those that hold it best, whoever said them. A
    trait or a rule is looked for among the user's own."""
    named = frozenset(proposal.source_ids)
    found = tuple(message for message in window.new if message.id in named)
    if found:
        return found
    if any(message.id in named for message in window.background):
        return "rests on earlier messages alone, which were looked at before"
    if proposal.kind == "episodic":
        return _holding_best(proposal.content, window.new)
    return tuple(message for message in window.new if message.by_principal) or window.new


def _holding_best(content: str, messages: tuple[Said, ...]) -> tuple[Said, ...]:
    """All of them, if none holds anything of it."""
    nearness = [contained_closely(content, one.text) - _margin(one) for one in messages]
    best = max(nearness)
    if best <= 0:
        return messages
    return tuple(one for one, near in zip(messages, nearness, strict=True) if near == best)


def _own_statement(proposal: Proposal, sources: Sequence[Said], window: Window) -> Checked | str:
    """A trait or a rule: it has to be in the user's own words."""
    own = tuple(message for message in sources if message.by_principal)
    if not own:
        return f"is {proposal.kind}, and none of its messages is the user's own"
    nearer = nearer_to_others(proposal.kind, proposal.content, own, window)
    if nearer is not None:
        return f"is {proposal.kind}, but nearer to what {nearer} said than to the user's own words"
    return Checked(_of_sources(proposal, own), own, own=True)


def _event(proposal: Proposal, sources: tuple[Said, ...], window: Window) -> Checked:
    """An event may be anybody's; it counts for no more than the one who told it."""
    principal = [message for message in sources if message.by_principal]
    own = bool(principal) and nearer_to_others(proposal.kind, proposal.content, principal, window) is None
    tellers = _untold_tellers(proposal.content, sources, window)
    if tellers:
        named = {message.id for message in (*sources, *tellers)}
        sources = tuple(message for message in (*window.background, *window.new) if message.id in named)
        own = False
    if not own:
        proposal = replace(proposal, content=_with_speakers(proposal.content, sources))
    return Checked(_of_sources(proposal, sources), sources, own)


def _untold_tellers(content: str, sources: Sequence[Said], window: Window) -> list[Said]:
    """Who told it rather than those that are named: tools, other people, the assistant. A judge that took their word for
    the user's would name the user."""
    told = contained(content, (message.text for message in sources))
    in_chinese = is_chinese("\n".join(message.text for message in sources))
    named = {message.id for message in sources}
    return [
        message
        for message in (*window.background, *window.new)
        if message.id not in named
        and not message.by_principal
        and not (_is_answer(message) and is_chinese(content) != in_chinese)  # an echo in another language
        and contained_closely(content, message.text) > told + _margin(message)
    ]


def _with_speakers(content: str, sources: Sequence[Said]) -> str:
    """Somebody else's words name who said them."""
    others = (one for one in sources if one.role == "user" and not one.by_principal)
    speakers = dict.fromkeys(one.name for one in others if one.name)
    missing = [name for name in speakers if not _names(content, name)]
    if not missing:
        return content
    return f"{', '.join(missing)}: {content}"[:MAX_MEMORY_CHARS]


def _names(content: str, name: str) -> bool:
    """Whether a text names a speaker. Chinese does not part words: there a name begins the text, or somebody says
    something; of one character it may begin any word."""
    name, content = re.escape(name.casefold()), content.casefold()
    if re.search(rf"[{HAN}]", name) is None:
        return re.search(rf"(?<![^\W{HAN}]){name}(?![^\W{HAN}])", content) is not None
    begins = len(name) > 1 and re.match(name, content) is not None
    return begins or re.search(rf"{name}\s*[:\uff1a说称讲]", content) is not None


def _of_sources(proposal: Proposal, sources: Sequence[Said]) -> Proposal:
    return replace(proposal, source_ids=tuple(message.id for message in sources))


def nearer_to_others(kind: Kind, content: str, own: Sequence[Said], window: Window) -> str | None:
    """Who else said it rather than the user; None where it is as near to the user's words as to any other's.

    An assistant repeats what it was told, in another language maybe. Where the user's words make a rule, or speak of the
    user, it counts only if it speaks the user's language and next to nothing is in the user's words.
    """
    told = [message.text for message in own]
    mine = contained(content, told)
    of_the_kind = _OF_THE_KIND.get(kind)
    so_said = of_the_kind is not None and any(of_the_kind.search(text) for text in told)
    translated = so_said and is_chinese(content) != is_chinese("\n".join(told))
    for message in (*window.background, *window.new):
        if message.by_principal:
            continue
        answers = _is_answer(message)
        if answers and translated:
            continue
        theirs = contained_closely(content, message.text)
        weight = _OWN_WEIGHT if answers and so_said else 1
        if theirs > weight * mine + _margin(message) or (not mine and not answers):
            return _called(message)
    return None


def _is_answer(message: Said) -> bool:
    return message.role == "assistant" and not is_tool(message)


def _margin(message: Said) -> float:
    """By how much nearer than the user's own words a message must be to count as the origin."""
    return ANSWER_MARGIN if _is_answer(message) else 0.0


def is_tool(message: Said) -> bool:
    """What a program or a page said, whoever passed it on."""
    return message.role == "tool" or message.source_kind in ("tool", "document")


def _called(message: Said) -> str:
    if is_tool(message):
        return "a tool"
    return f"{message.name or 'somebody else'}" if message.role == "user" else f"the {message.role}"


def allowed_kind(kind: Kind, item: Checked) -> bool:
    """Whether a proposal may be stored as another kind than it was proposed as."""
    return kind in KINDS and (kind in ("episodic", item.proposal.kind) or item.own)


def clamped(priority: object) -> int:
    """From 0 to 100; -1, which is always injected, only a person sets."""
    if isinstance(priority, bool) or not isinstance(priority, int):
        return DEFAULT_PRIORITY
    return min(max(priority, 0), MAX_PRIORITY)


def encodable(text: object) -> str:
    """Text that can be kept; lone surrogates are replaced, what is no text is nothing."""
    if not isinstance(text, str):
        return ""
    return text.encode("utf-8", "replace").decode("utf-8")
