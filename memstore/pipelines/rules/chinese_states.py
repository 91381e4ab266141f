"""What a Chinese clause says of the speaker's circumstances: home, work, household, what he has not and cannot do, in
the short forms in which news is told (搬家啦，现在住苏州了). Patterns alone; ``chinese_traits`` decides with them."""

import re

from memstore.pipelines.rules.candidates import (
    ALLERGY,
    CHANGE,
    FAMILY,
    HABIT,
    HEALTH,
    IDENTITY,
    PREFERENCE,
    Rule,
)
from memstore.pipelines.rules.chinese_words import ADVERBS, ILLNESSES, JOBS, ME, OBJECT, RELATIVES
from memstore.pipelines.rules.places import CHINESE_PLACES


def _rule(pattern: str, priority: int) -> Rule:
    return Rule(re.compile(pattern), "persona", priority)


_NOW = "(?:现在|目前|如今|眼下|已经|最近|刚刚?|都)"
_NO_HOME = "(?!院|校|酒店|宾馆|民宿|旅馆|青旅|宿舍|[得的了着过不惯进手口户处所下满起哪这那一两几第上前后左右别另]|同一|隔壁|多久|家里|朋友)"
_HOME = rf"(?:{CHINESE_PLACES}|{_NO_HOME}[\u4e00-\u9fffA-Za-z]{{2,12}}?)"
_TOWN = rf"(?:{CHINESE_PLACES}|{_NO_HOME}[\u4e00-\u9fff]{{1,8}}?(?:区|市|县|镇|路|街|城|苑|小区|新家|州|海|京|园))"
_NO_WORKPLACE = "(?!家|公司|办公室|单位|学校|外面|路上|楼[上下]|图书馆|宿舍|线上|这|那|网上|本地|一个(?!公司|团队|项目组|部门)|忙|努力|认真|想|准备)"
_FIELD = (
    rf"(?:[^，。不没你他她]{{0,14}}(?:{JOBS}|开发|设计|运营|分析|研究|测试|产品|市场|销售|财务|行政|运维|算法|前端|后端|客服|策划|管理|咨询|审计|投资|教研|培训|采购|法务|人事|招聘|编程|科研|售后|品控|撰稿人?|写手|外贸|电商|新媒体)"
    r"|[A-Za-z][A-Za-z +#./-]{1,30})"
)
_COMPANY = rf"{_NO_WORKPLACE}[^，。了]{{1,20}}?"
_LACKED = (
    "驾照|驾驶证|驾本|车|私家车|房子?|孩子|小孩|娃|宠物|猫|狗|对象|男朋友|女朋友|兄弟姐妹|兄弟|姐妹|工作|信用卡|护照|签证|微信|电视|烤箱|微波炉|洗碗机|洗衣机|空调|冰箱|电梯|医保|社保|户口|宗教信仰|信仰"
    "|食物过敏|过敏史|忌口|不良嗜好|编程基础|英语基础|美术基础|基础|工作经验|管理经验|经验|智能手机|电脑|学位|存款|贷款|房贷|车贷"
)
_CERTIFICATE = "(?:证书?|资格证?|资格|执照|驾照|绿卡|学位|专利|[A-Z]{2,5}证?|N ?[1-5]|[四六八]级|雅思[^，。]{0,6}|托福[^，。]{0,6})"
_TASTE = "[辣甜酸咸苦淡油冷热冰]"
_OWNED = "(?:家|们?小区|们?公司|们?宿舍|们?学校|们?办公室|的车|的?店|的?房子|租的?房子?|的?房东)"

STATES = (
    _rule(rf"(?:{ME}(?:们|们?一家|们?全家|家)?)?{_NOW}{{1,3}}住(?:在|到)?(?P<o>{_HOME})(?:了|这边|那边)*$", IDENTITY),
    _rule(rf"{ME}(?:们?一家|们?全家|家)?住(?P<o>{CHINESE_PLACES}[^，。了]{{0,8}})(?:了|这边|那边)*$", IDENTITY),
    _rule(rf"{ME}(?:们?一家|们?全家|家)?(?:人|现在|目前|也|都)*(?:还|一直|已经|仍然?|依然|常年|长期|人)在(?P<o>{CHINESE_PLACES})(?:了|这边|那边|呢)*$", IDENTITY),
    _rule(rf"人(?:现在|已经|还)?在(?P<o>{CHINESE_PLACES})(?:了|这边)*$", IDENTITY),
    _rule(rf"(?:{ME}们?(?:一家|全家)?)?{_NOW}*(?:从[^，。]{{1,10}})?(?:搬到|搬去|搬来|搬回)了?(?P<o>(?![^，。]{{0,8}}(?:服务器|[库盘云上]|目录|文件|平台|分支|机房|集群|文档)了?$){_TOWN})(?:来|去|住|定居)?了$", IDENTITY),
    _rule(rf"(?:{ME})?{_NOW}{{1,3}}(?:在|去了|到了)\s?(?P<o>{_COMPANY}\s?(?:(?:当|担任|任|做)(?:了|一?[名个位])?\s?{_FIELD}))(?:了|的)?$", IDENTITY),
    _rule(rf"{ME}{ADVERBS}在\s?(?P<o>{_COMPANY}\s?(?:(?:当|担任|任|做)(?:了|一?[名个位])?\s?{_FIELD}|教[^，。了]{{1,8}}))(?:的)?$", IDENTITY),
    _rule(rf"(?:{ME})?{_NOW}{{1,3}}(?:是|当|做|任)(?:了|一?[名个位])?\s?(?P<o>{_FIELD})(?:了|的)?$", IDENTITY),
    _rule(rf"(?:{ME}{_NOW}*换|(?:{ME})?{_NOW}*跳槽)(?:到了?|去了?|成了?)\s?(?P<o>(?!第|下|上|这|那|别的|其他|前面|后面|方案)[^，。了]{{2,20}}?)\s?(?:工作|上班)?了(?:{_FIELD})?$", CHANGE),
    _rule(rf"{ME}{ADVERBS}(?:不太|不怎么|完全不|根本不|压根不|不)会(?:说|讲)?\s?(?P<o>开车|骑车|骑自行车|游泳|做饭|做菜|喝酒|抽烟|打麻将|跳舞|唱歌|编程|写代码|化妆|滑雪|下棋|用电脑|[A-Za-z][\w+#.-]{{0,14}}|[英日法德韩俄粤][语文]|普通话|乐器)$", PREFERENCE),
    _rule(rf"(?:{ME}们?家?|家里?){ADVERBS}没有?(?:任何|什么)?(?P<o>{_LACKED})$", IDENTITY),
    _rule(rf"{ME}{ADVERBS}(?:开|喝|吃|坐|闻|爬|游|提|熬)不了(?P<o>(?!了|这|那|多少|几|口|会|头|机)[^，。了]{{1,12}})$", PREFERENCE),
    _rule(rf"{ME}{ADVERBS}(?:(?:从来?|早就|早已)?不(?:抽烟|吸烟|喝酒|开车|熬夜|化妆|做饭|追星|运动|吃辣|养|碰|沾|看(?=电视|恐怖|新闻|短视频|综艺|动漫|球)|玩(?=游戏|手游|抖音|微博|短视频))(?P<o>[^，。了]{{0,12}})了?|(?:滴酒|烟酒)不沾)$", PREFERENCE),
    _rule(rf"{ME}{ADVERBS}(?:还)?(?:持有|考了|考出了?|考取了?|拿了|拿到了?|有|考过了?|过了|通过了?|取得了?)(?P<o>[^，。没问]{{0,16}}{_CERTIFICATE})$", IDENTITY),
    _rule(rf"[^，。你他她这那我]{{0,6}}{_TASTE}的?我(?:倒是?|都|也|其实|反而|就)*(?:无所谓|都?能吃|都?可以|都?行|能接受|受不了|不行|不吃|吃不了|怕|不喜欢|喜欢|爱吃)$", PREFERENCE),
    _rule(r"(?P<o>(?!什么|所以|但|因为|以后|现在|其实|今|明|昨|[^，。]{0,6}(?:太|很|有点))[^，。你他她这那我]{1,8}?)我(?:从来|从小|一直|真的|倒是?|最|也|都|是真)*(?:不吃|不喝|不喜欢吃?|不爱吃?|喜欢吃|爱吃|受不了|过敏|讨厌|吃不了|喝不了|不能吃|不能喝)$", PREFERENCE),
    _rule(rf"{ME}一(?:吃|喝|闻到?|碰到?)(?P<o>[^，。]{{1,8}})就(?:过敏|拉肚子|起疹子|胃痛|胃疼|吐|头疼|头痛)$", HEALTH),
    _rule(rf"{ME}{ADVERBS}偏(?:爱|好|向|向于)?(?P<o>{OBJECT})(?:一点|一些|多一点)$", PREFERENCE),
    _rule(rf"(?:{ME}们?家|家里人?){ADVERBS}(?:做菜|做饭|吃饭|口味|吃得)?(?:都)?(?:偏|比较|爱吃|不吃|爱喝|不喝|吃得)(?P<o>[^，。了忙乱穷近远吵]{{1,10}})$", PREFERENCE),
    _rule(rf"{ME}(?:上下班|上班|下班|通勤|出门|出行)(?:都|一般|主要|通常|基本)*是?(?:坐|骑|开|走|打|靠)(?P<o>[^，。了]{{1,12}})$", HABIT),
    _rule(rf"{ME}(?:现在|目前|已经|最近)?(?:长期|常年|经常|常常|总是|老是)(?:会)?(?:失眠|熬夜|上?夜班|上早班|倒班|出差|加班|便秘|偏头痛|头痛|胃疼|胃痛|腰疼|腰痛)$", HABIT),
    _rule(rf"{ME}{ADVERBS}(?:是)?(?:一个人|独自|[和跟与][^，。]{{1,8}}一起|[和跟与][^，。]{{1,8}}(?=合租))(?:住|生活|居住|租房|合租)(?:的)?$", IDENTITY),
    _rule(rf"{ME}{ADVERBS}(?:是|在)?(?:远程办公|远程工作|居家办公|在家办公|自由职业|全职在家|(?:fully )?remote|独居|单身|已婚|未婚|离异|离婚|丁克)了?(?:的)?$", IDENTITY),
    _rule(rf"{ME}是(?P<o>[^，。你他她]{{2,16}})(?:毕业|科班出身)的?$", IDENTITY),
    _rule(rf"{ME}{ADVERBS}(?:长期|常年)?(?:{ILLNESSES})(?:患者|很?严重)?$", HEALTH),
    _rule(rf"{ME}们?家?的?(?:{RELATIVES}){ADVERBS}(?:是[^，。]{{0,6}}(?:做|搞|教)[^，。]{{1,10}}的|(?:有|患有?|得了)[^，。没]{{0,6}}(?:{ILLNESSES})|不(?:吃|喝|会|能吃)[^，。了]{{1,10}}|(?:已经)?退休了?|会[^，。了]{{1,10}})$", FAMILY),
    _rule(rf"{ME}们?家?(?:里)?{ADVERBS}有(?:一)?(?:对|双|个)?[^，。没]{{0,6}}(?:双胞胎|龙凤胎)[^，。]{{0,6}}$", FAMILY),
    _rule(rf"{ME}(?:们)?[^，。：我]{{0,8}}?(?:有[个条]?|的)?(?:规矩|规定|原则|底线|要求|习惯)(?:是|：|:)(?P<o>(?!这|那|什么)[^，。]{{3,40}})$", PREFERENCE),
    _rule(rf"{ME}{_OWNED}(?:里|内|上)?(?:都)?(?:不能|不可以|不让|不许|禁止|不准|不允许|可以|允许)(?P<o>[^，。了吗]{{2,16}})$", PREFERENCE),
    _rule(rf"{ME}\s?{ADVERBS}\s?(?:对\s?)?allergic to\s?(?P<o>[^，。]{{1,20}})$", ALLERGY),
    _rule(rf"{ME}\s?{ADVERBS}\s?(?:是|am)?\s?(?:an? )?(?:vegan|vegetarian|pescatarian|lactose intolerant|gluten free|left-handed|INFP|INTJ|introvert|extrovert)(?:的)?$", HEALTH),
    _rule(rf"{ME}\s?{ADVERBS}\s?(?:based|living|live|work|working|study|studying|intern) (?:in|at|for)\s?(?P<o>[^，。]{{2,24}})$", IDENTITY),
    _rule(rf"{ME}\s?{ADVERBS}\s?(?:prefer|love|hate|enjoy|don['’]t like)\s(?P<o>(?!it|this|that|you|这|那|你)[^，。]{{2,24}})$", PREFERENCE),
    _rule(rf"(?:{ME})?{_NOW}{{1,3}}(?:自己|在家|全职)*(?:开(?:店|公司|餐馆|饭店|工作室|民宿|网店)|创业|做生意|带娃|带孩子|待业|失业|读研|读博|读大[一二三四]|上大[一二三四]|退休|备考|考研)(?:了|中|在家)*$", IDENTITY),
    _rule(rf"{ME}{ADVERBS}(?:还)?没(?:有)?(?:结婚|结过婚|生孩子|要孩子|谈过恋爱|买房|买车|工作过|(?:学|去|坐|出|考|养|用)过(?!了)[^，。]{{0,8}})$", IDENTITY),
    _rule(rf"{ME}们?家?有(?:个|一个|两个|三个|俩)[^，。没]{{0,3}}(?:{RELATIVES})[^，。了]{{0,14}}$", FAMILY),
    _rule(rf"{ME}们家(?:有)?[一两二三四五六]个(?:孩子|人|娃|老人|女儿|儿子)$", FAMILY),
    _rule(rf"{ME}老家(?:是|在)?{CHINESE_PLACES}[^，。了]{{0,6}}$", IDENTITY),
    _rule(rf"{ME}(?:现在|已经)*怀孕(?:了|[^，。]{{1,6}}个?[月周]了?)$", HEALTH),
    _rule(rf"{ME}有[^，。你他她这那没]{{1,14}}的习惯$", HABIT),
    _rule(rf"{ME}的?[左右]?(?:耳朵?|眼睛?|胃|腰|膝盖|颈椎|心脏|皮肤|血压|血糖|血脂|尿酸|视力|听力|肠胃|腿脚|睡眠|口味|酒量|性格|脾气|记性|方向感)(?:一直|比较|很|不太|从小|也|都|最近)*(?:不好|不行|差|弱|偏?高|偏?低|敏感|听不见|看不见|失聪|失明|清淡|偏?[甜辣咸重淡]|不便|大|小|急|内向|外向|浅)$", HEALTH),
    _rule(rf"{ME}{ADVERBS}(?:(?:坐|用)轮椅|戴(?:助听器|眼镜|隐形眼镜|牙套|假牙)|拄拐杖?)(?:的)?$", HEALTH),
    _rule(rf"{ME}(?:现在|目前)*人?(?:现在|目前|还)*在\s?(?P<o>(?!Chrome|Excel|VS|Vim|Git|Docker|Linux|Windows|Word|Slack|Teams)[A-Z][a-z]{{3,14}}(?: [A-Z][a-z]{{2,12}})?)(?:了|这边)*$", IDENTITY),
    _rule(rf"家里?(?:现在|还|一共)*(?:有|养了?)[一两二三四五六][只条个匹][^，。没]{{0,6}}(?:{RELATIVES}|老人|孩子)$", FAMILY),
    _rule(rf"{ME}(?:还|也|现在)*有(?:房贷|车贷|贷款|(?:一|两|三)?(?:辆|套)?(?:车|房)子?|医保|社保|信用卡)$", IDENTITY),
    _rule(rf"{ME}的?(?:英语|英文|日语|数学|口语|语文|编程|画画|记忆力|体力)(?:一直|不太|不怎么|比较|很|挺)*(?:不好|不行|好|差|弱|一般|流利|不错)$", PREFERENCE),
    _rule(rf"{ME}(?:大学|本科|研究生|硕士|博士)?(?:时)?(?:读|学)的(?:是)?(?P<o>(?!这|那|什么|时候)[^，。了]{{2,12}})$", IDENTITY),
    _rule(rf"{ME}是[\u4e00-\u9fff]{{1,4}}族(?:人)?$", IDENTITY),
    _rule(r"[^，。]{4,30}，(?:我(?:一直|向来|一贯|从来|多年)?(?:都|以来)?(?:就)?(?:是|有)?这(?:个|么个|样的?|种)?(?:习惯|做法|规矩|原则|讲究)|这(?:一直)?是我(?:一直|一贯|多年)?(?:以来)?的?(?:习惯|原则|做法|规矩))$", HABIT),
)  # fmt: skip
"""What is told as a habit by the clause behind it (…，我一直是这个习惯) is matched whole, the rest by its first clause."""
TOLD_AS_HABIT = STATES[-1]
BARE_NEWS = re.compile(
    r"(?:我(?:们)?)?(?:刚刚?|最近|终于|又|已经|上周|上个?月)*(?:搬家|跳槽|换工作|换公司|离职|辞职|转行|转岗|升职|毕业|改行|换城市|退休)(?:成功)?[了啦]+$"
)
"""News of the speaker without himself: what follows is about him."""
