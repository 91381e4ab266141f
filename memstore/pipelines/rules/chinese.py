"""What Chinese sentences say about the speaker, order from the assistant, or tell of events.

Every pattern is anchored at the beginning of a clause, where the speaker is the subject or is left out. A clause that
fits none says nothing to keep.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from memstore.pipelines.rules.candidates import MAX_CLAUSE_CHARS, Candidate
from memstore.pipelines.rules.chinese_events import event
from memstore.pipelines.rules.chinese_orders import (
    CONDITION,
    MORE_ORDER,
    PREFERENCE_ORDER,
    begins_order,
    order,
)
from memstore.pipelines.rules.chinese_states import TOLD_AS_HABIT
from memstore.pipelines.rules.chinese_traits import object_of, subject_of, trait
from memstore.pipelines.rules.chinese_words import HYPOTHETICAL, RELATIVES, without_dates
from memstore.pipelines.rules.corrections import corrected
from memstore.pipelines.rules.dates import resolve
from memstore.pipelines.rules.own_words import Sentence

_HAN = re.compile("[\u3400-\u9fff]")
_LATIN_WORD = re.compile("[A-Za-z]+")
_ENGLISH_BEGINS = re.compile(
    r"\W*(?:i|my|we|our|please|from|always|never|yesterday|tomorrow|the|call|don)\b", re.IGNORECASE
)
_CLAUSES = re.compile(r"[，,]\s*|\s{2,}|——+|(?<=[\u3400-\u9fff])\s(?=[我但不而另])")
_FILLER = re.compile(
    r"(?:说真的|说实话|讲真|老实说|坦白说|不瞒你说|(?:我)?(?:跟|和)你(?:说|讲)个事|告诉你个(?:事|好消息)|update(?: ?一下)?(?=[：:，, ])|更新一下|并(?=通过|持有|有|且)|好消息是|坏消息是|重点是|结果是|嗯+|哦+|噢|啊|唉|哎|诶|呃|额|那个|话说|对了|其实|另外|还有(?=我|，)|顺便(?:说一?下|一提)?|补充(?:一下|一点)?|说起来|总之|反正|然后|而且|不过|但是?|可是|"
    r"因为|由于|所以|因此|毕竟|你好呀?|您好|嗨|哈喽|早上好|晚上好|好的|好吧|好(?=[\s~]|$)|谢谢|是的|对的|行(?=\s|$)|ok|hi|hello|hey|btw|ps|"
    r"(?:请|麻烦|帮我|你要|你)*(?:记住|记一下|记下来?|备忘|记得(?=我)|注意|知会一下|告诉你一下|跟你说一?下|说一下|提醒一下)(?:了|一下|这个|一点|哦|啊)?|自我介绍一下|介绍一下自己?|如题)"
    r"[\s，,:：、~]*",
    re.IGNORECASE,
)
_TAIL = re.compile(r"(?:哦|噢|啊|呀|哈+|啦|嘛|呢|吧|的说|哟|嘞|~+|hh+|😀|😊|😂|🎉|😭|\s)+$")
_ASKING = re.compile(
    "吗|什么|怎么|怎样|如何|为何|为啥|哪[里儿个些种位家]?|谁|几[个点号时天次岁]|多少|多久|多大|是否|是不是|能不能|可不可以|有没有|要不要|会不会|好不好|行不行|对不对|"
    "该不该|么$|呢$|咋|啥"
)
_ADDED = re.compile(
    "(?:他|她|它)?(?:今年)?(?:已经|快|刚满?)?[0-9一二两三四五六七八九十]{1,3}个?[岁月](?:大|了|多)?$|地点(?:在|是)|(?:都|已经|也)?(?:干|做|学|住|待|呆|用|养|弹|教|练|开)了(?:快|有|差不多|将近|整整)?[0-9一二两三四五六七八九十几半]{1,3}(?:多|来)?个?(?:年|月)(?:多|半)?了?$|为期|一共[0-9一二三四五六七八九十两]+天|越.越好$|待[0-9一二三四五六七八九十两]+天"
)
_KIND_OF = re.compile(
    "(?:名字)?叫[^，。]{1,8}$|(?:品种)?是(?:一)?(?:只|条|个|匹|名|位)[^，。]{1,10}$|(?:品种)?是[^，。]{1,6}[猫犬狗]$|(?:公|母)的$"
)
"""What is said further of a relative or an animal."""
MAX_LISTED_CHARS = 6
"""A clause so short behind 我喜欢… is one more thing of a list."""
_NOT_LISTED = re.compile(
    "[我你他她它这那真很太挺蛮不没是也都就还又再只了的吧呢吗呀啊]|喜欢|讨厌|爱|特别|非常|尤其|哈|因为|所以|但|平时|一般|每|住|叫|对|用|写|[0-9]|谢|嗯|[A-Za-z]$"
)


def is_chinese(text: str) -> bool:
    """Whether the sentence is built in Chinese; English words in it do not count ("我用 Neovim 写 Python"), nor do
    Chinese names in an English one ("I live in 北京")."""
    han = len(_HAN.findall(text, 0, 400))
    words = len(_LATIN_WORD.findall(text, 0, 400))
    if han > words > 0 or (han > 1 and words == 0):
        return True
    if re.match(r"\W*[我俺]", text):
        return True
    return han > 1 and 3 * han >= words and _ENGLISH_BEGINS.match(text) is None


def candidates(sentence: Sentence, at: datetime) -> Iterator[Candidate]:
    """What a sentence says, in its order."""
    clauses = corrected(
        [clause for clause in map(_clean, _CLAUSES.split(sentence.text)) if clause], at, object_of
    )
    subject: str | None = None
    clauses = _joined(clauses, at)
    unsure_from = _first_unsure(clauses)
    for number, clause in enumerate(clauses):
        unsure = number >= unsure_from
        subject = subject_of(clause) or subject
        if (
            len(clause) > MAX_CLAUSE_CHARS
            or _ASKING.search(clause)
            or (sentence.asks and number == len(clauses) - 1)
        ):
            continue
        found = order(clause, unsure=unsure, alone=sentence.alone)
        if found is None and not unsure:
            found = trait(clause, at, subject) or event(clause, at)
        if found is not None:
            yield found


def _first_unsure(clauses: Sequence[str]) -> int:
    """The number of the clause from which on nothing is certain: what is said before 如果… is still so, unless it
    depends on it (我就搬走了，要是…)."""
    first = next((n for n, clause in enumerate(clauses) if HYPOTHETICAL.search(clause)), len(clauses))
    depends = first < len(clauses) and any(
        re.search("就|才|早|会(?!计|议)|要(?!求)", one) for one in clauses[:first]
    )
    return 0 if depends else first


def _clean(clause: str) -> str:
    clause = clause.strip(" \t、~—-()（）")
    while found := _FILLER.match(clause):
        if found.end() == len(clause):
            return ""
        clause = clause[found.end() :]
    return _TAIL.sub("", clause).strip()


def _joined(clauses: list[str], at: datetime) -> list[str]:
    """A clause of a date alone (周五下午三点，在A座开会) is told together with the next, and what a clause adds (今年五岁,
    不用 MySQL, 地点在A座) with the one before."""
    joined: list[str] = []
    pending = ""
    for clause in clauses:
        if CONDITION.fullmatch(clause) or (len(clause) <= MAX_CLAUSE_CHARS and _only_date(clause, at)):
            pending += clause + "，"
        elif joined and not pending and _adds(joined[-1], clause):
            joined[-1] += "，" + clause
        else:
            joined.append(pending + clause)
            pending = ""
    return joined + ([pending.rstrip("，")] if pending else [])


def _adds(before: str, clause: str) -> bool:
    if MORE_ORDER.match(clause) and (begins_order(before) or PREFERENCE_ORDER.fullmatch(before)):
        return True
    if TOLD_AS_HABIT.pattern.fullmatch(f"{before}，{clause}"):
        return True
    if _ADDED.match(clause) or (_KIND_OF.match(clause) and re.search(RELATIVES, before)):
        return True
    if (
        len(clause) <= MAX_LISTED_CHARS
        and re.search("喜欢|[最热偏]爱|讨厌|不吃|过敏|擅长", before)
        and not _NOT_LISTED.search(clause)
    ):
        return True
    return bool(re.match("不用|不再|而不是|不是|放弃", clause) and re.search("改|换|决定|选|定|转", before))


def _only_date(clause: str, at: datetime) -> bool:
    found = resolve(clause, at)
    return bool(found) and not without_dates(clause, at).strip("在于是的到之前约大概左右 ")
