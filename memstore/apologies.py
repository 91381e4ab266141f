"""Texts that a model writes where it should have written something else: apologies, refusals, "nothing is known"."""

import re

_HEADING = re.compile(r"\s*(?:#{1,6}\s.*|\*\*[^*]*\*\*[:：]?|<!--.*-->|-{3,}|={3,})\s*")
_SENTENCE = re.compile(r"[^.!?。！？；;]+")
_AROUND = " \t\r\n*_`>-•·\"'“”‘’「」『』()（）[]【】.,。，!！?？~…"
_LABEL = re.compile(r"\A[^:：。.，,]{1,20}[:：](?=\s*\S)")
_LACK_EN = r"information|data|details?|facts?|memor(?:y|ies)|content|context|conversations?|messages?|profile|updates?"
_LACK_ZH = "信息|内容|资料|数据|记忆|对话|记录|上下文|更新|事实|画像"
_HOLD_EN = "contain|include|provide|have|reveal|mention|give|offer|hold|show"
_USED_ZH = "更新|生成|提取|总结|记录|写|存|整理|构建|归纳|提炼|创建|分析|使用|利用|参考|判断|形成|用于|供"
_REFUSAL = re.compile(
    r"""
      (?: (?: i['’]?m | i \s am | we['’]?re | we \s are ) \s+ (?: \w+ \s+ )? (?: sorry \b | afraid \s+ (?: i | that
          | there )\b )
        | sorry (?: \s* [,:–—-] | \s+ (?: but | i | there | for ) \b | $ )
        | (?: my \s+ | our \s+ )? (?: sincere \s+ )? apologies \b
        | (?: i | we ) \s+ apologi[sz]e \b
        | unfortunately ,? \s+ (?: i | we | there | no | the \s+ (?: conversation | messages? | provided
          | given ) ) \b
        | as \s+ an \s+ (?: ai | artificial \s intelligence ) \s+ (?: language \s+ )? model \b
        | as \s+ an? \s+ (?: ai | large \s language | language ) \b [^,]{0,30} , \s* i (?: ['’]m | \s+ am )? \s*
          (?: can | do \s+ not | don['’]t | not | unable | have \s+ no )
        | (?: i | we ) \s+ (?: can ['’]? t | can \s* not | could \s* (?: n['’]t | not ) | (?: am | was | are
          | were ) \s+ (?: unable | not \s able ) \s+ to
            | will \s not | won['’]t ) \s+ (?: be \s+ able \s+ to \s+ )?
          (?: provide | create | generate | write | produce | complete | fulfil\w* | help | assist | comply
          | do \s+ that
            | summari[sz]e | find | see \s+ any | access | extract | update | determine | process | build | make
          | continue | distil\w* | identify )
        | i \s+ (?: do \s+ not | don['’]t | did \s+ not | didn['’]t ) \s+ (?: have | see | find ) \s+ (?: any
          | enough | access | sufficient | the )
        | (?: 很 | 非常 | 十分 | 实在 | 真的? )? (?: 抱歉 | 对不起 | 不好意思 | 遗憾 ) (?: 地 | 的是 )? (?: $ | [，,：:\s] | 我 | 但 | 目前 | 由于
          | 因为 | 无法 | 暂时 | 您 | 当前 )
        | 作为 (?: 一个 | 一款 | 一名 )? (?: AI | 人工智能 | 大?型?语言模型 ) [^。]{0,12}? (?: 无法 | 不能 | 没有 | 不会 | 并不 | 我 )
        | (?: 我 | 本助手 | 本模型 | 目前 | 当前 | 暂时 | 暂 )? (?: 无法 | 不能 | 没办法 | 没法 | 未能 ) (?: 为您 | 为你 | 根据 | 从 | 提供 | 生成 | 更新
          | 提取
            | 总结 | 完成这 | 完成该 | 完成您 | 确定 | 判断 | 创建 | 撰写 | 满足 | 协助 | 帮助您 | 继续 | 访问 | 获取 | 形成 )
      )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NOTHING = re.compile(
    rf"""
      (?: none | n/?a | null | nil | unknown | empty | nothing (?: \s+ (?: new | found | to \s+ \w+ | yet | known
          | is \s+ known ) )?
        | not \s+ (?: available | specified | provided | known | mentioned ) | no \s+ (?: changes? | profile
          | updates? )
        | 无 | 暂无 | 没有 | 未知 | 不详 | 空 | 未提及 | 未提供 | 暂缺 | 尚无 | 暂未提及 ) $
    | (?: there \s+ (?: is | was | are | were | isn['’]t | aren['’]t ) \s+ )? (?: currently \s+ )?
      (?: no | not \s+ enough | insufficient | not \s+ sufficient | nothing
          | any ) \s+ (?: [\w-]+ \s+ ){{0,4}}? (?: {_LACK_EN} ) \b
      (?: $ | \s+ (?: is | was | are | were | has | have | yet | available | found | provided | given | present | in
          | about | on | could | can | from | to \s+ (?: extract
          | store | summari[sz]e | report | update | add | build | create | write | work ) ) \b )
    | (?: the | this | these | those | your | our | provided | given ) \b [^,]{{0,40}}? \b (?: conversations?
          | messages? | memories | input | data | text | history | transcript | context | sessions? | scenes? ) \b [^,]{{0,20}}?
      \b (?: (?: do | does | did ) \s* (?: n['’]t | \bnot ) \s+ (?: {_HOLD_EN} ) | (?: {_HOLD_EN} ) (?: s | ed )? \s+
          (?: no | nothing | not \s enough | insufficient ) | has \s+ (?: no | nothing )
          | (?: is | are | was | were ) \s+ (?: empty | blank | insufficient | too \s short ) | lacks? ) \b
    | (?: 根据 | 从 | 在 | 由于 | 因为 | 鉴于 | 目前 | 当前 | 本次 | 这次 | 以上 | 上述 | 所给 | 所?提供的? | 给定的?
          | 该 | 此 | 这段 | 这些 | 最近的? | 现有的? | 的 | ， )*
      (?: 对话 | 会话 | 消息 | 聊天 | 输入 | 记忆 | 资料 | 上下文 | 文本 | 场景 | 内容 | 历史 ) [^。；]{{0,20}}?
      (?: (?: 为空 | 是空的 | 空白 | 不足 ) (?: $ | ， .* $ )
        | (?: 没有 | 没 | 并无 | 无(?![需须论法]) | 未(?!来) | 不(?:包含|含|足|存在|具备) | 缺乏 | 缺少 )
          [^。；]{{0,30}}? (?: {_LACK_ZH} ) [^。；]{{0,20}} $ )
    | (?: 暂 | 目前 | 当前 | 尚 | 暂时 | 现在 )*
      (?: 无(?![需须论法]) | 没有 | 未找到 | 未发现 | 未提供 | 未提取到 | 缺乏 | 缺少 | 暂缺 ) [^，。]{{0,12}}?
      (?: {_LACK_ZH} )
      (?: $ | ， .* $ | (?: 可 | 来 | 以 | 能 )? .{{0,4}}? (?: {_USED_ZH} ) .{{0,12}} $ )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_PLEADING = re.compile(
    r"""
      please \b | (?: could | can | would ) \s+ you \b | if \s+ you \b | feel \s+ free | let \s+ me \s+ know
          | i \s+ (?: need | would \s+ need | will | can ) \b
    | (?: so | therefore | thus | hence ) \b .*
      \b (?: no | not | cannot | can['’]t | nothing | unchanged | remains? | keep ) \b
    | 请 | 如果您 | 若您 | 如需 | 您可以 | 因此 .* (?: 无法 | 不 | 没有 | 保持 | 未 ) | 所以 .* (?: 无法 | 不 | 没有 | 保持 )
    """,
    re.VERBOSE | re.IGNORECASE,
)


def is_apology(text: str) -> bool:
    """Whether a text only says that its writer could not write it, in Chinese or English: a refusal, an excuse, or
    "nothing is known". What says something beside, be it about being sorry, is none."""
    told = [clean for line in text.splitlines() if not _HEADING.fullmatch(line) and (clean := _bare(line))]
    sentences = [clean for line in told for piece in _SENTENCE.findall(line) if (clean := _bare(piece))]
    if not sentences:
        return False
    if _REFUSAL.match(sentences[0]):
        return True
    return any(_NOTHING.match(one) for one in sentences) and all(
        _NOTHING.match(one) or _REFUSAL.match(one) or _PLEADING.match(one) for one in sentences
    )


def _bare(text: str) -> str:
    """Without list marks, emphasis, quotes and a label such as "Preferences:" before it."""
    return _LABEL.sub("", text.strip(_AROUND)).strip(_AROUND)
