"""What an instruction settles: the language of answers, their form, their length and so on. Each is settled one way at a
time, each for one purpose (answers, comments, e-mails, …), so that the newer rule replaces the older."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from memstore.pipelines.rules.candidates import Candidate
from memstore.pipelines.rules.stances import Relation
from memstore.pipelines.rules.statement import read

_LANGUAGES = {
    "zh": "中文|汉语|普通话|简体(?:中文)?|chinese|mandarin", "zh-t": "繁体(?:中文)?|traditional chinese", "en": "英文|英语|english", "ja": "日文|日语|japanese",
    "fr": "法文|法语|french", "de": "德文|德语|german", "es": "西班牙语|spanish", "ko": "韩文|韩语|korean", "nl": "荷兰语|dutch", "it": "意大利语|italian",
    "pt": "葡萄牙语|portuguese", "ru": "俄语|俄文|russian", "yue": "粤语|广东话|cantonese",
}  # fmt: skip
_SLOTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("form", {"list": "列表|要点|分点|条目|bullet(?:s| points?| lists?)?|numbered lists?", "table": "表格|tables?", "prose": "段落|(?:大段)?文字|散文|paragraphs?|prose|plain text|full sentences", "json": "json", "markdown": "markdown"}),
    ("length", {"short": "简短|简洁|精简|简练|短一?[点些]|short(?:er)?|concise|brief|terse|under \\d+ words|\\d+字以内|one sentence|一句话", "long": "详细|详尽|展开|长一?[点些]|detailed|in[ -]depth|thorough(?:ly)?|long(?:er)?|elaborate|verbose"}),
    ("tone", {"formal": "正式|严肃|书面|formal|professional", "casual": "随意|轻松|口语|幽默|活泼|casual|informal|relaxed|friendly|playful"}),
    ("emoji", {"emoji": "表情符号|表情包?|emoji(?:s)?|emoticons?|颜文字"}),
    ("units", {"metric": "公制|公里|米制|metric|kilomet(?:re|er)s|km", "imperial": "英制|英里|imperial|miles"}),
    ("temperature", {"celsius": "摄氏度?|celsius", "fahrenheit": "华氏度?|fahrenheit"}),
    ("spelling", {"british": "英式|british(?: spelling| english)?", "american": "美式|american(?: spelling| english)?"}),
    ("currency", {"cny": "人民币|cny|rmb|yuan", "usd": "美元|美金|dollars?|usd", "eur": "欧元|euros?|eur", "gbp": "英镑|pounds|gbp"}),
    ("clock", {"24": "24 ?小时制?|24[- ]hour", "12": "12 ?小时制?|12[- ]hour|am/pm"}),
    ("order", {"conclusion": "先(?:给|说|讲|写)?(?:出)?结论|结论先行|conclusion first|start with the (?:conclusion|answer)", "reasons": "先(?:给|说|讲|写)?(?:出)?(?:过程|理由|原因|思路|推理|分析)|explain your reasoning first|start with the reasoning"}),
    ("code", {name: rf"{re.escape(name)}(?![\w+#])" for name in ("python", "java", "typescript", "javascript", "kotlin", "go", "rust", "c++", "c#", "swift", "ruby", "php", "scala")}),
    ("indent", {"tabs": "制表符|tabs?", "spaces": "空格|spaces"}),
)  # fmt: skip
_PURPOSES = (
    ("comments", "注释|code comments?|comments?(?= in)|(?<=review )comments?|(?<=review 的 )comments?"),
    ("commits", "commit|提交信息|提交说明"), ("pull requests", r"\bprs?\b|pull request|合并请求|code review"), ("mail", "邮件|e-?mails?"),
    ("documents", "文档|docs?\\b|documentation|报告|周报|reports?"), ("code", "代码|示例|例子|code|examples?|snippets?|scripts?|变量名|函数名"),
    ("titles", "标题|titles?|headings?"), ("summaries", "总结|摘要|summar(?:y|ies)"), ("prices", "价格|报价|prices?"),
)  # fmt: skip
_NOT = re.compile(
    r"别再?|不要再?|不用|不准|不许|禁止|请勿|少(?=用|发)|避免|\b(?:don['’]?t|do not|never|stop|no(?: more)?|avoid|without|no longer|not)\b"
)
_ADDS = re.compile(
    "也|另外|同时|如果|除非|除了|之外|只有|仅限|\\b(?:also|unless|except|if|when|whenever|only|additionally)\\b|时候?[，,]|问[^，]{1,6}(?:时|的时候)"
)
_ADDRESS = (
    re.compile(r"被(?:称为|称作|叫做?)(?P<name>[\w\u4e00-\u9fff]{1,8})$"),
    re.compile(
        r"(?:称呼?|叫|喊)(?:我|用户)(?:为|作|做)?(?P<name>(?!去|来|起|一声)[\w\u4e00-\u9fff]{1,8}?)(?:就好|就行|吧)?$"
    ),
    re.compile(
        r"(?:call|address) (?:me|the user)(?: as)? (?P<name>[a-z][\w'-]{1,20}(?: [a-z][\w'-]{1,20})?)(?: (?:from now on|instead|now))?$"
    ),
)


@dataclass(frozen=True, slots=True)
class Slot:
    """What is settled, for what, how; ``wanted``: that way, or any but that."""

    name: str
    purpose: str
    value: str
    wanted: bool


@lru_cache(maxsize=2_048)
def slots(text: str) -> tuple[Slot, ...]:
    """What an instruction settles, clause by clause; empty where a clause settles nothing that is known here."""
    normal = read(text).text.strip(" .。!！")
    if len(normal) > _LONGEST or _ADDS.search(normal):
        return ()
    purpose, found = "", []
    for clause in filter(None, (part.strip() for part in re.split(r"[，,；;。]|\. ", normal))):
        if _LEAD.fullmatch(clause):
            continue
        settled = list(_of_clause(clause, purpose))
        if not settled:
            return ()
        purpose = settled[0].purpose
        found += settled
    return tuple(found)


_LONGEST = 160
_LEAD = re.compile(
    "以后|今后|从现在起|从现在开始|从今天起|from now on|going forward|in (?:the )?future|please|请|(?:请)?记住|every time|always"
)


def _of_clause(clause: str, before: str) -> Iterator[Slot]:
    for pattern in _ADDRESS:
        if (named := pattern.search(clause)) is not None:
            yield Slot("address", "", named["name"], _NOT.search(clause) is None)
            return
    purpose = next((name for name, words in _PURPOSES if re.search(words, clause)), before)
    language = _language(clause)
    if language is not None:
        yield Slot("language", purpose, language, _NOT.search(clause) is None)
        return
    for name, values in _SLOTS:
        here = [
            (value, spot) for value, words in values.items() if (spot := _spot(words, clause)) is not None
        ]
        for value, spot in sorted(here, key=lambda pair: pair[1]):
            yield Slot(name, _without_own(purpose, name), value, _NOT.search(clause[:spot]) is None)
        if here:
            return


def _language(clause: str) -> str | None:
    for code, words in _LANGUAGES.items():
        if re.search(
            rf"(?:用|使用|以|写成|说|翻译成)\s?(?:{words})|\b(?:in|into|use|speak|write) (?:{words})\b(?! spelling)",
            clause,
        ):
            return code
    return None


def _spot(words: str, clause: str) -> int | None:
    found = re.search(rf"(?<![a-z])(?:{words})(?![a-z])", clause)
    return None if found is None else found.start()


def _without_own(purpose: str, name: str) -> str:
    """Code is what the language of code is for anyway."""
    return "" if (name, purpose) in (("code", "code"), ("currency", "prices")) else purpose


def compare(new: str, old: str) -> Relation | None:
    """Whether the new instruction settles anew what the old one settles, all of it."""
    one, other = slots(new), slots(old)
    if not one or not other:
        return None
    if set(one) == set(other):
        return "same"
    if all(any(_against(a, b) for a in one) for b in other):
        return "instead"
    return None


def _against(new: Slot, old: Slot) -> bool:
    """Another way, or that one no longer. Not to want one form says nothing of another."""
    if (new.name, new.purpose) != (old.name, old.purpose):
        return False
    if new.value == old.value:
        return new.wanted != old.wanted
    return new.wanted and old.wanted and new.name != "emoji"


def joined_orders(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """The same, with two orders that follow each other and settle one thing, one how not and one how, as one: no bullet
    points, but paragraphs."""
    before: Candidate | None = None
    for candidate in candidates:
        if (
            before is not None
            and before.kind == candidate.kind == "instruction"
            and _completes(before, candidate)
        ):
            gap = ". " if before.text.isascii() else "。"
            before = Candidate(f"{before.text}{gap}{candidate.text}", before.kind, before.priority)
            continue
        if before is not None:
            yield before
        before = candidate
    if before is not None:
        yield before


def _completes(first: Candidate, second: Candidate) -> bool:
    one, other = slots(first.text), slots(second.text)
    if len(one) != 1 or len(other) != 1 or (one[0].name, one[0].purpose) != (other[0].name, other[0].purpose):
        return False
    return (
        one[0].name != "address" and not one[0].wanted and other[0].wanted and one[0].value != other[0].value
    )
