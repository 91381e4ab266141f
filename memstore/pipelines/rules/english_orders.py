"""What an English clause orders from the assistant for good."""

import re

from memstore.pipelines.rules.candidates import (
    INSTRUCTION,
    Candidate,
)
from memstore.pipelines.rules.english_forms import FORMS

_LASTING = re.compile(
    r"\b(?:from now on|from here on|going forward|from today(?: on)?|in (?:the )?future|henceforth|always|never|every time|each time|whenever|when(?:ever)? i (?:ask|say|send|write|paste|share|give)|any ?time|by default|permanently|at all times|in (?:all|every) (?:your )?(?:repl(?:y|ies)|answers?|responses?|messages?)|until i say|without (?:asking|telling|checking with|my)|before you \w+|unless i (?:say|ask|tell)|for all (?:future )?)\b|^(?:please )?stop \w+ing\b",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"^(?:(?:from now on|from here on|going forward|in (?:the )?future|henceforth|from today(?: on)?|by default|as a rule|(?:before (?:you \w+|making|running|deleting|changing|sending|committing)\b[^,]{0,60}|(?:whenever|when|every time|each time|any ?time) (?:i|we|you (?:write|answer|reply|generate|respond|show|give|explain|suggest|make|send|run|use|edit|change|review|commit))\b[^,]{2,60}))\s?,?\s)?(?:(?:i(?:['’]d| would) (?:like|want|prefer) (?:you|it if you)(?: to)?|i want you to|i need you to|"
    r"you (?:should|must|need to|have to|can)|please|kindly|make sure(?: to| you| that you)?|be sure to|remember to|(?:can|could|would|will) you(?: please)?|just)\s){0,3}(?:always |never |only |also |ever |at all times )*"
    r"(?:use|answer|reply|respond|write|call|address|speak|talk|keep|give|include|add|show|format|start|begin|end|avoid|don['’]t|do not|never|put|cite|explain|ask|tell|check|run|remind|send|be|stick|limit|prefer|provide|skip|omit|refer|convert|translate|wrap|return|list|mention|quote|prefix|sign|default|follow|assume|confirm|summari[sz]e|stop|present|suggest|double[- ]check|test|review|mark|comment|document|indent|spell|guess|invent|make up|commit|push|delete|deploy|touch|modify|rename|sugarcoat|speculate|lecture|ramble|hedge|interrupt|repeat|flatter|mix|praise|open|install|sign off|shorten)\b",
    re.IGNORECASE,
)
_STYLE = re.compile(
    r"^(?:please\s)?(?:keep (?:your |the |all )?(?:answers?|repl(?:y|ies)|responses?|messages?|explanations?|code|comments?|summaries)\b[^?]{2,60}|(?:please\s)?(?:don['’]t|do not|avoid|stop|no)(?: ever)? (?:us(?:e|ing)|sugarcoat(?:ing)?|lectur(?:e|ing)|rambl(?:e|ing)|guess(?:ing)?|invent(?:ing)?|flatter(?:ing)?|hedg(?:e|ing)|repeat(?:ing)?|add(?:ing)?|includ(?:e|ing)|apologi[sz](?:e|ing)|say(?:ing)?|writ(?:e|ing)|giv(?:e|ing) me|start(?:ing)?|call(?:ing)? me|put(?:ting)?)\b"
    r"(?!\s(?:this|that|the|it|a\s(?:loop|library|class|function)|too much)\b)[^?]{2,60}|(?:you can |please |just )?call me (?!(?:back|when|if|later|at|on|in|tomorrow|tonight|today|crazy|old|a|an|the|after|before|maybe)\b)[\w'’\- ]{1,24}|(?:refer to|address) me as [\w'’\- ]{1,30}|use (?:24-hour|12-hour|metric|imperial|British|American|ISO|euros|dollars|kilomet(?:re|er)s|miles|celsius|fahrenheit|they/them)\b[\w ,]{0,40}|no (?:more )?(?:\w+ )?(?:emojis?|markdown|bullet points|apologies|jargon|tables|headers|small talk|fluff|preamble|disclaimers|filler)(?: in [\w ]{2,30})?|i(?:['’]d)? prefer (?:your |if you |short |concise |brief |detailed )(?:[^?]{0,20})?(?:answers?|repl(?:y|ies)|responses?|explanations?|code|use|write|keep)[^?]{0,40}|"
    r"(?:please )?(?:answer|reply|respond|write|speak|talk)(?: to me| me| back)? (?:only )?in (?:English|Chinese|中文|英文|日文|Mandarin|Dutch|Greek|Polish|Turkish|Arabic|Hindi|Swedish|Norwegian|Danish|Finnish|Thai|Vietnamese|German|French|Spanish|Japanese|Korean|Italian|Portuguese|Russian|bullet points|plain English|British English|American English|metric))$",
    re.IGNORECASE,
)
_WANTED = re.compile(
    r"^i want [\w ]{2,30} (?:with|in|for) (?:every|all|each) [\w ]{2,30}\byou\b[\w ]{0,20}$", re.IGNORECASE
)
_BARE_FORM = re.compile(
    r"^(?:one|two|three|only|shorter|short|longer|less|fewer|bullet points|metric|plain)\b[\w ,'-]{0,50}\b(?:from now on|going forward)$",
    re.IGNORECASE,
)
_ONE_OFF = re.compile(r"\b(?:this time|this (?:one|once|text|code|file|sentence|paragraph|email|function|essay|question|task|article|message|document)|for now|just this|these|the following|below|above|today|tonight|right now|tomorrow|next \w+day|yesterday)\b", re.IGNORECASE)  # fmt: skip
_NOT_ORDER = re.compile(r"^(?:i\s(?!(?:like|want|need|expect|prefer)\s(?:all\s|your\s|every\s|my\s)?(?:answers|replies|responses|code|explanations|dates|summaries|examples|prices|sources)\b|want you|want [\w ]{2,30} (?:with|in|for) (?:every|all|each) [\w ]{2,30}\byou|would like|need you|['’]?d|prefer)|i['’](?:m|ve|ll)|we\s|he\s|she\s|they\s|it\s|the\s(?!code|tone)|my\s|our\s|this\s|that\s|never mind|never (?:again|without)\b|you (?:always|never)|always (?:wanted|been|loved))|\bstop (?:worrying|it|that)\b|\bgive up\b|\bbe yourself\b|\bsay never\b|\bfollow your\b|\bhesitate\b|\blook back\b|\bdon['’]t (?:worry|know|you think|forget to sub)\b", re.IGNORECASE)  # fmt: skip

_SUPPOSES = re.compile(r"\b(?:suppose|imagine|maybe|perhaps|wish)\b", re.IGNORECASE)


def order(clause: str, *, asks: bool) -> Candidate | None:
    if _NOT_ORDER.search(clause):
        return None
    lasting = _LASTING.search(clause)
    if _ONE_OFF.search(clause) and not re.match(r"from (?:now|today)|going forward", clause, re.IGNORECASE):
        return None
    if not asks and _SUPPOSES.search(clause) is None and any(form.match(clause) for form in FORMS):
        return Candidate(clause, "instruction", INSTRUCTION)
    if re.search(r"\b(?:if|suppose|imagine|maybe|perhaps|wish)\b", clause, re.IGNORECASE) and not lasting:
        return None
    style = re.sub(
        r"^(?:i['’]d|i would) (?:like|prefer) (?:it if )?you (?:to )?|^i want you to |^you should ",
        "",
        clause,
        flags=re.IGNORECASE,
    )
    if not asks and (_WANTED.match(clause) or _BARE_FORM.match(clause)):
        return Candidate(clause, "instruction", INSTRUCTION)
    if (lasting and _ORDER.match(clause)) or (not asks and _STYLE.match(style)):
        return Candidate(clause, "instruction", INSTRUCTION)
    return None


def begins_order(clause: str) -> bool:
    begins = _ORDER.match(clause) or clause.casefold().startswith("always ")
    return bool(begins) and not _NOT_ORDER.search(clause)
