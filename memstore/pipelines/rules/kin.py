"""Relatives and animals of the user: what is said of the same one again, and more of."""

import re
from functools import lru_cache

from memstore.pipelines.rules.stances import Relation
from memstore.pipelines.rules.statement import clauses, read

_ANIMALS = "猫|狗|兔子?|仓鼠|鹦鹉|乌龟|cat|dog|rabbit|hamster|parrot|turtle|puppy|kitten|horse"
_CHILDREN = "女儿|儿子|daughter|son|baby"
_PARTNERS = "老婆|妻子|太太|老公|丈夫|wife|husband"
_PARENTS = "爸爸|妈妈|爸|妈|父亲|母亲|mother|father|mom|mum|dad"
_WHOM = re.compile(rf"{_ANIMALS}|{_CHILDREN}|{_PARTNERS}|{_PARENTS}|弟弟|妹妹|哥哥|姐姐|brother|sister")
_WORD = re.compile(rf"\b(?:{_ANIMALS}|{_CHILDREN}|{_PARTNERS}|{_PARENTS}|brother|sister)\b")
_OWN = re.compile(
    r"^(?:我们?家?里?的?|我们?|用户家?里?的?|家里的?|(?:the )?user(?:'s| has| have| owns| adopted)?|my|our|i|we|i've|we've)"
)
_TOWARDS = re.compile("对|喜欢|讨厌|怕|爱(?!人)|想|\\b(?:likes?|loves?|hates?|allergic|afraid|wants?)\\b")
"""How one stands to such animals is not about one of them."""
_ANOTHER = re.compile(
    "又|还有|另|第二|新(?!华)|领养|刚买|买了|也有|也养|\\b(?:another|second|new|adopted|(?<!ve )got|also|older|younger)\\b|大女儿|小女儿|大儿子|小儿子"
)
_SEVERAL = re.compile(
    "两(?!岁|个月|周岁)|三只|几|对(?!.{1,8}过敏)|双|们|\\b(?:two|three|twins?|several|some)\\b|\\b(?:cats|dogs|daughters|sons|kids)\\b"
)
_NAMED = re.compile(
    r"(?:叫做?|名叫|名字(?:是|叫))(?P<zh>[\u4e00-\u9fffA-Za-z]{1,8}?)(?=的|[，,。]|$)"
    r"|\b(?:named|called|name is) (?P<en>[a-z][\w'-]+)|\b(?:my|our|user's|has a) (?:cat|dog|rabbit|puppy|kitten|daughter|son|wife|husband|brother|sister) (?P<app>(?!is|has|was|named|called|who|and|had|loves|likes|in|at|works|lives|can|does|on)[a-z][\w'-]+)\b"
)
_GENERIC = frozenset(
    """
    养 有 叫 名叫 叫做 名字 一只 一个 只 个 家 家里 条 今年 岁 是 只有
    have has own name call name-ed call-ed our year old
    """.split()  # noqa: SIM905
)
_NONE = re.compile(
    "没有?(?:养)?(?:任何)?(?P<zh>孩子|小孩|宠物|驾照|对象|男朋友|女朋友)|(?:has|have) no (?P<en>pets?|kids|children|siblings)|(?:doesn't|don't|does not|do not) have (?:any |a )?(?P<en2>pets?|kids|children|siblings|driver's licen[cs]e)"
)
_BELIES = {
    "孩子": re.compile(f"{_CHILDREN}|孩子|宝宝"), "小孩": re.compile(f"{_CHILDREN}|孩子|宝宝"),
    "宠物": re.compile(rf"{_ANIMALS}"), "驾照": re.compile("驾照"), "对象": re.compile("男朋友|女朋友|男友|女友|老公|老婆|未婚"),
    "男朋友": re.compile("男朋友|男友|老公"), "女朋友": re.compile("女朋友|女友|老婆"),
    "pet": re.compile(rf"\b(?:{_ANIMALS})\b"), "pets": re.compile(rf"\b(?:{_ANIMALS})\b"),
    "kids": re.compile(r"\b(?:daughter|son|baby|twins|kids?)\b"), "children": re.compile(r"\b(?:daughter|son|baby|twins|kids?)\b"),
    "siblings": re.compile(r"\b(?:brother|sister)\b"), "driver's license": re.compile("licen[cs]e"), "driver's licence": re.compile("licen[cs]e"),
}  # fmt: skip
_HAS = re.compile(
    "^(?:我们?|用户)?(?:家|刚|终于|已经)*(?:有|养了?|领养了?|生了|考(?:到|出|下)?了?|拿到了?|交了?)|^我们?家?的?(?:女儿|儿子|猫|狗|孩子|宝宝|男朋友|女朋友)|^(?:i|we)(?:'ve)? (?:have|adopted|got|own|had)\\b|^(?:my|our) (?:daughter|son|dog|cat|baby|kid)"
)


def compare(new: str, old: str) -> Relation | None:
    """Whether the new text is about the one whom the old one is about, and says no more, or all of it and more."""
    one, other = read(new).text, read(old).text
    if not read(new).tokens or not read(old).tokens:
        return None
    if _contradicts(one, other):
        return "instead"
    whom = _only(one)
    if whom is None or whom != _only(other) or read(new).negations or read(old).negations:
        return None
    if _ANOTHER.search(one) or _SEVERAL.search(one) or _SEVERAL.search(other):
        return None
    names = {_name(one), _name(other)} - {None}
    if len(names) > 1 or (whom in _MANY and not names and "一" not in other and " a " not in other):
        return None
    told, known = _said(new), _said(old)
    if told <= known:
        return "same"
    return "more" if known <= told else None


_MANY = frozenset("brother sister 弟弟 妹妹 哥哥 姐姐".split())  # noqa: SIM905


@lru_cache(maxsize=2_048)
def _only(text: str) -> str | None:
    """The one of the user's relatives or animals whom a text is about."""
    if not _OWN.match(text) or _TOWARDS.search(text):
        return None
    found = set((_WORD if text.isascii() else _WHOM).findall(text))
    return found.pop() if len(found) == 1 else None


def _name(text: str) -> str | None:
    found = _NAMED.search(text)
    return (found["zh"] or found["en"] or found["app"]) if found else None


def _said(text: str) -> set[str]:
    own = _OWN.sub(" ", read(text).text)
    apart = re.sub(rf"叫做?|名叫|一[只个条位]|{_WHOM.pattern}", r" \g<0> ", own) if not own.isascii() else own
    return {word for word in read(apart).topics if word not in _GENERIC and word != "1"}


def _contradicts(new: str, old: str) -> bool:
    """Whether the old text says that there is none, and the new one tells of one."""
    none = _NONE.search(old)
    if none is None or clauses(old) > 1 or _NONE.search(new) or not _HAS.search(new):
        return False
    belies = _BELIES.get(none["zh"] or none["en"] or none["en2"] or "")
    return belies is not None and belies.search(new) is not None
