"""A memory's text as the rules compare it: its words in one spelling, without those that say nothing.

Comparison errs on the side of "different": a word that is not understood counts as content.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from memstore.pipelines.rules.numerals import plain_numbers
from memstore.text import general_jieba, normalise

NOT = "NOT"
ENDED = "ENDED"
"""A negation that says that something was so until now."""
COMMA = ","
"""Between clauses."""
AND = "&"
"""Between the members of a list."""
WHEN = "@"
"""Begins a word that names a time; such words may stand anywhere in a statement."""
LONGEST = 400
"""Longer texts are compared as they stand only."""

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_UNIT = r"(?:点半|点钟|点(?:\d+分?)?|月\d+[日号]|月|[日号]|:\d\d)"
_TIMES_ZH = (
    r"\d+年(?:\d+月)?(?:\d+[日号])?|\d+月\d+[日号]?|\d+[日号](?!线|楼)|\d+点(?:半|\d+分?|钟)?|\d+月(?:份|底|初)?"
    r"|(?:本|这|上|下)?(?:个)?(?:周|星期|礼拜)[一二三四五六日天末]|(?:本|这|上|下)(?:个)?(?:周|星期|礼拜|月)"
    r"|每(?:天|日|晚|周|月|年|早)(?:早上|晚上|清晨|[一二三四五六日末])?|今天|明天|后天|昨天|前天|今年|明年|去年|今早|今晚|明早|明晚"
    r"|早上|上午|中午|下午|傍晚|晚上|凌晨|清晨|周末"
)
_TIMES_EN = (
    r"(?:(?:on|at|by|in|every|each|this|next|last) )?(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|today|tomorrow"
    r"|yesterday|tonight|weekends?|midnight|noon"
    r"|(?:the )?(?:mornings?|afternoons?|evenings?|night)"
    r"|(?:january|february|april|june|july|august|september|october|november|december)(?: \d{1,2}(?:st|nd|rd|th)?)?(?: \d{4})?"
    r"|(?:march|may) \d{1,2}(?:st|nd|rd|th)?"
    r"|\d{1,2}(?::\d\d)? ?(?:am|pm|o'clock))\b"
    r"|(?:every|each) (?:day|week|month|year)\b|(?:on|at) \d{1,2}(?::\d\d)\b"
)
_TIME = re.compile(
    rf"(?:on |at )?\d{{4}}-\d\d-\d\d(?:[t ]\d\d:\d\d(?::\d\d)?)?|\d{{1,2}}:\d\d|{_TIMES_ZH}|\b(?:{_TIMES_EN})"
)
_LEADING = re.compile(r"(?:on|at|by|in|this|each|the) ")

_NEGATIONS_EN = (
    (r"\b(i|you|we|they|he|she|it|that|there|what|here)'(?:m|re|s|ve)\b", r"\1"),
    (r"\b(i|you|we|they|he|she|it|that|there|what)'ll\b", r"\1 will"),
    (r"\b(i|you|we|they|he|she|it|that|there|what)'d\b", r"\1 would"),
    (r"\b(?:don't|doesn't|do not|does not) ([^,;.]+?) any ?more\b", rf" {ENDED} \1 "),
    (r"\bnothing but\b|\bnot only\b|\bnot just\b|\bno matter\b|\bno doubt\b|\bwhy not\b|\bif not\b", " {} "),
    (
        r"\b(?:no longer|not any ?more|not anymore|has stopped|have stopped|stopped|quit|gave up|given up|has quit)\b",
        f" {ENDED} ",
    ),
    (r"\b(?:can't|cannot|can not|may not|must not|mustn't|(?:is|are) not allowed to)\b", f" ALLOW {NOT} "),
    (r"\b(?:(?:is|are) )?(?:forbidden|prohibited|not permitted)(?: to)?\b", f" ALLOW {NOT} "),
    (r"\b(?:(?:is|are) )?(?:allowed|permitted) to\b|\b(?:can|may)\b", " ALLOW "),
    (r"\b(?:hates?|dislikes?|detests?|can't stand|loathes?)\b", f" {NOT} LIKE "),
    (r"\b(?:likes?|loves?|enjoys?|adores?|(?:is|am|are) fond of)\b", " LIKE "),
    (r"\b(\w+)n't\b", rf" \1 {NOT} "),
    (r"\b(?:detailed|verbose|lengthy)\b", f" {NOT} short "),
    (r"\b(?:not|no|never|without|neither|nor|none|nobody|nothing|avoids?|stop|refuses? to)\b", f" {NOT} "),
)
_REWRITES_ZH = (
    (r"[晨夜慢]跑步?", " 跑步 "),
    (r"从来不|从来没有?|从不|从没有?", f" {NOT} "),
    (r"不(?![是错过同仅但管论久少])([^，。、；,;!！\s]{1,8})了(?=$|[，。；,;!！])", rf" {ENDED} \1 "),
    (r"再也不|再也没|不会再|不再|戒掉了?|戒了|停止了?|放弃了|已经不|早就不|早已不", f" {ENDED} "),
    (r"不喜欢|讨厌|厌恶|反感|不爱|不喜爱", f" {NOT} LIKE "),
    (r"(?<!可)喜欢|喜爱|热爱|酷爱|爱好是", " LIKE "),
    (
        r"不可以|不可(?=[^能思])|不能够?|不允许|不被允许|禁止|严禁|不准许?|不许|不得(?!不|了)",
        f" ALLOW {NOT} ",
    ),
    (r"可以|允许|准许|获准", " ALLOW "),
    (r"请勿|切勿|勿(?=[^忘])|并非|毫无|尚未|从未|未曾|无法|别再|千万别|千万不要|不要|不想要", f" {NOT} "),
)
_AFFIRMATIVE = frozenset(
    """
    不同 不过 不错 不仅 不但 不管 不论 不止 不只 不光 不断 不妨 不如 不得不 不少 不久 不久前 不足 不安 不幸 不料 不愧 不良 不锈钢
    不等 不等式 不动产 不超过 不少于 不低于 不高于 不多于 不知不觉 差不多 对不起 了不起 忍不住 巴不得 说不定 要不 要不是 不一会儿
    没事 没收 没关系 没问题 没准 出没 沉没 淹没 埋没
    不客气 不好意思 不见不散 无论 无论如何 无锡 无聊 无线 无线电 无限 无数 无意 无人机 无所谓 无非 虚无
    特别 分别 级别 类别 别墅 告别 区别 性别 识别 个别 鉴别 离别 别人 别的 别处 别名 别针 道别 派别 辨别 差别
    非常 非洲 除非 莫非 是非 南非 绯闻 未来 未免 未必 未婚妻 未婚夫
    """.split()  # noqa: SIM905
)
"""Words that hold a character of negation and negate nothing, or nothing that could be flipped."""
_LENGTHS = (2, 3)
"""Of words that may begin with a negation."""
_VERB_AND_OBJECT = 3
_NEGATIVE = frozenset(
    "不 没 没有 别 无 非 勿 未 莫 从不 从没 并不 并没有 并未 绝不 决不 永不 毫不 都不 也不 还没 不是 不要".split()  # noqa: SIM905
)
_LIGHT_ZH = frozenset(
    """
    的 了 着 过 呢 吧 啊 呀 吗 嘛 啦 哦 嗯 噢 哈 很 非常 特别 十分 挺 真 真的 太 超 超级 更 都 就 还 又 再 也 已 已经 现在 目前 如今
    一直 平时 通常 一般 一般来说 其实 是 会 要 请 一定 务必 必须 应该 应当 需要 得 地 一个 一名 一位 一只 一种 个 位 名 以后 今后 之后
    从现在起 从今以后 记住 记得 用户 本人 该用户 自己 我们 咱们 那么 所以 那 这 嗨 好的 对 说 表示 提到 麻烦
    """.split()  # noqa: SIM905
) - {"对", "说", "过"}
_LIGHT_EN = frozenset(
    """
    a an the is am are be been being do does i user my me's really very quite just also too always please currently now still
    already usually generally actually so of that should must need needs shall will it's ok well like's we our oh hey
    personally basically definitely
    """.split()  # noqa: SIM905
)
_LIGHT_AFTER_LIKE = frozenset({"喝", "吃", "drink", "eat", "to"})
_SAME_ZH = {
    "和": AND, "与": AND, "及": AND, "以及": AND, "跟": AND, "还有": AND, "也是": "", "吸烟": "抽烟", "饮酒": "喝酒", "撸铁": "健身", "电话号码": "电话", "手机号码": "手机号", "家住": "住在", "居住在": "住在",
    "简洁": "简短", "精简": "简短", "简练": "简短", "回答": "回复", "答复": "回复",
    "爱": "LIKE", "能": "ALLOW", "能够": "ALLOW", "准": "ALLOW", "星期": "周", "素食": "吃素",
}  # fmt: skip
_SAME_EN = {
    "and": AND,
    "jog": "run",
    "concis": "short",
    "brief": "short",
    "repli": "answer",
    "respond": "answer",
    "respons": "answer",
    "wouldn": "would",
    "won": "will",
}
_KEPT_PARTS = re.compile(
    rf"(?P<mark>[A-Z]+\b|\{{\}})|(?P<time>{WHEN}\S+)|(?P<han>[{_HAN}]+)"
    rf"|(?P<word>[^\W_{_HAN}]+(?:[._@+#'’&/:-]*[^\W_{_HAN}]+)*[+#]*)"
    r"|(?P<list>[、&])|(?P<comma>[,;.!?。；！？\n|()\[\]:])"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """What a text says.

    :param tokens: its words in order, parted by ``COMMA`` and ``AND``.
    """

    text: str
    tokens: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The tokens without the separators."""
        return tuple(token for token in self.tokens if token not in (COMMA, AND))

    @property
    def negations(self) -> int:
        return sum(token in (NOT, ENDED) for token in self.tokens)

    @property
    def topics(self) -> tuple[str, ...]:
        """The words that say what it is about: neither negations, nor marks, nor times, nor single letters."""
        return tuple(
            word for word in self.words if not word.isupper() and not word.startswith(WHEN) and word != "{}"
        )


@lru_cache(maxsize=2_048)
def read(text: str) -> Statement:
    """The statement that a text makes. Any text is legal; one longer than ``LONGEST`` has no tokens."""
    normal = " ".join(normalise(text).replace("’", "'").split())
    normal = _SPACED_DATE.sub("", normal)
    if len(normal) > LONGEST:
        return Statement(normal, ())
    marked = plain_numbers(normal)
    marked = _TIME.sub(_spelled_time, marked)
    for pattern, replacement in _REWRITES:
        marked = pattern.sub(replacement, marked)
    return Statement(normal, tuple(_without_light(_parted(marked))))


_SPACED_DATE = re.compile(r"(?<=\d) (?=[年月日号])|(?<=[年月]) (?=\d)")
"""As in 2026 年 3 月 18 日."""
_REWRITES = tuple(
    (re.compile(pattern), new) for pattern, new in (*_NEGATIONS_EN, *_REWRITES_ZH, (r"\bgoes\b", "go"))
)


def clauses(text: str) -> int:
    """Of how many clauses a text is made; brackets and dates part none."""
    return 1 + len(_CLAUSE_ENDS.findall(read(text).text.rstrip(" .。!！;；,")))


_CLAUSE_ENDS = re.compile(r"[;；。!！\n]|,(?! ?\d{4}\b)|\.(?=\s)")


def _spelled_time(found: re.Match[str]) -> str:
    time = _LEADING.sub("", found.group()).replace("星期", "周").replace("礼拜", "周")
    time = re.sub(r"[\s:]", "-", time)
    return f" {WHEN}{time} "


def _parted(marked: str) -> list[str]:
    tokens: list[str] = []
    for match in _KEPT_PARTS.finditer(marked):
        part, kind = match.group(), match.lastgroup
        if kind == "han":
            for word in general_jieba().cut(part, HMM=False):
                tokens += _han_tokens(word)
        elif kind == "word":
            tokens.append(_SAME_EN.get(part, part))
        elif kind in ("list", "comma"):
            tokens.append(AND if kind == "list" else COMMA)
        else:
            tokens.append(part)
    return tokens


def _han_tokens(word: str) -> list[str]:
    same = _SAME_ZH.get(word)
    if same is not None:
        return [same] if same else []
    if word in _AFFIRMATIVE:
        return [word]
    if word in _NEGATIVE:
        return [NOT]
    if word in ("详细", "详尽", "冗长"):
        return [NOT, "简短"]
    if len(word) in _LENGTHS and word[0] in "不没":
        return [NOT, word[1:]]
    if "不" in word[1:]:  # 看不懂
        return [NOT, word]
    if len(word) >= _VERB_AND_OBJECT and word[0] in "喝吃打":  # 喝咖啡, 打篮球
        return [word[0], word[1:]]
    return [word]


def _without_light(tokens: list[str]) -> list[str]:
    kept: list[str] = []
    for token in tokens:
        previous = kept[-1] if kept else COMMA
        if token in _LIGHT_ZH or token in _LIGHT_EN or token == "user's":  # noqa: S105
            continue
        if token == "我" and (previous in (COMMA, AND) or previous.startswith(WHEN)):  # noqa: S105
            continue
        if token in ("我", "me") and previous in ("回复", "answer", "告诉", "tell"):
            continue
        if previous == "LIKE" and token in _LIGHT_AFTER_LIKE:
            continue
        if previous == "LIKE" and len(token) > 1 and token[0] in _LIGHT_AFTER_LIKE:  # 喝咖啡 is one word
            kept.append(token[1:])
            continue
        if token in (COMMA, AND) and previous in (COMMA, AND):
            continue
        kept.append(_stemmed(token))
    while kept and kept[-1] in (COMMA, AND):
        kept.pop()
    return kept


def _stemmed(word: str) -> str:
    """The stem of an English word; a past tense stays apart from the present one."""
    if not (word.isascii() and word.isalpha() and word.islower()):
        return word
    stem = _stem(word)
    return f"{stem}-ed" if word.endswith("ed") and stem != word else stem


@lru_cache(maxsize=4_096)
def _stem(word: str) -> str:
    import Stemmer

    # One for each call: a Stemmer must not be shared between threads, and words are remembered.
    stem: str = Stemmer.Stemmer("english").stemWord(word)
    return _SAME_EN.get(stem, stem)
