"""What a Chinese clause says of the speaker: traits, and changes of them."""

import re
from datetime import datetime

from memstore.pipelines.rules.candidates import (
    ALLERGY,
    CHANGE,
    FAMILY,
    HABIT,
    HEALTH,
    IDENTITY,
    PREFERENCE,
    TOOLS,
    Candidate,
    Rule,
)
from memstore.pipelines.rules.chinese_lives import LIVES, OWN
from memstore.pipelines.rules.chinese_states import BARE_NEWS, STATES, TOLD_AS_HABIT
from memstore.pipelines.rules.chinese_words import (
    ADVERBS,
    CHANGING,
    FIELDS,
    HABITS,
    ILLNESSES,
    JOBS,
    ME,
    NAME,
    OBJECT,
    PART_OF_DAY,
    PLACE,
    RELATIVES,
    REQUEST,
    SKILLS,
    TOOL_LIST,
    WE,
    without_dates,
)
from memstore.pipelines.rules.dates import resolve
from memstore.types import Kind

_MOMENTARY = re.compile(
    "今天|今晚|今早|刚才|刚刚|这次|这回|本次|一会儿?|待会儿?|马上|暂时|这会儿|这两天|这几天|明天|昨天|昨晚|此刻|先(?=用|吃|喝|不)|有点|快要?(?![0-9一二两三四五六七八九十]|餐|递|乐|充|节奏)|差不多|又(?!喜)"
)
_FORMERLY = re.compile(
    "以前|曾经|过去(?!的)|小时候|当年|原来|从前|那时|当时|大学时|年轻时|刚开始|一开始|本来"
)


def _rule(pattern: str, priority: int, kind: Kind = "persona") -> Rule:
    return Rule(re.compile(pattern), kind, priority)


_PERSONA = (
    _rule(rf"{ME}?{ADVERBS}对(?P<o>[^，。我你他她]{{1,20}}?){ADVERBS}(?:严重|重度|轻度|轻微|有点|有些)?过敏(?:的?体质)?$", ALLERGY),
    _rule(rf"{ME}{ADVERBS}有?[^，。你他她的]{{1,10}}(?:过敏|不耐受)(?:症|体质)?$", ALLERGY),
    _rule(rf"{ME}{ADVERBS}(?:是(?:个|一个)?)?(?:素食主义者|素食者|纯素(?:食者)?|吃素(?:的)?|吃纯素|吃清真(?:的)?|穆斯林|左撇子|乙糖不耐|乳糖不耐受?|麸质不耐受?|色盲|色弱|夜盲|近视[^，。]{{0,6}})$", HEALTH),
    _rule(rf"{ME}{ADVERBS}(?:有|患有?|得了|查出了?|确诊了?)[^，。没]{{0,6}}(?:{ILLNESSES})[^，。]{{0,6}}$", HEALTH),
    _rule(rf"{ME}(?:的(?:真名|全名))?(?:就)?(?:叫|名叫|姓)(?!(?:了|外卖|车|他|她|你|醒|救护|快递|上|过|不|什么|个|人|滴滴|代驾|停|板|做|得|好|大家)){NAME}$", IDENTITY),
    _rule(rf"(?:大家|朋友们?|同事们?|别人|家里人|家人)(?:一般|平时|通常)?都?叫我(?!去|来|起|别|不|先|做|怎){NAME}$", IDENTITY),
    _rule(rf"{ME}(?:们)?(?:一家)?(?:家|全家)?{ADVERBS}(?:住在|家住|家在|定居在?|定居于|常住|租住在|借住在|生活在|人在(?=[\u4e00-\u9fff]{{2,6}}(?:工作|生活|上学|定居)?$)){PLACE}(?:了|生活|工作)?$", IDENTITY),
    _rule(rf"{ME}(?:们)?(?:一家|全家|家)?{CHANGING}*(?:已经|刚刚?)?(?:从[^，。]{{1,10}})?(?:搬到|搬去|搬来|搬家到|搬回|移居|移民到?|回)了?(?!家|来|去|复|答|头|想|到家){PLACE}(?:了|住了|定居了|生活了)?$", IDENTITY),
    _rule(rf"{ME}住(?!院|酒店|宾馆|过|了|一|两|几|不|得|进|在|校外|惯)(?P<o>[\u4e00-\u9fff]{{2,10}}(?:区|市|路|街|镇|县|村|苑|城|小区|附近|边|楼|京|海|州|圳|汉|都))$", IDENTITY),
    _rule(rf"{ME}{ADVERBS}(?:来自|老家(?:在|是)|家乡(?:在|是)|籍贯(?:是|在)?|祖籍|出生在|出生于|生于|生在|(?:从小)?(?:长大在|在(?=[^，。]{{2,10}}长大)))(?P<o>[^，。]{{2,20}})$", IDENTITY),
    _rule(rf"{ME}是(?!好|坏|普通|个|成年|一个|负责|病|新|年轻|中年|老|大|外星|什么|有|穷|打工|局外|机器|自己|中间|当事|聪明|善良|怎)(?P<o>[\u4e00-\u9fff]{{2,5}}人)$", IDENTITY),
    _rule(rf"{ME}{ADVERBS}(?:是|当|做|任|担任|从事)(?:了)?(?:一)?(?:名|个|位|家)?(?P<o>[^，。不没你他她]{{0,20}}?(?:{JOBS}))(?:的|[^，。]{{0,2}}年了?)?$", IDENTITY),
    _rule(rf"{ME}{ADVERBS}在(?!努力|认真|拼命|疯狂|忙|想|等|准备|[^，。]{0,2}一家公司|当前|现在|公司)(?P<o>[^，。]{{2,24}}?)(?:工作|上班|实习|任职|就职|读书|读研|读博|读大[一二三四]|上学|教书|(?:当|做|担任)[^，。]{{0,12}}?(?:{JOBS})|做[^，。]{{1,16}}|读[^，。]{{2,10}})(?:了?[^，。]{{1,3}}年了?)?$", IDENTITY),
    _rule(rf"{ME}{ADVERBS}是?(?:做|搞|干)(?P<o>(?!(?:什么|这|那))[^，。了]{{1,14}})的$", IDENTITY),
    _rule(rf"{ME}最(?:喜欢|爱|讨厌|常用|拿手|擅长|崇拜|欣赏|在意|看重)的?[^，。这那]{{1,12}}(?:是|就是)(?P<o>(?!这|那|你|他|她|它)[^，。]{{1,30}})$", PREFERENCE),
    _rule(rf"{ME}{ADVERBS}(?:就职于|任职于|供职于|毕业于|毕业自|就读于|主修|辅修|学的是|读的是|本科读的?|大学学的?|从事|负责(?!任)|带(?=[^，。]{{0,8}}团队)|管理(?=[^，。]{{0,8}}团队))(?P<o>{OBJECT})$", IDENTITY),
    _rule(rf"{ME}{CHANGING}*(?:跳槽到|跳槽去|转岗到?|转行做|转做|入职|加入|升任|升职(?:为|成|做)?|升为|晋升为|升(?=了?[^，。]{{0,6}}(?:{JOBS})))了?(?P<o>(?!群|这|那|你)[^，。]{{2,20}})$", IDENTITY),
    _rule(rf"{ME}的?(?:{FIELDS})(?:一般|一直|现在|目前|已经)?(?:是|叫|在|为|换成了?|改成了?|改为了?|：|:)(?P<o>(?!不|没|问题|这|那|坏|怎|他|她|你|真|很|好|太)[^，。]{{1,40}})$", IDENTITY),
    _rule(rf"{ME}(?:今年)?(?:已经|刚满?|快)?[0-9一二三四五六七八九十]{{1,4}}岁了?$", IDENTITY),
    _rule(rf"{ME}(?:的?生日(?:是|在)*(?P<o>[^，。]{{0,10}}[0-9一二三四五六七八九十]{{1,3}}(?:月|号|日)[^，。那当]{{0,8}})|(?:是)?[^，。你他她]{{2,14}}(?:出生的?|生的|生人)|属[鼠牛虎兔龙蛇马羊猴鸡狗猪]的?|是?[\u4e00-\u9fff]{{2}}座的?|身高[^，。]{{2,8}}|体重[^，。]{{2,8}}|(?:是)?(?:A|B|O|AB)型血|(?:已婚|未婚|单身|离异|离婚了|结婚[^，。]{{0,6}}年了?)|是?(?:INTJ|INTP|ENTJ|ENTP|INFJ|INFP|ENFJ|ENFP|ISTJ|ISFJ|ESTJ|ESFJ|ISTP|ISFP|ESTP|ESFP))$", IDENTITY),
    _rule(rf"{ME}们?家?的?(?:{RELATIVES})(?:们)?{ADVERBS}(?:的?名字)?(?:的名字)?的?(?:叫|名叫|今年|住在|家在|对[^，。]{{1,12}}过敏|喜欢|不吃|爱吃|属|生日|在[^，。]{{2,16}}(?:工作|上班|读书|上学|上[^，。]{{1,6}}|读[^，。]{{1,6}})|上(?:小学|初中|高中|大学|幼儿园)|是[^，。]{{0,10}}(?:{JOBS}|人)|[0-9一二三四五六七八九十两]{{1,3}}个?[岁月])[^，。]{{0,30}}$", FAMILY),
    _rule(rf"{ME}们?(?:[和跟][^，。]{{1,4}})?家?(?:里)?{ADVERBS}(?:有|养了?|领养了|生了|捡了)[^，。没]{{0,3}}?(?:[一二两三四五六0-9]|几)(?:个|只|条|位|对|匹|缸)[^，。]{{0,10}}?(?:{RELATIVES}|鱼|龟|鸟|马)[^，。]{{0,14}}$", FAMILY),
    _rule(rf"{ME}{CHANGING}*(?:已经)?(?:不再|再也不|戒了|戒掉了?|戒(?=[烟酒糖]))(?P<o>(?!相信|理|说|想|犹豫|废话|管|问)[^，。]{{1,24}})$", CHANGE),
    _rule(rf"{ME}(?:们)?{CHANGING}*{ADVERBS}(?:改用|改吃|改喝|改学|改骑|改坐|改做|改游|换用|换成|换到|换了(?=[^，。]{{2,}})|切换到|切到|迁移到|迁到|转到|转用|转投|从[^，。]{{1,20}}?(?:换|转|切|迁|改)(?:移|成|到|为|用)了?)(?!这|那|你|他|衣)(?P<o>[^，。]{{1,30}})$", CHANGE),
    _rule(r"[^，。你他她您]{0,8}(?:之?后|以来|开始)我?改(?P<o>[^，。到成在期天口]{1,12})了?$", CHANGE),
    _rule(rf"{ME}{CHANGING}*{ADVERBS}不(?:喝|吃|用|玩|抽|跑|住|做|养|写|学|打)(?P<o>(?!了|着|到|起|上|下|完|好|来|惯|出|动|过|得|饱|多)[^，。]{{1,16}})了$", CHANGE),
    _rule(rf"{ME}{ADVERBS}(?:更)?(?:喜欢|喜爱|热爱|偏爱|偏好|偏向于?|钟爱|爱好|讨厌|不喜欢|不太喜欢|不太爱|不怎么爱|不大爱|不太能(?=吃|喝)|反感|厌恶|受不了|不爱|最爱|爱(?=吃|喝|看|听|玩|打|跑|逛|用|种|做|收集|旅游|运动|摄影|读|写)|只吃|只喝|只用|不吃|不喝|不太能吃|不太吃|不怎么吃|吃不惯|喝不惯|吃不了|喝不了|不能吃|不能喝|忌口|从不|从来不|倾向于|看重|重视|崇尚|信奉|沉迷|迷上了?|爱上了?|信(?=佛|教|基督|伊斯兰|天主|道教)|痴迷于?|着迷于|习惯(?:了|于)?(?=[^，。]{{2,}})|怕(?=黑$|高$|狗$|猫$|蛇$|虫$|虫子$|热$|冷$|辣$|水$|鬼$|打针$|吵$|蜘蛛$|坐飞机$)|恐高|晕车|晕船|晕血|追求|注重){OBJECT}$", PREFERENCE),
    _rule(rf"{ME}{ADVERBS}(?:恐高|晕车|晕船|晕血|晕机|怕(?:黑|高|狗|猫|蛇|虫子?|热|冷|辣|水|鬼|打针|吵|蜘蛛|坐飞机)|社恐|内向|外向|路痴|夜猫子|早起型|无辣不欢|(?:是)?(?:个)?(?:夜猫子|吃货|路痴|社恐|完美主义者|极简主义者|无神论者|佛教徒|基督徒|球迷|[^，。你]{{1,12}}(?:爱好者|发烧友|粉丝|球迷|迷)))$", PREFERENCE),
    _rule(r"(?:平时|一般|从来|从小|向来|一直|一向|特别|非常|最|更|很)?(?:喜欢|讨厌|不喜欢|爱吃|爱喝|不吃|不喝|只喝|只吃|偏爱|偏好|热爱|忌口)" + OBJECT + "$", PREFERENCE),
    _rule(rf"{ME}(?:们?(?:公司|团队|组|项目组?|部门|这边|\s?team\s?)?)?(?:在)?{ADVERBS}(?:主要|平时|日常|都|一直|目前|现在|是|在)?(?:使用|在用|用惯了|用的?是?|写|跑在|部署在|习惯用)\s?{TOOL_LIST}(?:\s?(?:来|做|写|开发|编程|管理|记|办公|工作|画|剪|跑|当|为主|比较多|输入法|手机|电脑|系统|浏览器|笔记本)[^，。了过]{{0,12}})?(?:\s?(?:而?不用|不是)\s?{TOOL_LIST})?$", TOOLS),
    _rule(rf"(?:{ME}(?:们?(?:公司|团队|组|项目组?|部门|这边|\s?team\s?)?)?)?(?:平时|平常|日常|主要|一般|通常|习惯|工作中|工作上|一直)(?:都|是|主要|在|只)*(?:用|使用|写)(?!了|过|完|的)(?P<o>(?!你|它|他|她|这|那)[^，。了]{{1,30}})$", TOOLS),
    _rule(rf"(?:{WE})?的?(?:主力(?:语言|机|编辑器)|技术栈|编辑器|数据库|后端|前端|开发环境|操作系统)(?:一直|主要|现在|目前|统一|都)*(?:是|用的?是?|为)\s?{TOOL_LIST}$", TOOLS),
    _rule(rf"{ME}{ADVERBS}(?:擅长|精通|熟悉|熟练掌握|拿手的?是?|专攻|能说|会讲|自学(?:了|过)?|正在学|在学|最近在学|学过|懂(?=[A-Za-z]|一点|一些|[日英法德韩俄]语)|(?:不太?)?会(?={SKILLS})){OBJECT}$", PREFERENCE),
    _rule(rf"{ME}?(?:一般|通常|基本上?|坚持|习惯|都|平时)*每(?:隔)?(?:[一二两三四五六七0-9]{{1,2}}|半|个)*(?:天|日|晚|早|年|月|个?周末|周|星期|礼拜)[一二三四五六日天末、和]*(?:早上|上午|中午|下午|傍晚|晚上|清晨|睡前|饭后|早|晚)*(?:[0-9一二三四五六七八九十两]{{1,3}}点半?)?我?(?:都|会|必|要|得|只|至少|坚持|固定|雷打不动|准时|一定|还)*(?:[^，。你您他她它]{{0,6}})?(?:{HABITS})[^，。了]{{0,24}}$", HABIT),
    _rule(rf"{ME}{ADVERBS}(?:(?:一般|通常|平时|习惯|都|基本上?|每天)*(?:是|在|会)?)(?:{PART_OF_DAY})?(?:[0-9一二三四五六七八九十两]{{1,3}}点(?:半|多|左右)?)(?:才|就|左右)?(?:起床?|睡觉?|吃(?:早|午|晚)饭|上班|下班|出门|午睡|跑步|锻炼|健身)[^，。了]{{0,12}}$", HABIT),
    _rule(rf"{ME}{CHANGING}*(?:在|开始)*(?:学习?|练|自学|备考|跑步|健身|减肥|吃素|冥想)(?!会|到|校|生|术|员|的|不|完)(?P<o>(?!了|这|那|你|怎)[^，。了]{{0,20}})$", PREFERENCE),
    _rule(rf"(?:(?:写代码|开发|工作|办公|出行|上班|写文章|做饭)(?:时|的时候)?)?{ME}(?:们)?(?:平时|一般)?习惯(?:了|于)?(?:用|使用|早|晚|在|先|喝|吃|写|睡|边)[^，。了]{{1,30}}$", HABIT),
    _rule(rf"{ME}(?:经常|常常|总是|习惯(?:了)?|坚持|周末(?:一般|通常|经常|常|都|喜欢)*(?:会)?|睡前|早上|下班后|午饭后)(?:一般|通常|会|都|要|先|在|每[天周])*(?:{HABITS})(?!死|了)[^，。了]{{1,24}}$", HABIT),
)  # fmt: skip
_RULES = (*_PERSONA, *STATES, *LIVES)
_CHOICE = re.compile(
    "[这那](?:部|个|种|些|本|位|首|样|里|次|件|杯|条|张|道|只|家|天|段|款)|第[一二三四五两0-9]+[个种版]|方案|选项|版本|前者|后者|写法|姿势"
)
"""Who reads a memory by itself cannot know what was chosen."""

_ELIDED = re.compile(
    "住|在|是|做|养|有|没|当|叫|姓|对|来自|老家|毕业|会|擅长|用|写|负责|今年|属|不再|改|戒|从|家|换|喜欢|讨厌|不|平|爱|只|偏|热|忌|每|一|特|非|最|更|很|日|主|习|也|还|目前|现在|生日|懂|精通|熟悉|正在|单身|已婚|恐高|晕|怕|看重|经常|常|周末|从事|主修|就职|任职|入职|跳槽|搬|来|之前|主要|从小|干|教|学|读|身高|体重|胃|腰|睡眠|周[一二三四五]到|早[六七八九]|英语|日语|数学|月薪|工作日"
)
_ACQUAINTANCE = re.compile(
    f"{ME}们?的?(?:一个|有个|几个)?(?:朋友|同事|同学|邻居|闺蜜|哥们|同桌|学生|客户|徒弟|师傅|老乡|队友|网友|前任|老师)"
)
_STATE_IN_TIME = re.compile(r"搬|改|换|戒|入职|跳槽|转|加入|升|不再|生了|养|离婚|结婚|确诊|查出")


def subject_of(clause: str) -> str | None:
    """Whom a clause is about, where it says so; what follows without a subject is about the same."""
    if re.match(
        rf"(?:{ME}们?家?的?(?:{RELATIVES})|{ME}的?(?:知道|觉得|认为|听|看到|朋友|同事|同学|邻居|闺蜜|哥们|同桌|学生|客户|徒弟|师傅|老乡|队友|男神|女神|偶像)|你|您|他|她|它|这|那|(?!我|{OWN.pattern})[\u4e00-\u9fff]{{2,3}}(?:说|喜欢|是))",
        clause,
    ):
        return (
            "other"
            if not re.match("平时|一般|一直|从来|非常|特别|现在|目前|已经|其实|主要|最近|我也?喜欢", clause)
            else None
        )
    return "me" if re.match(ME, clause) or BARE_NEWS.match(clause) else None


def object_of(clause: str) -> re.Match[str] | None:
    """The match of a persona rule whose group ``o`` a correction may replace."""
    for rule in _RULES:
        found = rule.pattern.match(clause)
        if found and "o" in rule.pattern.groupindex and found["o"]:
            return found
    return None


def trait(clause: str, at: datetime, subject: str | None) -> Candidate | None:
    if _FORMERLY.search(clause) or (_MOMENTARY.search(clause) and not _STATE_IN_TIME.search(clause)):
        return None
    if (
        REQUEST.match(clause)
        or _ACQUAINTANCE.match(clause)
        or re.search("(?:时|的时候|之后|以后|后)$", clause)
        or (subject == "other" and "我" not in clause and not OWN.match(clause))
    ):
        return None
    if re.match("我们?把[它这那]", clause):
        return None
    dates = resolve(clause, at)
    if any(found.start > at and not found.full for found in dates) and not re.search(
        "生日|一般|通常|平时|习惯|都|每|喜欢|经常|常常", clause
    ):
        return None  # 我下个月搬到上海 is a plan, not yet a state
    content = clause
    if subject == "me" and "我" not in clause and _ELIDED.match(clause):
        content = "我" + clause  # 我住在杭州，平时写 Go: the second stands by itself as 我平时写 Go
    if TOLD_AS_HABIT.pattern.fullmatch(content):
        return Candidate(content, "persona", TOLD_AS_HABIT.priority)
    head = content.partition("，")[0]
    spoken = without_dates(head, at) if dates and _STATE_IN_TIME.search(head) else head
    for text in dict.fromkeys((head, spoken)):
        for rule in _RULES:
            if rule.pattern.match(text):
                pointing = rule.priority in (PREFERENCE, HABIT, CHANGE) and _CHOICE.search(text)
                return None if pointing else Candidate(content, rule.kind, rule.priority)
    return None
