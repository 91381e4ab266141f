"""Attributes that have one value at a time, read from the phrasings that name them: home, employer, phone, budget, …

What many people have several of (favourites, skills, languages, allergies, pets, children) is none of them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from memstore.pipelines.rules.numerals import plain_numbers
from memstore.pipelines.rules.places import CHINESE_PLACES
from memstore.pipelines.rules.statement import AND, WHEN, read
from memstore.text import normalise

_PLACE = re.compile(rf"{CHINESE_PLACES}(?:的)?$|.{{1,6}}(?:市|省|县|区|镇|国|地|里|楼|上|下)$")
_PROFESSIONS_ZH = "师|员|医生|护士|经理|总监|律师|教授|学生|编辑|记者|警察|主管|助理|顾问|研究员|负责人|架构师|ceo|cto|hr|创始人"
_PROFESSIONS_EN = (
    r"(?:\w+ ){0,3}(?:engineer|developer|teacher|nurse|doctor|manager|designer|lawyer|professor|student|editor|journalist"
    r"|consultant|analyst|scientist|accountant|chef|director|architect|researcher|programmer|writer|lead|officer|ceo|cto)"
)
_RELATIONS_ZH = "经理|领导|老板|上司|导师|班主任|座位|房间|办公室|时区|网址|密码|负责人|最(?:喜欢|爱)的[^，。是]{1,6}?|主分支|默认分支|医生|室友|月租"
_RELATIONS_EN = (
    r"(?:manager|boss|supervisor|team lead|advisor|therapist|roommate|favou?rite \w+|time ?zone|website|blog|password|seat|room|office"
    r"|default branch|flight|owner)"
)
_LANGUAGE = "(?:简体|繁体)?中文|英文|英语|日文|日语|法语|德语|韩语|汉语|西班牙语|chinese|english|japanese|french|german|korean|spanish"
_TO_ZH = "(?:(?:已经?|刚|现在|目前|最近)*(?:改|换|变|更新|调整|提高|增加|涨|升|上调|降低?|减少?|下调|缩减|削减|追加)(?:成|为|到|至)了?)"
_TO_EN = r"(?:(?:has |have |was |been |is |got )*(?:changed|raised|increased|upped|cut|reduced|lowered|updated|moved) (?:from [^,;]+? )?to|is now|are now)"

_TENTATIVE = re.compile(
    "打算|计划|准备|想(?!起|法)|希望|可能|也许|或许|如果|要是|假如|万一|考虑|即将|将来|将(?=于|在|搬|会|要)|以后会|下个?月|下周|明年"
    "|差点|本来|以前|曾|小时候|原来|过去|之前|上学时|梦见|听说|据说|临时|暂时|出差|旅游|度假|短住"
    r"|\b(?:would|might|may|could|plans?|planning|wants?|hopes?|if|unless|going to|will|used to|formerly|previously|almost"
    r"|considering|thinking|maybe|perhaps|temporarily|dream\w*|lived|worked|(?:was|were)(?! promoted)|once|next (?:week|month|year)|as a child)\b"
)
_ADDED = re.compile(
    r"也|(?<!归)还(?!是)|同时|另外|另一|兼|第二|副业|\b(?:also|too|as well|second|another|in addition|besides|side|part-time)\b"
)
_CHANGED = re.compile(
    r"现在|如今|目前|已经|改|换|变|更新|新(?=的)|不再|跳槽|转行|升|\b(?:now|changed|switched|no longer|new|became|promoted|instead|recently)\b"
)
_SENTENCES = re.compile(r"[。；;！？!?\n]|\.(?=\s|$)|[，](?!\d)|\bbut\b|\band now\b|但是?|如今|(?=现在)")


@dataclass(frozen=True, slots=True)
class Claim:
    """A value that an attribute is said to have.

    :param owner: whose or which, in words; empty for the user's own and only one.
    :param changed: the text says that it was another before.
    :param added: the text says that it is one more.
    """

    attribute: str
    owner: tuple[str, ...]
    value: tuple[str, ...]
    changed: bool
    added: bool


@dataclass(frozen=True, slots=True)
class _Phrasing:
    """``own``: only of the user's own is there one. ``must_change``: without a word of change there may be several."""

    attribute: str
    pattern: re.Pattern[str]
    own: bool = False
    must_change: bool = False
    lasting: bool = True
    digits: bool = False
    refused: re.Pattern[str] | None = None


def _phrasing(attribute: str, pattern: str, refused: str = "", **options: bool) -> _Phrasing:
    return _Phrasing(
        attribute, re.compile(pattern), refused=re.compile(refused) if refused else None, **options
    )


_NO_HOME = "酒店|宾馆|医院|朋友|民宿|旅馆|宿舍|家里|一起|楼|公司|山上|海边|装修|施工|办|吃|打|修|停|搬"
_NO_HOME_EN = (
    r"(?:the|a|an|my|our|his|her|another|next|new (?:house|home|flat|place|apartment|city|office|job|team)|this|that|team|department|postgres\w*|mysql|sqlite|vim|vs ?code|linux|windows"
    r"|macos|docker|kubernetes|python|rust|go|typescript|aws|gcp|azure|github|gitlab|slack|teams|notion|@\S+|on|tears|\d\S*)\b"
)
_END_ZH = "(?=居住|生活|工作|上班|定居|常住|了|的房|$|，|,|、|[(（]|一年|\\d|，)"
_END_EN = r"(?=$|[;.(]| (?:with|since|and|because|for|near|together|now|last|this|in|as|after|where|when|permanently|full|again|yesterday|today|from|to|at|on|by)\b|@)"
_NO_EMPLOYER = "家|外|远程|线上|户外|早|晚|夜|周|白天|工作日|咖啡|同一|一起|办公室|团队|深夜"

_PHRASINGS = (
    _phrasing(
        "home",
        rf"(?P<owner>.*?)(?:从[^，。从]{{1,12}}?)?(?:现居住?(?:在|于)?|居住(?:在|于)|居住地(?:是|为)|住在|家住|家在|定居(?:在|于)|常驻"
        rf"|(?P<new>搬(?:家)?(?:到|去|至|进|回)了?|住到了?|移居到?|迁(?:居)?(?:到|至)了?))(?P<value>[^，。]{{1,20}}?){_END_ZH}",
        _NO_HOME,
    ),
    _phrasing(
        "home",
        r"(?P<owner>.*?)\b(?:lives?|living|resides?|(?:is|am|are|'m) based|home is|settled|has lived|have lived"
        r"|(?P<new>moved(?: from [a-z .]+?)?|relocated(?: from [a-z .]+?)?))"
        rf" (?:back )?(?:in|to)(?<!moved in) (?P<value>[a-z][a-z .,'-]{{1,40}}?){_END_EN}",
        _NO_HOME_EN,
    ),
    _phrasing(
        "employer",
        rf"(?P<owner>.*?)(?:从[^，。从]{{1,12}}?)?(?:(?:任职于|就职于|供职于|公司是|就职公司是)|(?P<new>入职了?|跳槽(?:到|去)了?|换到|离职去了?))(?P<value>[^，。]{{1,20}}?){_END_ZH}",
        ".*(?:座位|房间|宿舍|群|队|班|课|版本|楼|桌|页|床|号|套餐)$",
    ),
    _phrasing(
        "employer",
        r"(?P<owner>.*?)(?:在|于)(?P<value>[^，。在]{1,16}?)(?:工作|上班|任职|就职|供职|实习)(?:了|$|，|,)",
        f"^(?:{_NO_EMPLOYER})|{_PLACE.pattern}",
    ),
    _phrasing(
        "employer",
        r"(?P<owner>.*?)\b(?:works? (?:at|for)|working (?:at|for)|job at|employed (?:by|at)|employer is"
        rf"|(?P<new>joined|started (?:working )?at|got hired by|(?:left|quit) [\w .]+? (?:to join|for))) (?P<value>[a-z0-9][\w .&'-]{{1,40}}?){_END_EN}",
        r"(?:home|night|\d|a |an |the (?:office|weekend|club|gym|choir|band)|least|my|our|fun|free|myself|peace|weekends|us\b|me\b)",
    ),
    _phrasing(
        "role",
        r"(?P<owner>.*?)(?:职业|岗位|职位|职务|职称)(?:(?:现在)?(?:是|为)|(?P<new>"
        + _TO_ZH
        + r"))(?P<value>[^，。]{1,20}?)(?:了|$)",
    ),
    _phrasing(
        "role",
        rf"(?P<owner>.*?)(?:(?:是|做|当)(?:一[名个位])?|(?P<new>升(?:职|任)?为|晋升(?:为|到)|升任|升职(?:为|到|成)|转岗(?:为|到|做)|(?:转|改)行(?:做|当)|改做|转做))"
        rf"(?:了|一[名个位])*(?P<value>[^，。的]{{0,10}}(?:{_PROFESSIONS_ZH}))(?:了|工作|$)",
        must_change=True,
    ),
    _phrasing(
        "role",
        r"(?P<owner>.*?)\b(?:works as|work as|working as|(?:job|job title|title|profession|role|position) is|(?P<new>(?:was |been |got )?promoted to|became|became a|switched careers to|is now|am now|'m now))"
        rf" (?:an? )?(?P<value>{_PROFESSIONS_EN}){_END_EN}",
    ),
    *(
        _phrasing(
            name,
            rf"(?P<owner>.*?)(?:{words})(?:号码|号|地址)?(?:(?:现在)?(?:是|为|:|：)|(?P<new>{_TO_ZH}))?(?P<value>{value}) ?(?:了|$|，)",
            digits=name != "address",
        )
        for name, words, value in (
            ("phone", "手机|电话|座机|联系方式", r" ?\+?\d[\d -]{4,20}"),
            ("email", "邮箱|电子邮件|邮件地址|e-?mail", r" ?[\w.+-]+@[\w.-]+"),
            ("messenger", "微信|qq", r" ?[\w-]{5,30}"),
            ("address", "收货|收件|家庭|公司|办公|通讯", r"[^，。是为]{4,40}"),
            ("plate", "车牌|工号|学号|员工", r" ?[\w·-]{3,12}"),
        )
    ),
    *(
        _phrasing(
            name, rf"(?P<owner>.*?)\b(?:{words})(?: (?:is|=)|:| (?P<new>{_TO_EN})) (?P<value>{value})(?:$|[,;. ])"
        )
        for name, words, value in (
            ("phone", "(?:phone|mobile|cell|telephone)(?: number)?|number", r"\+?[\d(][\d ()-]{4,20}"),
            ("email", "e-?mail(?: address)?", r"[\w.+-]+@[\w.-]*\w"),
            ("address", "(?:shipping|home|delivery|postal|office|street) address", r"[^;]{4,60}"),
        )
    ),
    _phrasing(
        "name",
        r"(?P<owner>^(?:我|用户|本人)?(?:现在)?)(?:的?(?:真实)?(?:名字|姓名|全名)(?:叫|是|为)|叫做?|名叫|(?P<new>改名(?:叫|为|成)?))(?P<value>[^，。的我小老阿][^，。的我]{1,7})$",
        own=True,
    ),
    _phrasing(
        "name", r"(?P<owner>^(?:(?:my|the|user's|the user's) )?)(?:full )?name is(?P<new> now)? (?P<value>[a-z][\w' -]{1,30})$", own=True
    ),
    _phrasing("what it is called", r"(?P<owner>.{2,16}?)(?:叫做?|名叫|(?P<new>改名(?:叫|为|成)|改叫))(?P<value>[^，。]{1,8})$"),
    _phrasing(
        "the same relation",
        rf"(?P<owner>.*?(?:{_RELATIONS_ZH}))(?:(?:现在|目前|已经)*(?:是|为|叫|在)|(?:从[^，。从]{{1,20}}?)?(?P<new>{_TO_ZH}))(?P<value>[^，。]{{1,24}}?)(?:了|$)",
    ),
    _phrasing(
        "the same relation",
        rf"(?P<owner>.*?\b(?:{_RELATIONS_EN}))(?: (?P<new>is now|{_TO_EN})| is| (?P<new2>{_TO_EN}))(?P<value> [^,;.]{{1,30}}|\s?\S+)$",
    ),
    *(
        _phrasing(
            f"device: {name}",
            rf"(?P<owner>^(?:我|用户)?)(?:现在)?(?:用)?(?:的)?(?:{name})(?:型号)?(?:(?:现在)?(?:是|用的?是?)|(?P<new>{_TO_ZH}))(?P<value>[^，。]{{2,16}}?)(?:了|$)",
            own=True,
        )
        for name in ("手机", "电脑", "平板", "相机", "车")
    ),
    _phrasing(
        "job of",
        rf"(?P<owner>.*?\b(?:wife|husband|partner|son|daughter|mother|mom|mum|father|dad|brother|sister|girlfriend|boyfriend)) (?:is|works as)(?P<new> now)? (?:an? )?(?P<value>{_PROFESSIONS_EN})(?: now)?$",
    ),
    _phrasing(
        "school",
        r"(?P<owner>^(?:i|the user|user)?'?m?)(?: is| am)? ?(?:stud(?:y|ies)|studying|(?:a )?student|goes to college|(?P<new>transferred)) (?:at|to) (?P<value>[a-z][\w .&'-]{1,30}?)(?: now)?$",
        own=True,
    ),
    _phrasing(
        "where it runs",
        r"(?P<owner>.{2,16}?)(?:部署|托管|运行|跑)在(?P<value>[^，。]{2,16}?)(?:上|$)(?P<new>\b\B)?",
    ),
    _phrasing("where it runs", r"(?P<owner>.{2,16}?)(?:从[^，。从]+?)?(?:已经?)?(?P<new>(?:迁移|迁|切换)(?:到|至)了?)(?P<value>[^，。]{2,16}?)(?:上?了?$)"),
    _phrasing(
        "where it runs",
        r"(?P<owner>.*?) (?:is |are |was )?(?:hosted|deployed|runs|running|(?P<new>(?:has been |have been )?(?:migrated|moved)(?: from \S+)?)) (?:on|in|at|to) (?P<value>[^,;.]{2,24})$",
    ),
    _phrasing(
        "form of address",
        r"(?P<owner>^(?:请|以后|今后|从现在起|用户希望|用户要求|希望|被)*)(?:(?P<new>改)?(?:叫|称呼?)(?:我|用户|他|她)(?:为|作|做)?)(?P<value>[^，。的]{1,8}?)(?:就好|就行|即可|吧|$)",
        own=True,
    ),
    _phrasing(
        "form of address",
        r"(?P<owner>^.*?)\b(?:call me|goes by|prefers to be called|wants to be called|call the user|address me as|call them) (?P<value>[a-z][\w'-]{1,20}(?: [a-z]\w+)?)(?: (?P<new>from now on|now|instead))?$",
        own=True,
        lasting=False,
    ),
    _phrasing(
        "nickname", rf"(?P<owner>^.*?)(?:昵称|网名|英文名|外号|小名|笔名)(?:叫|是|为|(?P<new>{_TO_ZH}))(?P<value>[^，。]{{1,12}}?)(?:了|$)"
    ),
    _phrasing("nickname", rf"(?P<owner>^.*?)\b(?:nickname|username|pen name)(?: is| (?P<new>{_TO_EN})) (?P<value>[\w'-]{{2,20}})"),
    *(
        _phrasing(
            name,
            rf"(?P<owner>.*?)(?:{words})(?:(?:总额|总共|上限|目标)?(?:目前|现在)?(?:是|为|有|控制在|定为|大概|大约|约|只有|:|：)*|(?:从[^，。从]{{1,20}}?)?(?P<new>{_TO_ZH}))"
            r"(?P<value>\s?[¥$€]?\d[\d.]*[^，。]{0,6}?)(?:了|左右|$|，)",
            digits=True,
            lasting=False,
        )
        for name, words in (
            ("budget", "预算"), ("weight", "体重"), ("target", "目标"), ("height", "身高"),
            ("pay", "月薪|年薪|工资|薪水"), ("rent", "房租|租金"), ("price", "价格|定价|单价|报价"),
        )
    ),
    *(
        _phrasing(
            name,
            rf"(?P<owner>.*?)\b(?:{words})(?P<rest> (?:for|of) (?:the )?[a-z ]+?)?(?: (?:is|of|at|:|stands at|will be)|:| (?P<new>{_TO_EN}))"
            r"(?: about| around| now)? (?P<value>[¥$€£]?\d[\d.]*[^,;.]{0,8}?)(?:$|[,;. ])",
            digits=True,
            lasting=False,
        )
        for name, words in (
            ("budget", "budget"), ("weight", "weight"), ("target", "target|goal"), ("pay", "salary"), ("rent", "rent"), ("price", "price"),
        )
    ),
    _phrasing("age", r"(?P<owner>^(?:我|用户|本人)?)(?:今年|现在|年龄是?|已经|马上|刚满|快){0,2} ?(?P<value>\d{2,3}) ?(?:周?岁|(?=了$))(?:了|$)(?P<new>\b\B)?", own=True),
    _phrasing("age of", r"(?P<owner>^.{2,8}?)(?:今年|现在|已经|才|刚满?|刚)* ?(?P<value>\d{1,3}) ?周?岁(?:了|$)(?P<new>\b\B)?"),
    _phrasing("age", r"(?P<owner>^.*?)\b(?:is|am|'m|i'm|turned)(?: now| just turned)? (?P<value>\d{1,3})(?: years old| y/o)?(?: now| today| already)?$(?P<new>\b\B)?", own=True),
    _phrasing("birthday", r"(?P<owner>^.*?)生日(?:是|在)(?P<value>@?[^，。]{2,12})$(?P<new>\b\B)?", own=True),
    _phrasing("birthday", r"(?P<owner>^.*?)\bbirthday is (?:on )?(?P<value>[^,;.]{3,20})$(?P<new>\b\B)?", own=True),
    *(
        _phrasing(
            "deadline",
            pattern,
            lasting=False,
        )
        for pattern in (
            rf"(?P<owner>.*?)(?:截止日期|截止时间|交付日期|ddl|上线时间|上线日期|发布日期|发布时间)(?:是|为|在|:|(?:从[^，。从]{{1,20}}?)?(?P<new>{_TO_ZH}|(?:推迟|延期|提前|延后|顺延)(?:到|至)))(?P<value>[^，。]{{2,16}}?)(?:了|$)",
            rf"(?P<owner>.*?)\b(?:deadline|due date|release date|launch date)(?P<rest> for (?:the )?[a-z ]+?)?(?: is| (?P<new>{_TO_EN}|(?:was |is |has been )?(?:extended|postponed|pushed(?: back)?|brought forward) to))(?: on)? (?P<value>[^,;.]{{3,24}})$",
        )
    ),
    _phrasing("marital status", r"(?P<owner>^.*?)(?:目前|现在|是|已经|刚)*(?P<value>单身|已婚|未婚|离婚|离异|结婚|订婚)了?$(?P<new>\b\B)?", own=True),
    _phrasing(
        "marital status", r"(?P<owner>^.*?)\b(?:is|am|'m|got|are)(?: now| currently| just)? (?P<value>single|married|divorced|engaged)(?: now)?$(?P<new>\b\B)?", own=True
    ),
    _phrasing(
        "diet",
        r"(?P<owner>^.*?)(?:现在|目前|是|开始|恢复|已经|改|又)*(?P<value>吃素|素食者|素食主义者|纯素食者|纯素|吃肉|生酮饮食|杂食)了?$(?P<new>\b\B)?",
        own=True,
    ),
    _phrasing(
        "diet",
        r"(?P<owner>^.*?)\b(?:is|am|'m|became|went|turned|started|eats?)(?: now| a| an| back to| eating| strict| again)* (?P<value>vegetarian|vegan|pescatarian|keto|meat|omnivore)(?: now| again)?$(?P<new>\b\B)?",
        own=True,
    ),
    _phrasing(
        "language of replies",
        rf"(?P<owner>^.*?)(?:改)?(?:用|使用|以)(?P<value>{_LANGUAGE})(?:来)?(?P<rest>[^，。]{{0,8}}(?:回答|回复|答复|交流|沟通|写|对话|聊天|输出)[^，。]{{0,8}})$(?P<new>\b\B)?",
        lasting=False,
    ),
    _phrasing(
        "language of replies",
        rf"(?P<owner>^.*?)\b(?P<rest>(?:repl(?:y|ies)|respon(?:d|ses?)|answers?|write|speak|talk|communicate)(?: [a-z]+){{0,4}}?) (?:back )?in (?P<value>{_LANGUAGE})(?P<new> now| from now on| instead)?$",
        lasting=False,
    ),
)  # fmt: skip
CHANGED_ONLY = frozenset(
    {
        "job of",
        "school",
        *(f"device: {name}" for name in ("手机", "电脑", "平板", "相机", "车")),
        "what it is called",
        "the same relation",
        "where it runs",
    }
)
"""Of these there may be several, unless the text says that it changed."""
_NO_OWNER = frozenset(
    """
    因 因为 由于 工作 原因 全家 一家 家 家人 刚 刚刚 最近 上 年 份 于 后 毕业 因工作 终于 正式 名字 后来 have has who current new this
    full recent just final recently-ed at in then born and I finally to
    """.split()  # noqa: SIM905
)


@lru_cache(maxsize=2_048)
def claims(text: str) -> tuple[Claim, ...]:
    """The values that a text states; those of plans, guesses and the past are none."""
    return tuple(_claims(text))


def _claims(text: str) -> Iterator[Claim]:
    whole = read(text)
    if not whole.tokens:
        return
    normal = plain_numbers(" ".join(normalise(text).replace("’", "'").split()))
    for sentence in filter(None, (part.strip(" ,.，") for part in _SENTENCES.split(normal))):
        for phrasing in _PHRASINGS:
            claim = _claim(phrasing, sentence)
            if claim is not None:
                yield claim


def _claim(phrasing: _Phrasing, sentence: str) -> Claim | None:
    found = phrasing.pattern.match(sentence)
    if found is None or (phrasing.lasting and _TENTATIVE.search(sentence)):
        return None
    value = found["value"].strip(" ,.:：")
    if not value or (phrasing.refused is not None and phrasing.refused.match(value)):
        return None
    if phrasing.digits and not any(c.isdigit() or c == "@" for c in value):
        return None
    rest = found["rest"] if "rest" in phrasing.pattern.groupindex else None
    owner = tuple(_owner(found["owner"])) + (read(rest).words if rest else ())
    if phrasing.own and owner:
        return None
    changed = bool("new" in phrasing.pattern.groupindex and found["new"]) or bool(_CHANGED.search(sentence))
    if phrasing.must_change and not changed and not found["owner"].strip():
        return None
    words = read(value).words or (value,)
    return Claim(phrasing.attribute, owner, words, changed, bool(_ADDED.search(sentence)))


def _owner(before: str) -> Iterator[str]:
    last = re.split("[,，:：]", before)[-1]
    for word in read(last).words:
        if (
            not word.startswith(WHEN)
            and word not in _NO_OWNER
            and word != AND
            and not word.isdigit()
            and word != "我"
        ):
            yield word
