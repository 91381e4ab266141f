"""Where the user lives. He lives in one place at a time: the newer one replaces the older, and a more exact one too."""

import re
from dataclasses import dataclass
from functools import lru_cache

from memstore.pipelines.rules.places import CHINESE_PLACES
from memstore.pipelines.rules.stances import Relation
from memstore.pipelines.rules.statement import WHEN, read

_ZH = re.compile(
    rf"(?:我|用户|本人)?(?:们)?(?:一家|全家|家)?(?:现在|目前|如今|眼下|已经|刚|最近|都|人|还|一直|也|长期|常年|租|现|就)*(?:从[^，,。；从]{{1,12}}?)?"
    rf"(?:住(?:在|到了?)?|居住?(?:在|于)?|定居(?:在|于)?|(?P<moved>搬(?:家)?(?:到|去|来|回|至|进)|迁(?:到|往)|移居到?|移民到?)了?|常驻|家在|在(?={CHINESE_PLACES}(?:了|这边|那边|呢)*(?:$|[，,])))"
    r"(?P<place>[^，,。；]{2,16}?)(?:居住|定居|生活|住|来|去)?(?P<now>了)?(?:这边|那边)*(?:呢)?$"
)
_EN = re.compile(
    r"(?:i|we|(?:the )?user|(?:my|our|(?:the )?user's) (?:new )?(?:home|place|house|flat|apartment))(?:'m| am|'re| are| is|'ve| have| has)? ?(?:now |currently |just |recently |finally )*"
    r"(?:(?:rents? (?:an? )?(?:flat|apartment|house|room|place|studio) in|(?:lives?|living|resides?|based|settled) (?:in|at|near))|(?P<moved>(?:moved|relocated|moved back|emigrated)(?: from [^,;.]{2,24}?)? (?:to|into))|in) (?P<place>[a-z][^;.]{1,40}?)(?P<now> now)?$"
)
_NOT_NOW = re.compile(
    "酒店|宾馆|民宿|旅馆|朋友家|宿舍|学校|医院|出差|旅游|打算|计划|准备|想|可能|以前|曾|之前(?!说)|原来|小时候|如果|临时|暂时|下个?月|明年|妈|爸|父母|\\b(?:used to|lived|plan|want|might|would|will|if|temporarily|hotel|once|formerly|next (?:week|month|year))\\b"
)
_BESIDES = re.compile("并|且|工作|上班|做|养|喜欢|和.+[住起]|\\b(?:with|and|works?|since|while)\\b")
"""The text says something else too, which would be lost."""
_NO_PLACE = re.compile(
    r"^(?:(?:a|an|the|my|our|this|that|it|his|her|love|trouble|bed|on|here|there)\b|(?:slack|teams|notion|vs ?code|vim|aws|azure|docker|\w*sql\w*|postgres)\b|[一两几这那哪]|楼|得|过|着|院|校|装修|施工|办|吃|打|等|看|开|修|停)"
)


@dataclass(frozen=True, slots=True)
class Home:
    """``news``: it is told as new. ``clauses``: of the text that tells of it."""

    place: frozenset[str]
    written: str
    news: bool
    clauses: int


@lru_cache(maxsize=2_048)
def home(text: str) -> Home | None:
    """Where the text says that the user lives now."""
    normal = read(text).text.strip(" .。!！~")
    if _NOT_NOW.search(normal) or len(normal) > _LONGEST:
        return None
    clauses = [part for part in re.split("[，,](?! )|[。；;！!]|, (?=i |and |with )", normal) if part]
    for clause in clauses:
        spoken = re.sub(
            r"[（(]\d{4}[^）)]*[）)]|(?:(?<=^)|(?<=^我)|(?<=^我们))(?:(?:上|这|去|今|前)(?:个)?(?:周|月|年|星期)|昨天|前天)|^\d+月(?:底|初)?",
            "",
            clause.strip(),
        )
        found = (_EN if spoken.isascii() else _ZH).match(
            re.sub(r" (?:last|this) (?:week|month|year)$", "", spoken)
        )
        if found is None or _NO_PLACE.match(found["place"]):
            continue
        if (
            spoken.isascii()
            and " in " in f" {spoken} "
            and not re.search("liv|rent|resid|based|settled|moved|relocat|home|place", spoken)
            and not found["now"]
        ):
            continue
        words = frozenset(w for w in read(found["place"]).words if not w.startswith(WHEN))
        news = bool(found["moved"] or found["now"]) or bool(
            re.search(r"现在|如今|目前|搬|\bnow\b|\bnew\b|moved", normal)
        )
        return Home(words, found["place"].strip(), news, len(clauses)) if words else None
    return None


_LONGEST = 120


def compare(new: str, old: str) -> Relation | None:
    """Whether the new text names another home than the old one, or the same, or more exactly."""
    one, other = home(new), home(old)
    if one is None or other is None:
        return None
    if _BESIDES.search(other.written):
        return None
    if one.written == other.written:
        return "same" if one.clauses == 1 or one.clauses <= other.clauses else None
    if one.written.startswith(other.written) or other.place < one.place:
        return "more" if other.clauses == 1 else None
    if other.written.startswith(one.written) or one.place & other.place:
        return None
    return "instead" if other.clauses == 1 else None
