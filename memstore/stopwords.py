"""Words that carry no meaning of their own. They are indexed like any other word and found by a literal match; only
the ranking of a longer query goes without them, where ``Settings.stop_words`` is on. English negations are none of them;
不 and 没 are, since they mostly build questions (是不是, 有没有).

Which lists help was measured on English and Chinese questions: ``benchmarks/results/README.md``, the rows "no stop
words" of the ablation.
"""

from collections.abc import Sequence

from memstore.text import QueryTokens

ENGLISH = frozenset(
    """
    a an the and or but if of at by for with about into to from in on as is are was were be been being am do does did
    doing done have has had having i me my we our us you your he him his she her it its they them their this that these
    those there here what which who whom whose when where why how so than too very can could will would shall
    should may might must just also s t d ll m re ve im ive id youre its dont didnt doesnt isnt arent wasnt whats
    """.split()  # noqa: SIM905 - a column of strings would not be read
) | frozenset(
    # as the stemmer leaves them
    ("doe", "have", "becaus", "ani", "onli", "veri", "whos", "dont", "didn", "doesn", "isn", "aren", "wasn")
)
CHINESE = frozenset(
    """
    的 了 是 在 我 你 他 她 它 们 您 咱 我们 你们 他们 她们 它们 咱们 自己 这 那 这个 那个 这些 那些 这里 那里 这儿 那儿
    和 与 及 或 或者 而 而且 但 但是 也 都 就 还 又 再 很 太 更 最 吗 呢 吧 啊 呀 哦 嗯 啦 嘛 哈 么 哪 哪个 哪些 哪里 哪儿
    什么 怎么 怎样 怎么样 如何 为什么 谁 几 多少 多 个 之 其 把 被 让 给 对 对于 关于 从 到 向 往 于 以 以及 用 有 没有 没 不 要
    会 能 能够 可以 可 应该 得 地 着 过 去 来 上 下 里 中 时 时候 一 一个 一下 一些 某 请 请问 告诉 知道 所 所以 因为 因此 如果
    那么 然后 并 并且 已 已经 正在 将 曾 曾经 只 只是 才 刚 刚刚
    我們 你們 他們 她們 這 這個 那個 這些 這裡 那裡 還 嗎 麼 什麼 怎麼 怎麼樣 為什麼 誰 幾 個 讓 給 對 對於 關於 從 沒有 沒 會
    能夠 應該 過 來 裡 時 時候 請 請問 告訴 因為 將 曾經 已經 剛 剛剛
    """.split()  # noqa: SIM905
)
STOP_WORDS = ENGLISH | CHINESE


def without_stop_words(tokens: QueryTokens) -> tuple[QueryTokens, tuple[str, ...]]:
    """What to rank by, and the words that were left out.

    A query of nothing but such words (谁, "the who") is looked for as it stands. Of the literal tokens a pair of Han
    characters goes when both are stop words.
    """
    kept = tuple(word for word in tokens.words if word not in STOP_WORDS)
    if not kept:
        return tokens, ()
    literal = tuple(token for token in tokens.literal if not _says_nothing(token))
    left_out = tuple(word for word in tokens.words if word in STOP_WORDS)
    return QueryTokens(kept, literal, tokens.phrases, tokens.prefixes), left_out


def _says_nothing(token: str) -> bool:
    return token in STOP_WORDS or (len(token) == len("的了") and _all_stop(token))


def _all_stop(characters: Sequence[str]) -> bool:
    return all(character in CHINESE for character in characters)
