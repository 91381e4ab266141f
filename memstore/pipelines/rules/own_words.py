"""What of a message the speaker says himself, sentence by sentence: without code, quotations, logs, pasted talk, links
and material that a task is about."""

import re
from dataclasses import dataclass

MAX_MESSAGE_CHARS = 20_000
"""Of a longer message only so much is read."""
MAX_SENTENCES = 500
"""Of one message; nobody says more about himself at once."""
MAX_SENTENCE_CHARS = 400
"""A longer sentence is pasted text or a list, not a statement about the speaker."""
LONG_QUOTE_CHARS = 12
LONG_QUOTE_WORDS = 5

_FENCED = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_MARKUP = re.compile(r"<(?P<tag>[A-Za-z][\w-]{0,30})\b[^<>]{0,200}>")
_LINK = re.compile(r"(?:https?|ftp|file)://[^\s，。；、）)」』”\"']+|www\.[^\s，。]+", re.IGNORECASE)
_QUOTED_LINE = re.compile(r"[ \t]*[>|]")
_LOG_LINE = re.compile(
    r"\s*(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d|\[?\d\d:\d\d:\d\d|\[?(?:ERROR|WARN(?:ING)?|INFO|DEBUG|TRACE|FATAL)\b|Traceback \(|"
    r"File \"|at [\w.$]+\(|\w+(?:\.\w+)*(?:Error|Exception)\b|[$#%] \w|[{}\[\]\"'][^，。]*[:,{}\[\]]\s*$|(?:diff|index|@@|\+\+\+|---) |"
    r"(?:import|from|def|class|return|const|let|var|function|SELECT|INSERT|UPDATE|DELETE|CREATE|export|sudo|git|pip|npm|docker) \S[^，。]*"
    r"(?:[;{}()=:]|\bimport\b).*$|//|/\*|#!)"
)
_SURNAMES = "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶阎余潘杜戴夏钟汪田任姜范石姚谭廖邹熊金陆郝孔白崔康毛邱秦江史顾侯邵孟龙万段雷钱汤尹黎易常武乔贺赖龚"
_SPEAKER = re.compile(
    r"\s*(?:\[[^\]]{1,30}\]\s*)?(?:(?:user|assistant|system|tool|human|ai|bot|customer|agent|support|interviewer|developer)"
    r"|(?:用户|助手|系统|客户|客服|顾客|面试官|主持人|老师|学生|旁白|甲|乙|[A-Z]|小[\u4e00-\u9fff]|老[\u4e00-\u9fff]|阿[\u4e00-\u9fff]"
    rf"|[{_SURNAMES}][\u4e00-\u9fff]{{1,2}}))\s?[:：]",
    re.IGNORECASE,
)
_NAMED = re.compile(r"\s*(?!(?:Note|Update|Ps|Fyi|Reminder|Also|Btw|Correction|Edit|Context|Background|Fact|Facts|Info|Plan|Decision"
                    r"|Important|Rule|Rules|Remember|Preference|Deadline|Today|Tomorrow|Name|Job|Role|Home|Re|Todo)\b)[A-Z][a-z]{1,14}(?: [A-Z][a-z]{1,14})?:\s")  # fmt: skip
_SHOUTED = re.compile(
    r"\s*(?!(?:NOTE|UPDATE|FYI|PS|TODO|IMPORTANT|REMINDER|RULES?|FACT|EDIT|BTW|ALSO)\b)[A-Z][A-Z.'’]{1,14}(?: [A-Z.'’]{1,14})?:\s"
)
"""Whose line it is in a script."""
_BULLET = re.compile(r"\s*(?:[-*•·]|\d{1,2}[.)、])\s+")
_QUOTES = re.compile(
    r"「[^「」\n]{0,400}」|『[^『』\n]{0,400}』|“[^“”\n]{0,400}”|‘[^‘’\n]{2,400}’|\"[^\"\n]{1,400}\"|《[^《》\n]{1,60}》|(?<![\w'])'[^'\n]{4,400}'(?!\w)"
)
_QUOTING = re.compile(
    r"(?:例如|比如|譬如|例句|例子|说|讲|问|写|念|喊|道|回|引用|原文|台词|歌词|标题|一句|那句|这句|句话|提示词|叫做|内容是|写着|[:：])[了着过道是：:，, ]*$"
    r"|\b(?:example|e\.g\.?|i\.e\.?|says?|said|saying|quote|quoted|reads?|wrote|writes|told|asked|like|prompt|phrase|sentence|line|titled|word|text"
    r"|states?|stating|message|called)\b[\s:,\w]{0,12}$",
    re.IGNORECASE,
)
_NAMED_WORD = re.compile(
    r"(?:如果|要是|当|每次|只要|每当)我(?:说|发|输入|写)\s?$|(?:不要|别|不准|不许|少)(?:再|老|总)?(?:说|用|写)\s?$"
    r"|\b(?:don['’]t|do not|never|stop|avoid|no)\s(?:ever\s)?(?:\w+\s){0,3}(?:word|words|phrase|phrases)\s$|\b(?:if|when|whenever) i (?:say|type|write|send)\s$",
    re.IGNORECASE,
)
"""Before a word that an order is about, not a quotation."""
_MATERIAL_AHEAD = re.compile(
    r"(?:翻译|润色|改写|总结|概括|校对|纠正|修改|分析|解释|评价|续写|扩写|缩写|提取|检查|看看|看一下|读一下|模仿|转换)[^。！？\n：:]{0,30}[:：](?!\d)"
    r"|(?:下面|以下|如下)[^。！？\n：:]{0,20}[:：]|例如[:：]|比如[:：]|例句[:：]|(?:例子|内容|原文|文章|课文|台词|歌词|邮件|日志|提示词|聊天记录|简历|报告)(?:是|如下|说)?[:：]"
    r"|\b(?:translate|proofread|summari[sz]e|rewrite|rephrase|paraphrase|polish|review|analy[sz]e|explain|edit|check|fix|critique|parse|extract|classify"
    r"|read|grade|correct)\b[^.!?\n:]{0,60}:(?=[\s\"“]|$)|\b(?:following|below|example|e\.g\.|quote|excerpt|transcript|passage|article|prompt|log|output|lyrics)\b[^.!?\n:]{0,20}:(?=[\s\"“]|$)",
    re.IGNORECASE,
)
_MATERIAL_BEFORE = re.compile(
    r"(?:翻译|润色|改写|总结|概括|校对|分析|修改)[^。！？\n]{0,6}(?:上面|以上|上述|这段|这句|这篇|这封|这个句子)|(?:上面|以上|上述|[这那]段话?|[这那]句话?|[这那]篇|[这那]封|[这那]部分)[^。！？\n]{0,12}(?:翻译|润色|改写|总结|概括|校对|语法|修改|压缩|精简|缩短|缩减|浓缩|扩写|扩充|重写|续写|整理成|改成)"
    r"|\b(?:translate|proofread|summari[sz]e|rewrite|rephrase|paraphrase|polish|correct|shorten|condense|expand|continue|extend|tighten)\b[^.!?\n]{0,20}\b(?:above|this (?:text|sentence|paragraph|passage|email))\b",
    re.IGNORECASE,
)
_NOT_MEANT = re.compile(
    r"开玩笑|逗你|骗你的|才怪|角色扮演|扮演|假装你|假装我|我们来玩|写[一个篇段首]{1,3}[^。！？\n]{0,10}(?:故事|小说|剧本|诗|歌|台词|作文|独白|人设)|(?:小说|剧本|故事|作文)里"
    r"|\b(?:just kidding|kidding|jk|role-?play|pretend(?:ing)?|act as|in character|joking|"
    r"(?:continue|finish|extend|go on with) (?:the|this|that|my) (?:\w+ ){0,2}(?:story|poem|novel|scene|song|monologue|script|essay|dialogue|lyrics)|"
    r"write (?:me )?an? (?:\w+ ){0,3}(?:story|poem|novel|scene|song|monologue|script|essay|dialogue))\b|[（(](?:不是|bushi|误)[)）]|狗头|\[doge\]",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(
    r"[。！？!?；;…\n]+[”’」』\"')）]*|~{2,}|(?<=[\w)\"'”\]%])\.(?=\s|$)|(?<=[\u3400-\u9fff])\.(?=[\s\u3400-\u9fff]|$)"
)
_ABBREVIATION = re.compile(r"(?:\b(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|no|approx|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec|a\.m|p\.m|inc|co|u\.s)|\b[A-Z])$", re.IGNORECASE)  # fmt: skip
_SOURCED = re.compile(
    r"(?:文章|书上|书里|书中|老师|网上|新闻|手册|文档|教程|题目|剧本|小说|课文|电影|台词|歌词|提示词|例句|例子|模板|邮件|网页|网站|帖子|工具|日志|报告|论文|广告|课上|同学|视频|博主|"
    r"他|她|他们|有人|别人|朋友|老板|领导|同事|客户|医生|妈妈?|爸爸?|老婆|老公)[^，。！？]{0,8}(?:说|写|提到|讲|告诉|要求|认为|建议|提醒|问|表示|声称|规定)|[A-Z][a-z]+(?:说|告诉|提到|写道)|据说|听说|据报道|传说|俗话说|常言道|(?<!无)所谓"
    r"|例如|比如说?[:：，,]?(?=.{4})|譬如|引用|攻击|注入"
    r"|\b(?:he|she|they|it|someone|somebody|people|article|book|docs?|manual|guide|paper|prompt|teacher|tutorial|example|email|message|tool|page|site|lesson|quote|"
    r"boss|manager|friend|wife|husband|mom|mother|dad|father|doctor|colleague|client|coworker|coach|[A-Z][a-z]+)\s(?:also\s|just\s|once\s|always\s)?"
    r"(?:says?|said|reads?|states?|tells?|told|wrote|writes|contains?|claims?|claimed|asks?|asked|mentions?|mentioned|suggests?|suggested|thinks?|warned|recommends?)\b"
    r"|\b(?:for example|for instance|e\.g\.|such as:|according to|quoted?|supposedly|apparently|injection|attack(?:er)?)\b",
)
_SARCASM = re.compile(
    r"🙄|😒|(?<=\s)/s\b|呵呵|真是谢谢|可真会|服了|\b(?:yeah right|as if|oh great|thanks a lot)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence as it was said. ``asks``: it ends with a question mark; ``alone``: nothing else is in its message, so
    that nothing else is what an order is about."""

    text: str
    asks: bool = False
    alone: bool = False


def own_sentences(text: str) -> list[Sentence]:
    """The sentences of a message that are the speaker's own statements. Time: linear in what is read."""
    text = text[:MAX_MESSAGE_CHARS]
    if _NOT_MEANT.search(text) or _MATERIAL_BEFORE.search(text):
        return []
    text = _without_markup(_FENCED.sub("\n", text))
    ahead = _MATERIAL_AHEAD.search(text)
    if ahead:
        text = text[: ahead.start()]
    lines = (line for line in text.splitlines() if not _foreign(line))
    kept = "\n".join(_BULLET.sub("", line, count=1) if _BULLET.match(line) else line for line in lines)
    sentences = _cut(_without_quotes(_LINK.sub(" ", kept)))[:MAX_SENTENCES]
    return [sentence for sentence in sentences if _stated(sentence.text)]


def _without_markup(text: str) -> str:
    """Without what stands between tags: documents and results are pasted that way."""
    found = _MARKUP.search(text)
    while found:
        closing = text.rfind(f"</{found['tag']}>")
        end = closing + len(found["tag"]) + 3 if closing > found.start() else found.end()
        text = f"{text[: found.start()]}\n{text[end:]}"
        found = _MARKUP.search(text, found.start())
    return text


def _foreign(line: str) -> bool:
    return bool(
        _QUOTED_LINE.match(line)
        or _LOG_LINE.match(line)
        or _SPEAKER.match(line)
        or _NAMED.match(line)
        or _SHOUTED.match(line)
    )


def _without_quotes(text: str) -> str:
    """Quotations go where they are told as such or long; a quoted name or word stays."""
    parts, last = [], 0
    for found in _QUOTES.finditer(text):
        inner = found[0][1:-1]
        if (
            _NAMED_WORD.search(text[max(0, found.start() - 40) : found.start()])
            and len(inner) <= LONG_QUOTE_CHARS
        ):
            continue
        long = len(inner) > LONG_QUOTE_CHARS if not inner.isascii() else len(inner.split()) > LONG_QUOTE_WORDS
        if long or _QUOTING.search(text[max(0, found.start() - 40) : found.start()]):
            parts += [text[last : found.start()], "〝〞"]
            last = found.end()
    return "".join([*parts, text[last:]])


def _cut(text: str) -> list[Sentence]:
    sentences, start = [], 0
    for found in _SENTENCE_END.finditer(text):
        if found[0] == "." and _ABBREVIATION.search(text[max(start, found.start() - 8) : found.start()]):
            continue
        sentences.append(Sentence(text[start : found.start()].strip(), "?" in found[0] or "？" in found[0]))
        start = found.end()
    sentences.append(Sentence(text[start:].strip()))
    return [sentence for sentence in sentences if sentence.text]


def _stated(sentence: str) -> bool:
    return not (
        len(sentence) > MAX_SENTENCE_CHARS
        or _SARCASM.search(sentence)
        or "〝" in sentence
        or _SOURCED.search(sentence)
    )
