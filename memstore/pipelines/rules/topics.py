"""What a text is about: its words of substance, for grouping and for names of groups."""

import re
from functools import lru_cache

from memstore.pipelines.rules.statement import LONGEST
from memstore.stopwords import STOP_WORDS
from memstore.text import general_jieba, normalise

_HAN_RUN = re.compile("[\u4e00-\u9fff]+")
_WORD = re.compile(r"[a-z][a-z0-9+#]*(?:[.'-][a-z0-9]+)*")
_SHORTEST = 2
_SAYS_LITTLE = frozenset(
    """
    用户 本人 喜欢 不喜欢 讨厌 喜爱 计划 打算 需要 使用 觉得 认为 希望 想要 准备 已经 现在 目前 以后 以前 之前 之后 非常 特别 比较 每天 每周 每月
    每年 今天 明天 昨天 后天 上午 下午 晚上 早上 中午 周一 周二 周三 周四 周五 周六 周日 周末 星期 下周 上周 本周 今年 明年 去年 问题 事情 东西
    时间 时候 可能 可以 不要 不能 不会 没有 必须 应该 开始 完成 进行 决定 表示 提到 助手 自己 平时 经常 通常 一直 因为 由于 以及 还有 最近 一起
    user users like likes love loves enjoy prefer plan want need use work assistant today tomorrow yesterday monday tuesday wednesday
    thursday friday saturday sunday morning afternoon evening week month year day time thing start make take get go going went
    usual often always never not no every each now new one two three hate dislik decid said say ask like will would plan-ed live
    january february march april may june july august september october november december at's user's
    """.split()  # noqa: SIM905
)


@lru_cache(maxsize=4_096)
def topics(text: str) -> dict[str, str]:
    """Each word of substance in order of appearance: the form in which it is compared, and as it was written."""
    normal = normalise(text[: 2 * LONGEST])
    found: list[tuple[int, str, str]] = []
    for run in _HAN_RUN.finditer(normal):
        start = run.start()
        for word in general_jieba().cut(run.group(), HMM=False):
            found.append((start, word, word))
            start += len(word)
    found += [(word.start(), _stem(word.group()), word.group()) for word in _WORD.finditer(normal)]
    made: dict[str, str] = {}
    for _, key, shown in sorted(found):
        if not _is_light(key, shown):
            made.setdefault(key, shown)
    return made


def _is_light(key: str, shown: str) -> bool:
    return (
        len(key) < 2  # noqa: PLR2004
        or key in STOP_WORDS
        or shown in STOP_WORDS
        or key in _SAYS_LITTLE
        or shown in _SAYS_LITTLE
    )


@lru_cache(maxsize=4_096)
def _stem(word: str) -> str:
    import Stemmer

    stem: str = Stemmer.Stemmer("english").stemWord(word[:64])
    return stem
