"""What the user does for a living. He has one job at a time: news of another replaces what was known of the old one."""

import re
from dataclasses import dataclass
from functools import lru_cache

from memstore.pipelines.rules.chinese_words import JOBS as CHINESE_JOBS
from memstore.pipelines.rules.english_words import JOBS as ENGLISH_JOBS
from memstore.pipelines.rules.places import CHINESE_PLACES
from memstore.pipelines.rules.stances import Relation
from memstore.pipelines.rules.statement import clauses, read

_WHO = "(?:(?:我|用户|本人)(?:本人)?|(?:the )?user|i(?:'m| am)?)?"
_ZH = re.compile(
    rf"(?:(?:我|用户|本人))?(?:现在|目前|如今|已经|刚|最近|主要|一直)*(?:"
    rf"(?:在|于|去了|到了)\s?(?P<at>[^，,。；]{{1,24}}?)\s?(?:(?:工作|上班|任职|就职|供职|教书)|(?:当|做|担任|任|教|搞)(?:了|一?[名个位])?\s?(?P<role>[^，,。；了]{{1,20}}))(?:了|的|多年|[^，,。]{{1,3}}年了?)?"
    rf"|(?:是|当|做|任)(?:了|一?[名个位])?\s?(?P<role2>[^，,。；的了]{{0,12}}?(?:{CHINESE_JOBS}|撰稿人|柜员|研究员|[a-z]{{2,20}}(?: [a-z]{{2,20}})?))(?:了|的)?"
    rf"|(?:改行|转行|改做|转做)(?:去|当|做|搞|干)*(?P<role3>[^，,。；了]{{1,12}}?)了?"
    rf"|(?:跳槽|换|跳|转|入职|加入)(?:到了?|去了?|了)?\s?(?P<at2>[^，,。；了]{{2,20}}?)\s?(?:工作|上班)?了?(?:当|做)?"
    r")(?:[，,].{0,40})?$"
)
_EN = re.compile(
    r"(?:i|(?:the )?user|we)(?:'m| am| is)? ?(?:now |currently |just |recently )*(?:"
    r"(?:works?|working|employed) (?:at|for|in|by) (?P<at>[^,;.]{2,40}?)(?: as (?:an? )?(?P<role>[^,;.]{2,40}))?"
    rf"|(?:works? as|working as|became|was promoted to|got promoted to)? ?(?:an? |the )?(?P<role2>(?:[\w-]+ ){{0,3}}{ENGLISH_JOBS})(?: (?:at|for|in|with) (?P<at2>[^,;.]{{2,40}}?))?"
    r"|(?:joined|at|with|started at|started working at|moved to work at) (?P<at3>[a-z0-9][^,;.]{1,40}?)(?: as (?:an? )?(?P<role3>[^,;.]{2,40}))?"
    r")(?: now)?(?:,.{0,60})?$"
)
_NEWS = re.compile(
    "现在|如今|跳槽|换到|换成|转到|转行|改行|离职|入职|加入|换工作|新工作|去了|到了|刚|不再|\\b(?:now|joined|new job|switched|left|started|became|promoted|recently|just)\\b"
)
_PAST = re.compile(
    "以前|曾|之前(?!说)|原来|想|打算|希望|如果|准备|计划|可能|副业|兼职|实习过|也在|\\b(?:used to|worked|former|want|plan|might|would|part-time|side|also|volunteers?)\\b"
)
_BESIDES = re.compile("并|而且|同时|还|喜欢|住|养|\\b(?:and|with|while)\\b")
"""The text says something else too, which would be lost."""
_NOT_WORK = re.compile(
    rf"^(?:{CHINESE_PLACES}$|家|学|读|北方|南方|海边|外|一起|线上|周|晚|早|国外|这|那|home\b|peace|trouble|the (?:office|gym|park)|night|[\d:]+$)|上学|读书|长大|(?:座位|房间|宿舍|群|社|队|班|课|会|俱乐部|健身房|版本|楼|桌|页|家|床|号|套餐)$|^(?:my|our|his|her|this|that|it|you)\b"
    r"|\b(?:gym|choir|band|club|team|class|church|group|party|league|course|parents|family|friends|wife|husband|waitlist|call|meeting|chat|server|channel|army reserve|protest|strike)\b"
)
_LEFT_ZH = re.compile("从?(?P<zh>[^，,。从]{1,12}?)(?:离职|辞职|辞了|被裁)")


@dataclass(frozen=True, slots=True)
class Job:
    """``news``: it is told as new."""

    place: frozenset[str]
    role: frozenset[str]
    news: bool


@lru_cache(maxsize=2_048)
def job(text: str) -> Job | None:
    """The user's present job, where the text tells of it."""
    normal = read(text).text.strip(" .。!！")
    if not read(text).tokens or _PAST.search(normal) or read(text).negations:
        return None
    pattern = _EN if normal.isascii() else _ZH
    spoken = re.sub(r"^(?:update|更新)\s?(?:一下)?[:：]\s?", "", normal)
    parts = [spoken, *re.split("[,，](?! )", spoken)]
    found = next((match for part in parts if (match := pattern.match(part)) is not None), None)
    if found is None:
        return None
    groups = found.groupdict()
    place = next((groups[name] for name in ("at", "at2", "at3") if groups.get(name)), "")
    role = next((groups[name] for name in ("role", "role2", "role3") if groups.get(name)), "")
    if place and _NOT_WORK.search(place):
        place = ""
    return Job(_words(place), _words(role), bool(_NEWS.search(normal))) if place or role else None


def _words(text: str) -> frozenset[str]:
    return frozenset(read(text).topics) - {"一家", "家", "company", "公司", "a"} or frozenset(
        read(text).topics
    )


def compare(new: str, old: str) -> Relation | None:
    """Whether the new text tells of another job than the old one, or of the same more exactly."""
    one, other = job(new), job(old)
    if one is None or other is None or clauses(old) > 1 or _BESIDES.search(read(old).text):
        return None
    if one.place == other.place and one.role == other.role:
        return "more" if clauses(new) > 1 else "same"
    if _within(other.place, one.place) and _within(other.role, one.role):
        return "more"
    if not one.news or one.place & other.place:
        return None
    elsewhere = bool(one.place and other.place)
    as_another = bool(one.role and other.role and one.role != other.role)
    return "instead" if elsewhere or as_another else None


def _within(old: frozenset[str], new: frozenset[str]) -> bool:
    return old <= new
