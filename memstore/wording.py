"""Explanations as sentences for people, in English and Chinese. The data they are made of is in ``types.py``."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from memstore.errors import InvalidInput
from memstore.types import (
    CandidateReport,
    Degraded,
    Difference,
    Explanation,
    LegReport,
    Reason,
    Recall,
    RecallExplanation,
    Replay,
    WhyNot,
)

Language = Literal["en", "zh"]
LANGUAGES: tuple[str, ...] = ("en", "zh")

_REASONS: Mapping[str, tuple[str, str]] = {
    "returned": ("It came back, as hit {rank}.", "它被返回了，排在第 {rank} 位。"),
    "deleted": (
        "It was deleted at {at}; deleted rows are in no index.",
        "它已于 {at} 删除；已删除的内容不在任何索引中。",
    ),
    "rule": ("The access rules keep it out: {rule}.", "访问规则不允许返回它：{rule}。"),
    "degraded": ("The {leg} leg did not answer: {reason}.", "{leg}路没有作答：{reason}。"),
    "no words in the query": (
        "The query holds nothing that the text leg can look for.",
        "查询中没有文本路可以检索的词。",
    ),
    "no word in common": (
        "It holds none of the words that the text leg looked for: {words}.",
        "它不含文本路检索的任何词：{words}。",
    ),
    "no vector leg": (
        "The vector leg took no part: no embedder, or nothing is embedded yet.",
        "向量路没有参与：未配置嵌入模型，或尚无向量。",
    ),
    "no vector": ("It has no vector: {state}.", "它没有向量：{state}。"),
    "below the floor": (
        "In the {leg} leg its score {score} is below the floor {floor}.",
        "它在{leg}路的得分 {score} 低于下限 {floor}。",
    ),
    "too far down": (
        "Alone it stands at rank {rank} of {of} in the {leg} leg, which brings the best {depth}.",
        "它自身在{leg}路排第 {rank} 位（共 {of} 条），该路只取前 {depth} 条。",
    ),
    "passed by others": (
        (
            "Alone it stands at rank {rank} of {of} in the {leg} leg, but rows with better turns beside them, or that "
            "answer another sentence, came before it; the leg brings the best {depth}."
        ),
        "它自身在{leg}路排第 {rank} 位（共 {of} 条），但相邻发言更匹配或回答了另一句的内容排到了它前面；该路只取前 {depth} 条。",
    ),
    "near-duplicate": (
        "It says nearly the same as {of}, which ranks higher and was returned in its place.",
        "它与排名更高的 {of} 几乎相同，后者代替了它。",
    ),
    "source cap": (
        "Its source already has its share of the answer ({share} of the limit {limit}).",
        "同一来源在结果中的份额已满（上限 {limit} 的 {share}）。",
    ),
    "cut by the limit": (
        "It came to place {place} after fusion; the limit is {limit}.",
        "融合之后它排在第 {place} 位，超出了上限 {limit}。",
    ),
    "moved": ("It moved.", "名次变了。"),
    "another score": ("Its score changed.", "得分变了。"),
    "another version": ("It has another version now.", "它有了新版本。"),
    "recorded since": ("It was recorded since.", "它是之后才记录的。"),
    "came up": ("It came up.", "它上升到了结果中。"),
    "not found": ("It is no longer there for this asker.", "对此提问者而言它已不存在。"),
}
_FILTERS: Mapping[str, tuple[str, str]] = {
    "agent or task": ("another agent or task", "属于另一个智能体或任务"),
    "hidden": ("its session was deleted", "所在会话已被删除"),
    "quarantined": ("it is under quarantine", "已被隔离"),
    "live_only": ("it is not in the live window", "不在当前窗口内"),
    "since": ("recorded or said before 'since'", "早于 since"),
    "until": ("recorded or said at or after 'until'", "不早于 until"),
    "known_at": ("recorded after 'known_at'", "在 known_at 之后才记录"),
    "as_of": ("not yet valid at 'as_of'", "在 as_of 时尚未生效"),
    "valid_to": ("no longer valid", "已不再有效"),
    "expires_at": ("expired", "已过期"),
    "superseded": ("superseded by a later version", "已被新版本取代"),
    "kinds": ("of another kind", "属于另一种类型"),
    "roles": ("said in another role", "角色不同"),
    "session": ("of another session", "属于另一个会话"),
    "metadata": ("its metadata does not match", "元数据不匹配"),
}
_LEGS: Mapping[str, tuple[str, str]] = {"text": ("text", "文本"), "vector": ("vector", "向量")}
_OUTCOMES: Mapping[str, tuple[str, str]] = {
    "returned": ("returned", "已返回"),
    "limit": ("cut by the limit", "超出上限"),
    "duplicate": ("near-duplicate of {of}", "与 {of} 几乎相同"),
    "source cap": ("its source has its share", "同一来源份额已满"),
    "rules": ("dropped by the access rules", "被访问规则剔除"),
}
_NOTES: Mapping[str, str] = {
    "its vector is not computed yet; the text rank stands for it": "向量尚未计算，暂用文本名次",
    "holds the query literally": "原文包含整个查询",
    "found by the turns beside it": "靠相邻发言找到",
    "its part of the best score of the sentence that it answers best": "得分为其最匹配一句的最高分之比例",
}
_RULES: Mapping[str, str] = {
    "the asker owns it": "属于提问者本人",
    "shared with the team": "与团队共享",
    "shared with the team, managed by its admins": "与团队共享，由管理员管理",
    "deleted": "已删除",
    "no longer current": "已不是当前版本",
    "quarantined rows are never recalled": "被隔离的内容不会被召回",
    "private to its owner": "仅所有者可见",
}
_DATE = re.compile(r"on(?:year(\d{4})|month(\d\d)|day(\d\d)(\d\d))")
_CODE_POINT = re.compile(r"u([0-9a-f]{4,6})")
_STATES: Mapping[str, str] = {"pending": "等待计算（memstore index）"}


def check_language(language: str) -> Language:
    """:raises InvalidInput: for a language that no sentences exist in."""
    if language not in LANGUAGES:
        raise InvalidInput(f"language must be one of {', '.join(LANGUAGES)}, not {language!r:.40}")
    return "zh" if language == "zh" else "en"


def shown_word(token: str) -> str:
    """A token of the index as a person writes it: dates and emoji are spelled in letters there."""
    if found := _DATE.fullmatch(token):
        return "-".join(part for part in found.groups() if part)
    if found := _CODE_POINT.fullmatch(token):
        character = chr(int(found[1], 16))
        return character if unicodedata.category(character) == "So" else token
    return token


def _words(tokens: Iterable[str], language: Language) -> str:
    return (", " if language == "en" else "、").join(map(shown_word, tokens))


def _said(pair: tuple[str, str], language: Language) -> str:
    return pair[LANGUAGES.index(language)]


def _leg(leg: str, language: Language) -> str:
    return _said(_LEGS[leg], language) if leg in _LEGS else leg


def degraded_text(part: Degraded, language: Language = "en") -> str:
    """A leg that is missing, and why."""
    if language == "en":
        return f"without the {part.leg} leg: {part.reason}"
    return f"缺少{_leg(part.leg, language)}路：{part.reason}"


def reason_text(reason: Reason, language: Language = "en") -> str:
    """One reason as a sentence."""
    values = dict(reason.values)
    if reason.code == "filter":
        return _filter_text(values, language)
    if "leg" in values:
        values["leg"] = _leg(str(values["leg"]), language)
    if "words" in values:
        values["words"] = _words(str(values["words"]).split(", "), language)
    if language == "zh":
        values |= {key: _RULES.get(str(values[key]), values[key]) for key in ("rule",) if key in values}
        values |= {key: _STATES.get(str(values[key]), values[key]) for key in ("state",) if key in values}
    if reason.code == "deleted" and "at" not in values:
        values["at"] = "?"
    if reason.code == "below the floor" and "score" not in values:  # of a row that another user shared
        values["score"] = "–"
    for name, value in values.items():
        if isinstance(value, float):
            values[name] = f"{value:.4g}"
    return _said(_REASONS[reason.code], language).format_map(values)


def _filter_text(values: Mapping[str, object], language: Language) -> str:
    name = str(values["filter"])
    text = _said(_FILTERS[name], language) if name in _FILTERS else name
    parts = []
    if "asked" in values:
        parts.append(("asked for " if language == "en" else "要求 ") + str(values["asked"]))
    if "found" in values:
        parts.append(("it has " if language == "en" else "实际 ") + str(values["found"]))
    opening, closing, end = (" (", ")", ".") if language == "en" else ("（", "）", "。")
    lead = "A filter keeps it out: " if language == "en" else "被过滤条件排除："
    comma = ", " if language == "en" else "，"
    return lead + text + (opening + comma.join(parts) + closing if parts else "") + end


def why_not_text(why: WhyNot, language: Language = "en") -> str:
    """Why a row did not come back, a reason a line."""
    head = f"{why.id} for “{why.query}”:" if language == "en" else f"{why.id}，查询「{why.query}」："
    return "\n".join([head, *(f"  - {reason_text(reason, language)}" for reason in why.reasons)])


def hit_lines(explanation: Explanation, language: Language = "en") -> Iterator[str]:
    """How one row stood, a leg a line."""
    english = language == "en"
    for leg, report in explanation.legs.items():
        yield _leg_line(leg, report, language)
    if explanation.tokens:
        joined = _words(explanation.tokens, language)
        yield f"matched: {joined}" if english else f"匹配的词：{joined}"
    for name, factor in explanation.factors.items():
        yield f"{name}: times {factor:.4f}" if english else f"{name}：乘以 {factor:.4f}"
    rule = explanation.visible_by
    yield f"visible: {rule}" if english else f"可见：{_RULES.get(rule, rule)}"
    if explanation.sources:
        yield ("made from: " if english else "来源：") + ", ".join(explanation.sources)


def _leg_line(leg: str, report: LegReport, language: Language) -> str:
    score = beside = note = ""
    if language == "en":
        if report.score is not None:
            score = f", score {report.score:.4g}"
        if report.with_neighbours is not None and report.with_neighbours != report.score:
            beside = f" ({report.with_neighbours:.4g} with the turns beside it)"
        if report.note:
            note = f"; {report.note}"
        return f"{leg}: rank {report.rank}{score}{beside}, adds {report.term:.4f}{note}"
    if report.score is not None:
        score = f"，得分 {report.score:.4g}"
    if report.with_neighbours is not None and report.with_neighbours != report.score:
        beside = f"（连同相邻发言 {report.with_neighbours:.4g}）"
    if report.note:
        note = f"；{_NOTES.get(report.note, report.note)}"
    return f"{_leg(leg, language)}：第 {report.rank} 位{score}{beside}，贡献 {report.term:.4f}{note}"


def recall_lines(recall: Recall, language: Language = "en") -> Iterator[str]:
    """A recall as a whole: what was looked for, what each leg brought, and the candidates that were not returned."""
    whole = recall.explanation
    if whole is None:
        return
    yield from _question_lines(whole, language)
    yield from _summary_lines(whole, language)
    left = [candidate for candidate in whole.candidates if candidate.outcome != "returned"]
    if left:
        yield "also looked at:" if language == "en" else "其他候选："
    for candidate in left:
        yield "  " + _candidate_line(candidate, language)


def _question_lines(whole: RecallExplanation, language: Language) -> Iterator[str]:
    english = language == "en"
    words = _words(whole.words, language) or ("nothing" if english else "无")
    yield f"looked for: {words}" if english else f"检索的词：{words}"
    if whole.left_out:
        left_out = _words(whole.left_out, language)
        yield f"left out, without meaning of their own: {left_out}" if english else f"忽略的虚词：{left_out}"
    if whole.sentences:
        count = len(whole.sentences)
        yield f"also asked by its {count} sentences" if english else f"并逐句检索：{count} 句"
    filters = (", " if english else "，").join(f"{name}={value}" for name, value in whole.filters)
    yield f"within: {filters}" if english else f"范围：{filters}"


def _summary_lines(whole: RecallExplanation, language: Language) -> Iterator[str]:
    english = language == "en"
    for leg, summary in whole.legs.items():
        extra = ""
        if summary.model is not None:
            extra += f", model {summary.model}" if english else f"，模型 {summary.model}"
        if summary.floor is not None:
            extra += f", floor {summary.floor:.4g}" if english else f"，下限 {summary.floor:.4g}"
        if leg == "text" and whole.coverage is not None:
            part = f"{whole.coverage:.0%}"
            extra += (
                f" (its best row holds {part} of the words)" if english else f"（最佳一条含 {part} 的词）"
            )
        yield (
            f"{leg} leg: brought {summary.brought}, asked for {summary.asked}, weight {summary.weight:.2f}{extra}"
            if english
            else f"{_leg(leg, language)}路：取回 {summary.brought} 条（上限 {summary.asked}），权重 {summary.weight:.2f}{extra}"
        )


def _candidate_line(candidate: CandidateReport, language: Language) -> str:
    outcome = _said(_OUTCOMES[candidate.outcome], language).format(of=candidate.duplicate_of)
    legs = ", ".join(
        f"{_leg(leg, language)} {report.rank}" for leg, report in candidate.explanation.legs.items()
    )
    return (
        f"{candidate.place}. {candidate.score:.4f}  {candidate.id}  [{legs}]  {outcome}: {candidate.excerpt}"
    )


def replay_lines(replay: Replay, language: Language = "en") -> Iterator[str]:
    """What is not as it was when a recall was stored."""
    english = language == "en"
    if replay.same:
        yield "the answer is the same" if english else "结果与当时相同"
        return
    yield f"{len(replay.differences)} differences:" if english else f"{len(replay.differences)} 处不同："
    for difference in replay.differences:
        yield "  " + _difference_line(difference, language)


def _difference_line(difference: Difference, language: Language) -> str:
    then = "–" if difference.rank_then is None else str(difference.rank_then)
    now = "–" if difference.rank_now is None else str(difference.rank_now)
    reasons = (" " if language == "en" else "").join(
        reason_text(reason, language) for reason in difference.reasons
    )
    return f"{difference.id or ''} {then} → {now}  {reasons}".strip()
