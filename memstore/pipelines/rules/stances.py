"""How somebody stands to a thing: likes it, takes it, can do it, is allergic to it, or not. Many phrasings say the same
(讨厌香菜, 最受不了香菜; can't stand olives, dislikes olives), and the newer stance replaces its opposite."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from memstore.pipelines.rules.statement import AND, WHEN, read
from memstore.text import normalise

Relation = Literal["same", "more", "instead"]
LONGEST = 160

_WHO_ZH = "(?:之前说过[，,]?|如前所述[，,]?|其实|说过[，,]?)?(?:我(?:本人|自己)?|用户(?:本人)?|本人|该用户)?(?:现在|目前|一直|从来|从小|平时|真的|其实|最|很|非常|特别|比较|也|都|又|已经|早就|开始|超级?|挺|已|早已|不太敢|更|只)*"
_WHO_EN = r"(?:as (?:i said|you know|i mentioned),? )?(?:i|(?:the )?user|im)(?:['’]m| am| is)? ?(?:(?:now|really|absolutely|also|still|always|just|never used to|usually|personally|currently|no longer) )*"
_NOT_EN = r"(?:don['’]?t|do not|doesn['’]?t|does not)"


@dataclass(frozen=True, slots=True)
class Stance:
    """``holds``: whether it is so. ``thing``: its words, in any order."""

    sort: str
    holds: bool
    thing: frozenset[str]


def _zh(sort: str, words: str, *, holds: bool) -> tuple[str, bool, re.Pattern[str]]:
    return sort, holds, re.compile(f"{_WHO_ZH}(?:{words})(?P<thing>[^，,。；,;了]{{1,14}})(?:了|的)?$")


def _en(sort: str, words: str, *, holds: bool) -> tuple[str, bool, re.Pattern[str]]:
    return (
        sort,
        holds,
        re.compile(rf"{_WHO_EN}(?:{words}) (?P<thing>[^,;.!?]{{2,40}}?)(?: any ?more| now| at all| again)?$"),
    )


_FORMS = (
    ("allergy", True, re.compile(f"{_WHO_ZH}(?:对|一?(?:吃|喝|闻到?|碰到?))?(?P<thing>[^，,。；不没我]{{1,10}}?)(?:严重|轻度|轻微|有点|就|会)?过敏(?:体质)?$")),
    ("allergy", False, re.compile(f"{_WHO_ZH}对(?P<thing>[^，,。；我]{{1,10}}?)(?:已经|并)?不(?:再|会)?过敏了?$")),
    _en("allergy", r"(?:severely |mildly )?allergic to|have an? allergy to|has an? allergy to", holds=True),
    _en("allergy", r"not allergic to", holds=False),
    _zh("like", "不喜欢(?:吃|喝)?|讨厌(?:吃|喝)?|受不了|厌恶|反感|不爱(?:吃|喝|看|听)?|不怎么喜欢|吃不惯", holds=False),
    _zh("like", "喜欢(?:吃|喝)?|爱(?:吃|喝|看|听)|喜爱|热爱|酷爱|偏爱|爱上了?|迷上了?", holds=True),
    _zh("take", "不(?:能)?(?:再)?(?:吃|喝|抽|碰|沾)|(?:吃|喝)不了|戒了?|戒掉了?|再也不(?:吃|喝|抽)|从不(?:吃|喝|抽)", holds=False),
    _zh("take", "(?:能|可以)?(?:常|每天|每日)?(?:吃|喝|抽)", holds=True),
    _zh("do", "不会(?:说|讲)?|不懂|不能", holds=False),
    _zh("do", "会(?:说|讲)?(?!员|议|计)|懂|能", holds=True),
    _zh("be", "不(?:再)?是|并不是", holds=False),
    _zh("be", "是(?:一[名个位])?", holds=True),
    _zh("own", "没有?(?:养|任何)?(?!人|什么)", holds=False),
    _en("like", rf"(?:{_NOT_EN} (?:really )?(?:like|enjoy|love)(?: to)?|can['’]?t stand|cannot stand|hates?|dislikes?|detests?|loathes?|not (?:a (?:big |huge )?fan of|into|big on|keen on|fond of)|{_NOT_EN} care for)", holds=False),
    _en("like", r"(?:likes?|loves?|enjoys?|adores?|prefers?|(?:a (?:big |huge )?)fan of|into|fond of|keen on)(?: to)?", holds=True),
    _en("take", rf"(?:{_NOT_EN} (?:eat|drink|smoke|use)|never (?:eats?|drinks?|smokes?|uses?)|can['’]?t (?:eat|drink)|cannot (?:eat|drink)|avoids?|gave up|quit|stopped (?:eating|drinking|using|smoking)|no longer (?:eats?|drinks?|smokes?|uses?))", holds=False),
    _en("take", r"(?:eats?|drinks?|smokes?|uses?)", holds=True),
    _en("do", r"(?:can['’]?t|cannot|can not|(?:don['’]?t|do not|doesn['’]?t|does not) know how to|never learned (?:how )?to)", holds=False),
    _en("do", r"(?:can|know how to|knows how to|able to)", holds=True),
    _en("be", r"(?:not|isn['’]?t)(?: an?)?", holds=False),
    ("be", True, re.compile(rf"{_WHO_EN}(?:an? )?(?P<thing>vegan|vegetarian|pescatarian|single|married|retired|religious|left-handed|[a-z]+ person|smoker|student)$")),
)  # fmt: skip
_AGAINST = frozenset({("take", "like"), ("like", "take"), ("like", "like"), ("take", "take"), ("do", "do"), ("allergy", "allergy"), ("be", "be")})  # fmt: skip
"""Sorts of which one, if it does not hold, contradicts the other: who does not eat it no longer likes to eat it."""
_ALLOWED = re.compile(
    r"(?P<what>.{1,24}?)(?P<not>不)?(?:可以|能|允许|让|准)(?P<act>[^，,。了]{1,10})$"
    r"|(?P<what2>[\w '’-]{2,30}?) (?:is|are) (?P<not2>not |no longer )?(?:now )?(?:allowed|permitted|welcome) (?P<act2>(?:in|on|at) [\w '’-]{2,30}?)(?: now)?$"
)


@lru_cache(maxsize=2_048)
def stance(text: str) -> Stance | None:
    """The stance of the user that a text states and nothing beside it."""
    normal = " ".join(normalise(text).replace("’", "'").split()).strip(" .。!！")
    if len(normal) > LONGEST:
        return None
    normal = re.sub("滴酒不沾", "不喝酒", normal)
    normal = re.sub(r"((?:don't|do not|doesn't|does not) drink)$", r"\1 alcohol", normal)
    allowed = _allowance(normal)
    if allowed is not None:
        return allowed
    for sort, holds, pattern in _FORMS:
        found = pattern.match(normal)
        if found is None:
            continue
        thing = frozenset(
            word for word in read(found["thing"]).words if word != AND and not word.startswith(WHEN)
        )
        if (
            thing
            and len(read(found["thing"]).words) <= _MOST_WORDS
            and AND not in read(found["thing"]).tokens
        ):
            return Stance(sort, holds, thing)
        return None
    return None


_MOST_WORDS = 5


def _allowance(normal: str) -> Stance | None:
    """What may be done where, or may not."""
    text = (
        re.sub("^(?:我|用户|my |our |the user's |user's )的?", "", normal)
        .replace("，", "")
        .replace(", ", " ")
        .replace("aren't", "are not")
        .replace("isn't", "is not")
    )
    text = re.sub("禁止|不允许|不让|不许|不准", "不可以", text)
    text = re.sub(r"forbidden|banned|prohibited|off limits", "not allowed", text)
    found = _ALLOWED.fullmatch(text)
    if found is None:
        return None
    what, act = found["what"] or found["what2"], found["act"] or found["act2"]
    words = frozenset(w for w in (*read(what).words, *read(act).words) if not w.isupper())
    known = frozenset(w for w in words if w not in ("的", "里", "now", "correct", "规矩", "我"))
    return Stance("allowed", not (found["not"] or found["not2"]), known) if len(known) > 1 else None


def compare(new: str, old: str) -> Relation | None:
    """How the stance of the new text relates to that of the old one."""
    one, other = stance(new), stance(old)
    if one is None or other is None or one.thing != other.thing:
        return None
    if one.sort == other.sort and one.holds == other.holds:
        return "same"
    if one.holds == other.holds:
        return None
    if one.sort == other.sort:
        return "instead"
    denied = one if not one.holds else other
    return "instead" if (one.sort, other.sort) in _AGAINST and denied.sort == "take" else None
