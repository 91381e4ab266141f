"""What Chinese sentences say about the speaker, order from the assistant, or tell of events.

Every pattern is anchored at the beginning of a clause, where the speaker is the subject or is left out. A clause that
fits none says nothing to keep.
"""

import re
from collections.abc import Iterator
from datetime import datetime

from memstore.pipelines.rules.candidates import (
    ALLERGY,
    CHANGE,
    DEADLINE,
    DECISION,
    EVENT,
    FAMILY,
    HABIT,
    HEALTH,
    IDENTITY,
    INSTRUCTION,
    MAX_CLAUSE_CHARS,
    PREFERENCE,
    TOOLS,
    Candidate,
    Rule,
)
from memstore.pipelines.rules.corrections import corrected
from memstore.pipelines.rules.dates import repetitions, resolve
from memstore.pipelines.rules.own_words import Sentence
from memstore.types import Kind

_HAN = re.compile("[\u3400-\u9fff]")
_LATIN_WORD = re.compile("[A-Za-z]+")
_ENGLISH_BEGINS = re.compile(
    r"\W*(?:i|my|we|our|please|from|always|never|yesterday|tomorrow|the|call|don)\b", re.IGNORECASE
)
_CLAUSES = re.compile(r"[，,]\s*|\s{2,}|——+|(?<=[\u3400-\u9fff])\s(?=[我但不而另])")
_FILLER = re.compile(
    r"(?:好消息是|坏消息是|重点是|结果是|嗯+|哦+|噢|啊|唉|哎|诶|呃|额|那个|话说|对了|其实|另外|还有(?=我|，)|顺便(?:说一?下|一提)?|补充(?:一下|一点)?|说起来|总之|反正|然后|而且|不过|但是?|可是|"
    r"因为|由于|所以|因此|毕竟|你好呀?|您好|嗨|哈喽|早上好|晚上好|好的|好吧|好(?=[\s~]|$)|谢谢|是的|对的|行(?=\s|$)|ok|hi|hello|hey|btw|ps|"
    r"(?:请|麻烦|帮我|你要|你)*(?:记住|记一下|记下来?|备忘|记得(?=我)|注意|知会一下|告诉你一下|跟你说一?下|说一下|提醒一下)(?:了|一下|这个|一点|哦|啊)?|自我介绍一下|介绍一下自己?|如题)"
    r"[\s，,:：、~]*",
    re.IGNORECASE,
)
_TAIL = re.compile(r"(?:哦|噢|啊|呀|哈+|啦|嘛|呢|吧|的说|哟|嘞|~+|hh+|😀|😊|😂|🎉|😭|\s)+$")
_ASKING = re.compile(
    "吗|什么|怎么|怎样|如何|为何|为啥|哪[里儿个些种位家]?|谁|几[个点号时天次岁]|多少|多久|多大|是否|是不是|能不能|可不可以|有没有|要不要|会不会|好不好|行不行|对不对|"
    "该不该|么$|呢$|咋|啥"
)
_HYPOTHETICAL = re.compile(
    "如果|假如|假设|要是|万一|倘若|假使|若是|的话|除非|就算|即使|哪怕|也许|可能|大概(?!率)|或许|说不定|没准|估计|应该会|考虑|在想|想过|没想好|没决定|还没定|不确定|纠结|犹豫|"
    "真想|好想|多想|很想|希望|但愿|要能|梦想|幻想|巴不得|恨不得|总有一天|有一天|有机会|改天|有空|以后再|好像|似乎|据说|早知道|差点|本来想|本来打算|原本打算|宁愿"
)
_MOMENTARY = re.compile(
    "今天|今晚|今早|刚才|刚刚|这次|这回|本次|一会儿?|待会儿?|马上|暂时|这会儿|这两天|这几天|明天|昨天|昨晚|此刻|先(?=用|吃|喝|不)|有点|快要?|差不多|又(?!喜)"
)
_FORMERLY = re.compile(
    "以前|曾经|过去(?!的)|小时候|当年|原来|从前|那时|当时|大学时|年轻时|刚开始|一开始|本来"
)
_OTHERS = re.compile("(?:你|您|他|她|它|他们|她们|这|那|别人|有人|大家|人家)")

_I = "(?:我(?:本人|自己|个人)?|本人|俺)"
_PART_OF_DAY = "早上|上午|中午|下午|傍晚|晚上|夜里|凌晨|清晨"
_WE = "(?:我们?|我家|我们?(?:公司|团队|组|项目组?|部门|这边|小组|班|学校| ?team ?)|咱们?|公司|团队)"
_ADV = (
    "(?:现在|目前|一直|平时|平常|日常|通常|一般|最近|从小|也|都|还|真的|特别|非常|很|最|比较|更|已经|刚|刚刚|从来|从|基本上?|几乎|只|就|主要|其实|仍然|依然|"
    "其中|是真|超级?|尤其|挺|蛮|有时候?|经常|常常|总是|工作(?:中|上|里)?|写代码|开发|在家|周末|早上|晚上|平日|本来就|天生|长期|默认){0,3}"
)
_OBJECT = r"(?!(?:你|您|他|她|它|这|那|人家|别人|了|过|的(?!士)|死|上班|加班$|今天|昨天|明天))[^，。]{1,40}"
_PLACE = r"(?P<o>(?!(?:这|那|酒店|宾馆|医院|一起|同一|哪|隔壁))[^，。了]{2,24})"
_NAME = r"(?P<o>[\u4e00-\u9fff·]{2,5}|[A-Za-z][\w.\-· ]{0,24})"
_JOBS = (
    "工程师|程序员|开发者?|老师|教师|教授|讲师|医生|护士|律师|设计师|产品经理|经理|学生|大学生|研究生|博士生?|硕士生?|高中生|初中生|大[一二三四]|研[一二三]|运维|测试|架构师|会计|作家|作者|"
    "记者|编辑|销售|创业者|创始人|自由职业者?|主管|总监|研究员|科学家|翻译|厨师|司机|公务员|顾问|分析师|摄影师|博主|店长|老板|CEO|CTO|PM|HR|HRBP|DBA|SRE|负责人|组长|班长|"
    "演员|歌手|画家|插画师|建筑师|药师|药剂师|兽医|警察|军人|消防员|飞行员|空姐|导游|导演|运营|策划|教练|咨询师|全职(?:妈妈|爸爸|太太)|单亲(?:妈妈|爸爸)|家庭主妇|退休(?:教师|工人|干部)?"
)
_FAMILY_WORDS = (
    "女儿|儿子|老婆|妻子|太太|爱人|老公|丈夫|爸爸?|妈妈?|父亲|母亲|爷爷|奶奶|外公|外婆|姥姥|姥爷|哥哥?|姐姐?|弟弟?|妹妹?|孩子|宝宝|大女儿|小女儿|大儿子|小儿子|闺女|"
    "双胞胎|叔叔|婶婶|舅舅|舅妈|阿姨|姑姑|姑父|姨妈|姨父|伯父|伯母|岳父|岳母|公公|婆婆|表[哥姐弟妹]|堂[哥姐弟妹]|下属|上司|男朋友|男友|女朋友|女友|对象|未婚妻|未婚夫|家人|父母|爸妈|侄子|侄女|外甥女?|室友|导师|上级|老板|领导|(?:狗|猫|兔子|仓鼠|鹦鹉|乌龟|金毛|柯基|柴犬|泰迪|橘猫|布偶猫?|宠物)(?:狗|猫)?"
)
_LATIN = r"[A-Za-z][\w.+#/\-]*"
_TOOL = (
    rf"(?:{_LATIN}(?: [A-Za-z0-9][\w.+#/\-]*){{0,2}}|微信|飞书|钉钉|企业微信|苹果(?:手机|电脑)?|华为手机?|小米手机?|安卓(?:手机|机)?|双拼|五笔|小鹤双拼|搜狗输入法|机械键盘|谷歌浏览器|火狐|语雀|印象笔记|滴答清单|"
    r"支付宝|高德|网易云音乐?|腾讯云|阿里云)"
)
_TOOLS = rf"{_TOOL}(?:\s?[、和跟与/+及]\s?{_TOOL}){{0,4}}"
_FIELD_NOUNS = (
    "名字|全名|英文名|中文名|网名|昵称|小名|生日|星座|血型|身高|体重|爱好|兴趣|职业|工作|职位|岗位|职称|专业|母语|邮箱|电话|手机号|微信号?|时区|电脑|手机|编辑器|主力语言|技术栈|操作系统|系统|浏览器|输入法|"
    "偶像|座右铭|车|公司|部门|团队|项目|老家|家乡|籍贯|学校|母校|上级|导师|开发环境|主力机|鞋码|口味|家|网站|博客|国籍|信仰|价值观|原则|人生信条|目标|工作时间|作息|宠物|最爱|强项|弱项|特长|过敏原"
)
_HABIT_VERBS = "晨跑|夜跑|跑步?|起床|起|睡|喝|吃|健身|游泳|游|练|学|读|看|写|走|冥想|骑|通勤|遛|背|打|做|去|坐|爬|听|弹|画|锻炼|上瑜伽|瑜伽|午睡|早起|早睡|散步|开(?:组会|例会|周会|站会|会)|做饭|带|陪|接|送|给|和|跟|发|洗|复盘|记账|写日记|回|加班|上班|教|种|钓"
_HEALTH_WORDS = "糖尿病|高血压|低血压|哮喘|心脏病|胃病|胃炎|鼻炎|湿疹|痛风|贫血|近视|色盲|色弱|癫痫|抑郁症|焦虑症|失眠症?|偏头痛|颈椎病|腰椎间盘突出|腰突|关节炎|乙肝|甲减|甲亢|乳糖不耐受?|幽闭恐惧症|恐高症?|洁癖|强迫症|多动症"
_SKILLS = (
    "说|讲|弹|拉(?!黑|肚|屎)|吹|打(?:鼓|乒乓球|羽毛球|网球|篮球|高尔夫|太极|麻将)|开车|游泳|滑雪|滑冰|骑车|骑马|跳舞|唱|画|编程|做(?:饭|菜|蛋糕|面包|川菜|粤菜|PPT|饼干|甜点|咖啡)|修(?:车|电脑|图)|剪(?:视频|辑)|拍照|摄影|"
    rf"潜水|冲浪|攀岩|下(?:围棋|象棋|棋)|写(?:毛笔字|书法|小说|代码)|手语|盲打|速记|心算|{_LATIN}|(?:一点|一些|点儿?)?(?:英|日|法|德|韩|俄|西班牙|粤|闽南|葡萄牙|意大利|阿拉伯)[语文]"
)
_CHANGING = "(?:已经|现在|最近|今年|上个?月|去年|终于|刚刚?|从[^，。]{1,8}(?:开始|起))"


def _rule(pattern: str, priority: int, kind: Kind = "persona") -> Rule:
    return Rule(re.compile(pattern), kind, priority)


_PERSONA = (
    _rule(rf"{_I}?{_ADV}对(?P<o>[^，。我你他她]{{1,20}}?){_ADV}(?:严重|重度|轻度|轻微|有点|有些)?过敏(?:的?体质)?$", ALLERGY),
    _rule(rf"{_I}{_ADV}有?[^，。你他她的]{{1,10}}(?:过敏|不耐受)(?:症|体质)?$", ALLERGY),
    _rule(rf"{_I}{_ADV}(?:是(?:个|一个)?)?(?:素食主义者|素食者|纯素(?:食者)?|吃素(?:的)?|吃纯素|吃清真(?:的)?|穆斯林|左撇子|乙糖不耐|乳糖不耐受?|麸质不耐受?|色盲|色弱|夜盲|近视[^，。]{{0,6}})$", HEALTH),
    _rule(rf"{_I}{_ADV}(?:有|患有?|得了|查出了?|确诊了?)[^，。没]{{0,6}}(?:{_HEALTH_WORDS})[^，。]{{0,6}}$", HEALTH),
    _rule(rf"{_I}(?:的(?:真名|全名))?(?:就)?(?:叫|名叫|姓)(?!(?:了|外卖|车|他|她|你|醒|救护|快递|上|过|不|什么|个|人|滴滴|代驾|停|板|做|得|好|大家)){_NAME}$", IDENTITY),
    _rule(rf"(?:大家|朋友们?|同事们?|别人|家里人|家人)(?:一般|平时|通常)?都?叫我(?!去|来|起|别|不|先|做|怎){_NAME}$", IDENTITY),
    _rule(rf"{_I}(?:们)?(?:一家)?(?:家|全家)?{_ADV}(?:住在|家住|家在|定居在?|定居于|常住|租住在|借住在|生活在|人在(?=[\u4e00-\u9fff]{{2,6}}(?:工作|生活|上学|定居)?$)){_PLACE}(?:了|生活|工作)?$", IDENTITY),
    _rule(rf"{_I}(?:们)?(?:一家|全家|家)?{_CHANGING}*(?:已经|刚刚?)?(?:从[^，。]{{1,10}})?(?:搬到|搬去|搬来|搬家到|搬回|移居|移民到?|回)了?(?!家|来|去|复|答|头|想|到家){_PLACE}(?:了|住了|定居了|生活了)?$", IDENTITY),
    _rule(rf"{_I}住(?!院|酒店|宾馆|过|了|一|两|几|不|得|进|在|校外|惯)(?P<o>[\u4e00-\u9fff]{{2,10}}(?:区|市|路|街|镇|县|村|苑|城|小区|附近|边|楼|京|海|州|圳|汉|都))$", IDENTITY),
    _rule(rf"{_I}{_ADV}(?:来自|老家(?:在|是)|家乡(?:在|是)|籍贯(?:是|在)?|祖籍|出生在|出生于|生于|生在|(?:从小)?(?:长大在|在(?=[^，。]{{2,10}}长大)))(?P<o>[^，。]{{2,20}})$", IDENTITY),
    _rule(rf"{_I}是(?!好|坏|普通|个|成年|一个|负责|病|新|年轻|中年|老|大|外星|什么|有|穷|打工|局外|机器|自己|中间|当事|聪明|善良|怎)(?P<o>[\u4e00-\u9fff]{{2,5}}人)$", IDENTITY),
    _rule(rf"{_I}{_ADV}(?:是|当|做|任|担任|从事)(?:了)?(?:一)?(?:名|个|位|家)?(?P<o>[^，。不没你他她]{{0,20}}?(?:{_JOBS}))(?:的|[^，。]{{0,2}}年了?)?$", IDENTITY),
    _rule(rf"{_I}{_ADV}在(?!努力|认真|拼命|疯狂|忙|想|等|准备|[^，。]{0,2}一家公司|当前|现在|公司)(?P<o>[^，。]{{2,24}}?)(?:工作|上班|实习|任职|就职|读书|读研|读博|读大[一二三四]|上学|教书|(?:当|做|担任)[^，。]{{0,12}}?(?:{_JOBS})|做[^，。]{{1,16}}|读[^，。]{{2,10}})(?:了?[^，。]{{1,3}}年了?)?$", IDENTITY),
    _rule(rf"{_I}{_ADV}是?(?:做|搞|干)(?P<o>(?!(?:什么|这|那))[^，。了]{{1,14}})的$", IDENTITY),
    _rule(rf"{_I}最(?:喜欢|爱|讨厌|常用|拿手|擅长|崇拜|欣赏|在意|看重)的?[^，。这那]{{1,12}}(?:是|就是)(?P<o>(?!这|那|你|他|她|它)[^，。]{{1,30}})$", PREFERENCE),
    _rule(rf"{_I}{_ADV}(?:就职于|任职于|供职于|毕业于|毕业自|就读于|主修|辅修|学的是|读的是|本科读的?|大学学的?|从事|负责(?!任)|带(?=[^，。]{{0,8}}团队)|管理(?=[^，。]{{0,8}}团队))(?P<o>{_OBJECT})$", IDENTITY),
    _rule(rf"{_I}{_CHANGING}*(?:跳槽到|跳槽去|转岗到?|转行做|转做|入职|加入|升任|升职(?:为|成|做)?|升为|晋升为|升(?=了?[^，。]{{0,6}}(?:{_JOBS})))了?(?P<o>(?!群|这|那|你)[^，。]{{2,20}})$", IDENTITY),
    _rule(rf"{_I}的?(?:{_FIELD_NOUNS})(?:一般|一直|现在|目前|已经)?(?:是|叫|在|为|换成了?|改成了?|改为了?|：|:)(?P<o>(?!不|没|问题|这|那|坏|怎|他|她|你|真|很|好|太)[^，。]{{1,40}})$", IDENTITY),
    _rule(rf"{_I}(?:今年)?(?:已经|刚满?|快)?[0-9一二三四五六七八九十]{{1,4}}岁了?$", IDENTITY),
    _rule(rf"{_I}(?:的?生日(?:是|在)*(?P<o>[^，。]{{0,10}}[0-9一二三四五六七八九十]{{1,3}}(?:月|号|日)[^，。那当]{{0,8}})|(?:是)?[^，。你他她]{{2,14}}(?:出生的?|生的|生人)|属[鼠牛虎兔龙蛇马羊猴鸡狗猪]的?|是?[\u4e00-\u9fff]{{2}}座的?|身高[^，。]{{2,8}}|体重[^，。]{{2,8}}|(?:是)?(?:A|B|O|AB)型血|(?:已婚|未婚|单身|离异|离婚了|结婚[^，。]{{0,6}}年了?)|是?(?:INTJ|INTP|ENTJ|ENTP|INFJ|INFP|ENFJ|ENFP|ISTJ|ISFJ|ESTJ|ESFJ|ISTP|ISFP|ESTP|ESFP))$", IDENTITY),
    _rule(rf"{_I}们?家?的?(?:{_FAMILY_WORDS})(?:们)?{_ADV}(?:的?名字)?(?:的名字)?的?(?:叫|名叫|今年|住在|家在|对[^，。]{{1,12}}过敏|喜欢|不吃|爱吃|属|生日|在[^，。]{{2,16}}(?:工作|上班|读书|上学|上[^，。]{{1,6}}|读[^，。]{{1,6}})|上(?:小学|初中|高中|大学|幼儿园)|是[^，。]{{0,10}}(?:{_JOBS}|人)|[0-9一二三四五六七八九十两]{{1,3}}个?[岁月])[^，。]{{0,30}}$", FAMILY),
    _rule(rf"{_I}们?(?:[和跟][^，。]{{1,4}})?家?(?:里)?{_ADV}(?:有|养了?|领养了|生了|捡了)[^，。没]{{0,3}}?(?:[一二两三四五六0-9]|几)(?:个|只|条|位|对|匹|缸)[^，。]{{0,10}}?(?:{_FAMILY_WORDS}|鱼|龟|鸟|马)[^，。]{{0,14}}$", FAMILY),
    _rule(rf"{_I}{_CHANGING}*(?:已经)?(?:不再|再也不|戒了|戒掉了?|戒(?=[烟酒糖]))(?P<o>(?!相信|理|说|想|犹豫|废话|管|问)[^，。]{{1,24}})$", CHANGE),
    _rule(rf"{_I}(?:们)?{_CHANGING}*{_ADV}(?:改用|改吃|改喝|改学|改骑|改坐|改做|改游|换用|换成|换到|换了(?=[^，。]{{2,}})|切换到|切到|迁移到|迁到|转到|转用|转投|从[^，。]{{1,20}}?(?:换|转|切|迁|改)(?:移|成|到|为|用)了?)(?!这|那|你|他|衣)(?P<o>[^，。]{{1,30}})$", CHANGE),
    _rule(r"[^，。你他她您]{0,8}(?:之?后|以来|开始)我?改(?P<o>[^，。到成在期天口]{1,12})了?$", CHANGE),
    _rule(rf"{_I}{_CHANGING}*{_ADV}不(?:喝|吃|用|玩|抽|跑|住|做|养|写|学|打)(?P<o>(?!了|着|到|起|上|下|完|好|来|惯|出|动|过|得|饱|多)[^，。]{{1,16}})了$", CHANGE),
    _rule(rf"{_I}{_ADV}(?:更)?(?:喜欢|喜爱|热爱|偏爱|偏好|偏向于?|钟爱|爱好|讨厌|不喜欢|不太喜欢|反感|厌恶|受不了|不爱|最爱|爱(?=吃|喝|看|听|玩|打|跑|逛|用|种|做|收集|旅游|运动|摄影|读|写)|只吃|只喝|只用|不吃|不喝|不太能吃|不太吃|不怎么吃|吃不惯|喝不惯|吃不了|喝不了|不能吃|不能喝|忌口|从不|从来不|倾向于|看重|重视|崇尚|信奉|沉迷|迷上了?|爱上了?|信(?=佛|教|基督|伊斯兰|天主|道教)|痴迷于?|着迷于|习惯(?:了|于)?(?=[^，。]{{2,}})|怕(?=黑$|高$|狗$|猫$|蛇$|虫$|虫子$|热$|冷$|辣$|水$|鬼$|打针$|吵$|蜘蛛$|坐飞机$)|恐高|晕车|晕船|晕血|追求|注重){_OBJECT}$", PREFERENCE),
    _rule(rf"{_I}{_ADV}(?:恐高|晕车|晕船|晕血|晕机|怕(?:黑|高|狗|猫|蛇|虫子?|热|冷|辣|水|鬼|打针|吵|蜘蛛|坐飞机)|社恐|内向|外向|路痴|夜猫子|早起型|无辣不欢|(?:是)?(?:个)?(?:夜猫子|吃货|路痴|社恐|完美主义者|极简主义者|无神论者|佛教徒|基督徒|球迷|[^，。你]{{1,12}}(?:爱好者|发烧友|粉丝|球迷|迷)))$", PREFERENCE),
    _rule(r"(?:平时|一般|从来|从小|向来|一直|一向|特别|非常|最|更|很)?(?:喜欢|讨厌|不喜欢|爱吃|爱喝|不吃|不喝|只喝|只吃|偏爱|偏好|热爱|忌口)" + _OBJECT + "$", PREFERENCE),
    _rule(rf"{_I}(?:们?(?:公司|团队|组|项目组?|部门|这边|\s?team\s?)?)?(?:在)?{_ADV}(?:主要|平时|日常|都|一直|目前|现在|是|在)?(?:使用|在用|用惯了|用的?是?|写|跑在|部署在|习惯用)\s?{_TOOLS}(?:\s?(?:来|做|写|开发|编程|管理|记|办公|工作|画|剪|跑|当|为主|比较多|输入法|手机|电脑|系统|浏览器|笔记本)[^，。了过]{{0,12}})?(?:\s?(?:而?不用|不是)\s?{_TOOLS})?$", TOOLS),
    _rule(rf"(?:{_I}(?:们?(?:公司|团队|组|项目组?|部门|这边|\s?team\s?)?)?)?(?:平时|平常|日常|主要|一般|通常|习惯|工作中|工作上|一直)(?:都|是|主要|在|只)*(?:用|使用|写)(?!了|过|完|的)(?P<o>(?!你|它|他|她|这|那)[^，。了]{{1,30}})$", TOOLS),
    _rule(rf"(?:{_WE})?的?(?:主力(?:语言|机|编辑器)|技术栈|编辑器|数据库|后端|前端|开发环境|操作系统)(?:一直|主要|现在|目前|统一|都)*(?:是|用的?是?|为)\s?{_TOOLS}$", TOOLS),
    _rule(rf"{_I}{_ADV}(?:擅长|精通|熟悉|熟练掌握|拿手的?是?|专攻|能说|会讲|自学(?:了|过)?|正在学|在学|最近在学|学过|懂(?=[A-Za-z]|一点|一些|[日英法德韩俄]语)|(?:不太?)?会(?={_SKILLS})){_OBJECT}$", PREFERENCE),
    _rule(rf"{_I}?(?:一般|通常|基本上?|坚持|习惯|都|平时)*每(?:隔)?(?:[一二两三四五六七0-9]{{1,2}}|半|个)*(?:天|日|晚|早|年|月|个?周末|周|星期|礼拜)[一二三四五六日天末、和]*(?:早上|上午|中午|下午|傍晚|晚上|清晨|睡前|饭后|早|晚)*(?:[0-9一二三四五六七八九十两]{{1,3}}点半?)?我?(?:都|会|必|要|得|只|至少|坚持|固定|雷打不动|准时|一定|还)*(?:[^，。你您他她它]{{0,6}})?(?:{_HABIT_VERBS})[^，。了]{{0,24}}$", HABIT),
    _rule(rf"{_I}{_ADV}(?:(?:一般|通常|平时|习惯|都|基本上?|每天)*(?:是|在|会)?)(?:{_PART_OF_DAY})?(?:[0-9一二三四五六七八九十两]{{1,3}}点(?:半|多|左右)?)(?:才|就|左右)?(?:起床?|睡觉?|吃(?:早|午|晚)饭|上班|下班|出门|午睡|跑步|锻炼|健身)[^，。了]{{0,12}}$", HABIT),
    _rule(rf"{_I}{_CHANGING}*(?:在|开始)*(?:学习?|练|自学|备考|跑步|健身|减肥|吃素|冥想)(?!会|到|校|生|术|员|的|不|完)(?P<o>(?!了|这|那|你|怎)[^，。了]{{0,20}})$", PREFERENCE),
    _rule(rf"(?:(?:写代码|开发|工作|办公|出行|上班|写文章|做饭)(?:时|的时候)?)?{_I}(?:们)?(?:平时|一般)?习惯(?:了|于)?(?:用|使用|早|晚|在|先|喝|吃|写|睡|边)[^，。了]{{1,30}}$", HABIT),
    _rule(rf"{_I}(?:经常|常常|总是|习惯(?:了)?|坚持|周末(?:一般|通常|经常|常|都|喜欢)*(?:会)?|睡前|早上|下班后|午饭后)(?:一般|通常|会|都|要|先|在|每[天周])*(?:{_HABIT_VERBS})(?!死|了)[^，。了]{{1,24}}$", HABIT),
)  # fmt: skip

_STATE_IN_TIME = re.compile(r"搬|改|换|戒|入职|跳槽|转|加入|升|不再|生了|养|离婚|结婚|确诊|查出")

_LASTING = re.compile(
    "以后|今后|从现在起|从现在开始|从今以后|从今天起|从今天开始|从今往后|往后|接下来都|每次|每回|每当|一直|永远|始终|总是|凡是|任何时候|默认|一律|不要再|别再|不准再|禁止|再也别|再也不要|都要?(?=用|先|给|加|请)|每[天周晚早][^，。]{0,10}(?=提醒我|给我|帮我|发我|告诉我)"
)
_DIRECTED = re.compile(
    "都(?:要|得)?(?:用|写|按|以|先|给|加|附|列|标|问|检查|确认|输出|回答|说明|带上|注明|遵守|保持|请)|一律|统一|请|你|您|必须|务必|(?:不要|别|请勿|不准|禁止|不用)(?:再|总是|老是|总|老)?(?:在[^，]{1,8})?(?:给我|对我|跟我)?(?:那么|这么)?(?:用|说|写|加|给|发|问|叫|推荐|提|建议|道歉|重复|解释|使用|输出|改|提交|删|回|自动|称呼|讲|带|附|省略|假设|编|动|泄露|透露|分享|记录|执行|运行|创建|覆盖|猜|啰嗦|客气|打断|跳过|引用|把)|先|给我|回答|回复|答复|输出|代码|注释|称呼|叫我|默认[^，。]{0,6}用|用(?=[^，。]{0,16}(?:语|文|英|格式|表格|列表|Markdown|markdown|话|风格|口吻|语气))|解释|提醒我|保持|控制|附上?|列出|写(?=[^，。]{0,8}(?:注释|测试|文档|代码))|跟我|和我|对我|告诉我|帮我"
)
_NOT_DIRECTED = re.compile(
    "^(?:我(?!希望你|要你|想让你|想要你|需要你|让你|要求你|的(?:代码|回答))|我们|咱|他|她|它|他们|系统|程序|服务|公司|老板|大家)|以后我|每次我(?!问|让|要|说|发|提|给)|一直我|总是我|我(?:会|要|一定|再也|都)|以后再|报错|失败|崩溃|出错|有机会|[烦气累烂]死|下雨|谢谢|上次|爱|总是(?:忘|出|失|迟|被)|一直(?:在|是|都(?!用)|没|很|觉得|以来)|感谢|得到|收获|让我|开心|带来|启发|^您?你(?:总|一直|的)|思考|对我(?:帮助|的|而言|来说)|却|和你|陪伴"
)
_BEGINS = re.compile(
    "(?:从(?:现在|今天|今以|今往)|以后|今后|往后|接下来|每次|每回|每当|一直|永远|始终|总是|凡是|任何时候|默认|一律|请|麻烦|不要|别|禁止|不准|必须|务必|你(?:以后|要|必须|得|应该|需要|都|每|给|回|写|可以|别|不)|您|(?:我)?(?:希望|要|想让|想要|需要|要求)你|"
    "我(?:问|让|要|说|发|提|给)|所有|代码|回答|回复|输出|注释|解释|再也|每[天周晚早]|给我|跟我|和我|对我|叫我|称呼|用|写|涉及|遇到|当|只要|提到|说到|讨论|无论|不管|都|先|记得)"
)
_CONDITION = re.compile(
    "(?:从现在起|从现在开始|从今以后|从今天起|从今天开始|从今往后|以后|今后|往后)|(?:以后|今后)?(?:每次|每当|当|凡是|只要|在)?(?:你(?:写|回答|回复|给|改|生成)|我(?:问|发|说|写|提|让|要你?|给|贴|跑))[^，。都请别要]{0,14}"
)
_MORE_ORDER = re.compile("而是|改用|用(?=.)|再|最后|然后|并|结尾|不要|别|不用|尽量|先")
_ONE_OFF = re.compile(
    "小时后|分钟后|这次|这一次|这回|本次|这段|这篇|这个|这封|这份|这条|这句|这张|下面|上面|刚才|今天|暂时|现在|明天|待会|先这样|一下"
)
_FORMAT = re.compile(
    r"(?:请|麻烦|你的?|所有|给我的|我希望你的?)*(?:回答|回复|答案|答复|输出|代码|注释|解释|说明|总结|文档|变量名|提交信息|commit message)(?:时|的时候|里|中|我|问题)*(?:都|请|尽量|要|得|只|一律|必须|务必|统一|可以)*(?:用|使用|简短|简洁|精简|不要|别|不用|保持|控制在?|短|附上?|带上?|先|给出|以|按|直接|遵循|遵守|写成|限制在|不超过)[^，。？]{0,40}$"
)
_ANSWERING = re.compile(
    r"(?:请|麻烦|你)+(?:一直|都|始终|尽量|只|统一|全程)*(?:用|使用|以)(?!这|下面|以下|一[句个段]|[一二两三四五六七八九十0-9]+[句字条])[^，。：:]{1,14}(?:回答|回复|答复|和我(?:交流|说话|聊天|沟通)|跟我(?:交流|说话|聊天|沟通)|交流|对话|沟通)(?:我|我的问题)?$"
)
_CALL = re.compile(
    r"(?:请|你|您|也|可以|以后|就|都|直接|一律|往后|今后)*(?:叫我|称呼我(?:为|叫)?|喊我)(?!怎|去|来|起|吃|别|不|先|做|回|加|妈|滚|如何|一声|过|到|等|帮|写|什么|名字就)[\s“「\"]*[\w·\u4e00-\u9fff]{1,10}[”」\"]?(?:就好|就行|就可以(?:了)?|好了|吧)?$"
)
_PREFERENCE_ORDER = re.compile(r"(?:请|麻烦)?(?:不要|别|请勿|不用|无需)(?:在(?:你的)?(?:回答|回复|代码|输出)(?:里|中)?)?(?:给我|对我|跟我)?(?:用|使用|加|写|说|输出|带|讲|发|叫我|称呼)(?!了|我(?:的)?手机|这|那|今|明|班|急)[^，。？]{0,20}(?:表情|emoji|Emoji|敬语|英文|中文|缩写|术语|行话|客套|废话|markdown|Markdown|表格|列表|标题|注释|粗体|感叹号|您|套话|前言|总结|道歉|比喻)[^，。？]{0,12}$")  # fmt: skip

_ADDED = re.compile(
    "(?:他|她|它)?(?:今年)?(?:已经|快|刚满?)?[0-9一二三四五六七八九十]{1,3}个?[岁月](?:大|了|多)?$|地点(?:在|是)|为期|一共[0-9一二三四五六七八九十两]+天|待[0-9一二三四五六七八九十两]+天"
)
MAX_LISTED_CHARS = 6
"""A clause so short behind 我喜欢… is one more thing of a list."""
_NOT_LISTED = re.compile(
    "[我你他她它这那真很太挺蛮不没是也都就还又再只了的吧呢吗呀啊]|喜欢|讨厌|爱|特别|非常|尤其|哈|因为|所以|但|平时|一般|每|住|叫|对|用|写|[0-9]|谢|嗯|[A-Za-z]$"
)
_ELIDED = re.compile(
    "住|在|是|做|养|有|叫|姓|对|来自|老家|毕业|会|擅长|用|写|负责|今年|属|不再|改|戒|从|家|换|喜欢|讨厌|不|平|爱|只|偏|热|忌|每|一|特|非|最|更|很|日|主|习|也|还|目前|现在|生日|懂|精通|熟悉|正在|单身|已婚|恐高|晕|怕|看重|经常|常|周末|从事|主修|就职|任职|入职|跳槽|搬"
)

_EVENT_NOUNS = (
    "会议?|例会|周会|组会|站会|评审会?|复盘会?|面试|笔试|考试|期末考|期中考|高考|中考|雅思|托福|答辩|航班|飞机|高铁|火车|动车|机票|手术|体检|复查|婚礼|生日(?:会|派对|聚会)?|聚餐|聚会|饭局|团建|年会|发布会|上线|发版|发布|演唱会|"
    "音乐会|话剧|培训|分享会?|沙龙|仪式|晚宴|派对|合同|租约|房租|项目|截止(?:日期|时间)?|ddl|DDL|deadline|demo|Demo|演示|汇报|路演|交付|家长会|讲座|比赛|马拉松|课|直播|展览|活动|聚|约会|电话会|访谈|签约|验收|评估|内测|公测|版本|论文|报告|作业|方案|稿子|牙医|预约|课程|护照|签证|预产期|保险|驾照|[Ss]tand-?up|[Mm]eeting|[Ii]nterview|[Ss]ync|[Ww]orkshop|[Kk]ick-?off|订单|快递|疫苗|截稿"
)
_MOVES = "改到了?|改成了?|改在了?|改为了?|推迟到?了?|延期到?了?|延到了?|延后到?|提前到?了?|挪到了?|取消了?|定在了?|定于|定到|定的?是|安排在了?|约在了?|约到|在(?=[^，。]*$)|是(?=[^，。]*$)|开始|结束|截止|到期|举行|召开|上线|发布|起飞|出发|到|出(?:结果|成绩)|开(?:幕|会|考|赛|标)"
_VERBS = (
    r"学会(?=了)|上(?=小学|初中|高中|大学|幼儿园)|启动|推出|举办|组织(?=[^，。]{0,8}(?:会|活动|比赛|培训))|接手|来(?=看|[^，。]{0,3}(?:住|玩|家里|做客|出差|开会))|去(?!世界|除|掉|的)|到(?=[^，。]{2,10}(?:出差|旅|开会|参加|面试|见))|飞(?=[\u4e00-\u9fff]{2}|\s?[A-Z])|回(?=老家|国|北京|上海|家过|学校|[\u4e00-\u9fff]{2,4}(?:过年|看|探))|出差|出发|参加|面试了?|面了|考(?!虑|验|勤)|见(?!到你|过|鬼|效|解)|约(?!等|莫|束)|开(?=[^，。]{0,12}会)|提交|上交|交(?=[^，。]{0,8}(?:报告|作业|论文|稿|方案|材料|房租|钱|初稿|终稿|周报|申请|PR))|上线|发布|发版|部署|搬(?!砖)|"
    "买(?!不|菜)|订(?!阅)|签(?!名|到)|做(?=[^，。]{0,6}(?:手术|体检|报告|分享|演讲|汇报|检查|核磁|胃镜|主持|答辩|讲座|展示|demo|Demo))|办(?=[^，。]{0,8}(?:护照|签证|婚礼|手续|酒席|满月|证|卡|入职|离职|派对))|领(?=证|了|养|奖)|接(?=[^，。]{1,10}(?:机|站|人|放学|出院|妈|爸|孩子|女儿|儿子))|看(?=(?:了)?(?:医生|牙|病|房|演唱会|电影|展|话剧|比赛|心理)|[^，。]{0,6}(?:医生|演唱会|展览?|电影|房子))|体检|结婚|领证|入职|离职|辞职|退休|升职|"
    "聚餐|聚会|吃(?=[^，。]{0,8}(?:饭局|火锅|烤肉|喜酒|年夜饭))|启程|度假|旅游|旅行|爬(?=[^，。]{0,8}山)|露营|徒步|跑(?=[^，。]{0,6}(?:马拉松|半马|全马|10公里|十公里))|比赛|完成|通过|收到|拿到|拿了|卖(?=了|掉|房|车)|租(?=了|房|下)|换(?=了|工作|房|车|手机|电脑|护照)|修(?=车|手机|电脑|了)|装修|还(?=房贷|车贷|书|款|钱)|付(?=了|款|首付|定金)|报名|注册(?=了)|毕业|答辩|开学|放假|请假|"
    "休假|生了|出生|去世|住院|出院|手术|打(?=[^，。]{0,4}(?:疫苗|针))|拔(?=[^，。]{0,4}牙)|洗牙|补牙|复查|复诊|开业|搬家|赢了|输了|丢了|摔(?=了|断|伤|到)|撞(?=了|到|车)|扭(?=了|伤)|骨折|感冒了|发烧|确诊|获得|获奖|得了|中标|中奖|签约|交付|汇报|演示|分享|直播|出版|投(?=了|稿|简历)|面谈|谈(?=了|合同|合作)|拜访|访问|主持|上课|培训|考完|结项|立项|验收|领(?=[^，。]{0,4}奖)|录(?=制|节目|取)|被录取|被裁|换乘|转机|过(?=生日)|迁移|切换|重构完|合并了|回滚|宕机|崩了|续租|续签|退租|退房|入住|寄(?=出|了)|取(?=[^，。]{0,6}(?:快递|车|钱|护照|报告|票|蛋糕))"
)
_WITH = r"(?:(?:和|跟|与|陪|带|给|帮|为|在|从|坐|开车|自驾|由|向|把|将|去|到|被)[^，。]{1,14}?)?"
_PLAN = "(?:打算|计划|准备|要|会|将|将要|得|需要|必须|约好|约了|约好了|预约了|决定|终于|刚|刚刚|已经|又|也|还|正式|顺利|一起|先|就|都|成功|临时|可以|再|请假|提前|开始){0,4}"
_EVENT_REST = re.compile(
    rf"(?:{_WE}|(?:我们?家?的?)?(?:{_FAMILY_WORDS})|[跟和与]\w{{1,6}})?(?:{_WE})?{_PLAN}{_WITH}{_PLAN}{_WITH}(?:{_VERBS})|(?:{_WE}的?)?(?:[^，。你他她]{{0,4}}(?:服务器?|线上|生产环境|网站|系统|数据库|集群|机房|接口))[^，。]{{0,6}}(?:宕机|崩了|崩溃|挂了|故障|恢复|回滚|上线|迁移|下线|升级|扩容)"
)
_EVENT_MOVED = re.compile(
    rf"(?!你|您|他|她|这|那|听说|别人)[^，。]{{0,12}}?(?:{_EVENT_NOUNS})\s?(?:的?(?:时间|日期|截止日期))?(?:从|由)?(?:已经|已|要|会|都|将|临时|被|统一|暂时|就|又|最后|正式){{0,3}}(?:{_MOVES})"
)
_EVENT_NOUN_ONLY = re.compile(
    rf"(?:{_WE}(?:的)?)?(?:还?有|约了|预约了|约|是|安排了)?(?:个|一个|一场|一次|场|次|门|的|节|一节|两场|两个)*(?!这|那|你|您|他|她)[^，。不没了好烦累]{{0,12}}?(?:{_EVENT_NOUNS})$"
)
_DEADLINE = re.compile(
    r"(?:之?前|以前|截止|到期|ddl|DDL|deadline)[^，。]{0,6}(?:要|得|必须|需要|交|提交|完成|给|搞定|上线|发布|交付|还|付|续)|截止|到期|截稿"
)
_DECIDED = re.compile(
    rf"(?:{_WE}|[^，。你他她您]{{0,6}}(?:会上|开会|讨论后?|评审|商量(?:后|好)?))?(?:最终|最后|已经|刚|刚刚|今天|昨天|终于|一致|共同|内部|讨论后|商量后|开会|都|正式|也)*(?:决定|敲定|选定|商定|拍板|选择了|同意|约定|一致同意|定了)(?!不了|不下|吧|要不)(?:了)?(?P<what>[^，。]{{2,40}})$"
)
_DONE = re.compile(
    rf"{_I}(?:们)?(?:刚|刚刚|终于|已经|成功|正式|顺利){{0,3}}(?:(?:买了(?!单|东西)|签了|拿到了?|通过了|考过了|考上了|面试了|提交了|发布了|上线了|收到了(?=[^，。]*(?:offer|录取|通知|邀请|奖))|完成了|生了|报名了|预订了|预约了|订了|租了|卖了|获得了?|赢了|开了(?=[^，。]*(?:店|公司|工作室)))[^，。]{{2,30}}|(?:(?:从[^，。]{{1,12}})?(?:辞职|离职|毕业)了|结婚了|领证了|订婚了|当(?:爸爸?|妈妈?)了|升职了|退休了|搬完了?|被[^，。]{{0,10}}录取了|被裁了|创业了)[^，。]{{0,30}})$"
)
_TRIVIAL = re.compile(
    "(?:见|再见|再聊|再说|聊)$|和你|跟你(?:聊|说|谈)|^(?:你|您|他|她|它|这(?!周|个?月|个?星期|学期|次)|那|听说|据说|记得|大家|有人)|没[去来买考]|不去|去不了|没有|不想|想(?!办法|起)|去吧|去哪|谢|麻烦你|提醒我|帮我|替我|给我(?!妈|爸|女|儿|老|们|家|朋)|推荐|查(?:一下|询)|去世界"
)
_REQUEST = re.compile(
    r"(?:请|麻烦|能|可以)?(?:你)?(?:帮我|帮忙|给我|替我|翻译|改写|润色|总结|解释|查一?下|查查|列出|生成|推荐|告诉我|说说|讲讲|算一?下|写[一个]|写封|画|设计|优化|订(?=[^，。]*票)|提醒我|安排一下|规划|制定|看看|想想|搜|找)"
)


def is_chinese(text: str) -> bool:
    """Whether the sentence is built in Chinese; English words in it do not count ("我用 Neovim 写 Python"), nor do
    Chinese names in an English one ("I live in 北京")."""
    han = len(_HAN.findall(text, 0, 400))
    return han > 1 and (han > len(_LATIN_WORD.findall(text, 0, 400)) or _ENGLISH_BEGINS.match(text) is None)


def candidates(sentence: Sentence, at: datetime) -> Iterator[Candidate]:
    """What a sentence says, in its order."""
    clauses = corrected(
        [clause for clause in map(_clean, _CLAUSES.split(sentence.text)) if clause], at, object_of
    )
    unsure = bool(_HYPOTHETICAL.search(sentence.text))
    subject: str | None = None
    for number, clause in enumerate(_joined(clauses, at)):
        subject = _subject(clause) or subject
        if (
            len(clause) > MAX_CLAUSE_CHARS
            or _ASKING.search(clause)
            or (sentence.asks and number == len(clauses) - 1)
        ):
            continue
        found = _instruction(clause, unsure=unsure, alone=sentence.alone)
        if found is None and not unsure:
            found = _persona(clause, at, subject) or _episodic(clause, at)
        if found is not None:
            yield found


def _subject(clause: str) -> str | None:
    """Whom a clause is about, where it says so; what follows without a subject is about the same."""
    if re.match(
        rf"(?:{_I}们?家?的?(?:{_FAMILY_WORDS})|{_I}的?(?:知道|觉得|认为|听|看到|朋友|同事|同学|邻居|闺蜜|哥们|同桌|学生|客户|徒弟|师傅|老乡|队友|男神|女神|偶像)|你|您|他|她|它|这|那|(?!我)[\u4e00-\u9fff]{{2,3}}(?:说|喜欢|是))",
        clause,
    ):
        return (
            "other"
            if not re.match("平时|一般|一直|从来|非常|特别|现在|目前|已经|其实|主要|最近|我也?喜欢", clause)
            else None
        )
    return "me" if re.match(_I, clause) else None


def object_of(clause: str) -> re.Match[str] | None:
    """The match of a persona rule whose group ``o`` a correction may replace."""
    for rule in _PERSONA:
        found = rule.pattern.match(clause)
        if found and "o" in rule.pattern.groupindex and found["o"]:
            return found
    return None


def _clean(clause: str) -> str:
    clause = clause.strip(" \t、~—-()（）")
    while found := _FILLER.match(clause):
        if found.end() == len(clause):
            return ""
        clause = clause[found.end() :]
    return _TAIL.sub("", clause).strip()


def _joined(clauses: list[str], at: datetime) -> list[str]:
    """A clause of a date alone (周五下午三点，在A座开会) is told together with the next, and what a clause adds (今年五岁,
    不用 MySQL, 地点在A座) with the one before."""
    joined: list[str] = []
    pending = ""
    for clause in clauses:
        if _CONDITION.fullmatch(clause) or (len(clause) <= MAX_CLAUSE_CHARS and _only_date(clause, at)):
            pending += clause + "，"
        elif joined and not pending and _adds(joined[-1], clause):
            joined[-1] += "，" + clause
        else:
            joined.append(pending + clause)
            pending = ""
    return joined + ([pending.rstrip("，")] if pending else [])


def _adds(before: str, clause: str) -> bool:
    if _MORE_ORDER.match(clause) and (_begins_order(before) or _PREFERENCE_ORDER.fullmatch(before)):
        return True
    if _ADDED.match(clause) or (
        re.match("(?:名字)?叫[^，。]{1,8}$", clause) and re.search(_FAMILY_WORDS, before)
    ):
        return True
    if (
        len(clause) <= MAX_LISTED_CHARS
        and re.search("喜欢|[最热偏]爱|讨厌|不吃|过敏|擅长", before)
        and not _NOT_LISTED.search(clause)
    ):
        return True
    return bool(re.match("不用|不再|而不是|不是|放弃", clause) and re.search("改|换|决定|选|定|转", before))


def _only_date(clause: str, at: datetime) -> bool:
    found = resolve(clause, at)
    return bool(found) and not _rest(clause, at).strip("在于是的到之前约大概左右 ")


def _rest(clause: str, at: datetime) -> str:
    """The clause without its dates."""
    parts, last = [], 0
    for found in resolve(clause, at):
        parts.append(clause[last : found.span[0]])
        last = found.span[1]
    return "".join([*parts, clause[last:]]).strip(" ，,的")


def _instruction(clause: str, *, unsure: bool, alone: bool) -> Candidate | None:
    lasting = bool(_LASTING.search(clause))
    head = clause.partition("，")[0]
    if _ONE_OFF.search(clause) and not re.search("从(?:现在|今天)(?:起|开始)|以后|今后", clause):
        return None
    if (unsure and not lasting) or _NOT_DIRECTED.search(clause):
        return None
    if (
        lasting
        and _BEGINS.match(clause)
        and _DIRECTED.search(clause)
        and not re.fullmatch("(?:以后|每次|一直)?(?:请|你|别|先)?", clause)
    ):
        return _order(clause)
    if _CALL.fullmatch(clause) or _FORMAT.fullmatch(head) or _PREFERENCE_ORDER.fullmatch(head):
        return _order(clause)
    return _order(clause) if alone and _ANSWERING.fullmatch(clause) else None


def _begins_order(clause: str) -> bool:
    return bool(_LASTING.search(clause) and _BEGINS.match(clause) and not _NOT_DIRECTED.search(clause))


def _order(clause: str) -> Candidate:
    return Candidate(clause, "instruction", INSTRUCTION)


def _persona(clause: str, at: datetime, subject: str | None) -> Candidate | None:
    if _FORMERLY.search(clause) or (_MOMENTARY.search(clause) and not _STATE_IN_TIME.search(clause)):
        return None
    if (
        _REQUEST.match(clause)
        or re.search("(?:时|的时候|之后|以后|后)$", clause)
        or (subject == "other" and "我" not in clause)
    ):
        return None
    dates = resolve(clause, at)
    if any(found.start > at and not found.full for found in dates) and not re.search(
        "生日|一般|通常|平时|习惯|都|每|喜欢|经常|常常", clause
    ):
        return None  # 我下个月搬到上海 is a plan, not yet a state
    content = clause
    if subject == "me" and "我" not in clause and _ELIDED.match(clause):
        content = "我" + clause  # 我住在杭州，平时写 Go: the second stands by itself as 我平时写 Go
    head = content.partition("，")[0]
    spoken = _rest(head, at) if dates and _STATE_IN_TIME.search(head) else head
    for text in dict.fromkeys((head, spoken)):
        for rule in _PERSONA:
            if rule.pattern.match(text):
                pointing = rule.priority in (PREFERENCE, HABIT) and re.search(
                    "[这那](?:部|个|种|些|本|位|首|样|里|次|件)", text
                )
                return None if pointing else Candidate(content, rule.kind, rule.priority)
    return None


def _episodic(clause: str, at: datetime) -> Candidate | None:
    if _TRIVIAL.search(clause) or _REQUEST.match(clause):
        return None
    decided = _DECIDED.match(clause.partition("，不")[0])
    if decided and not re.search("没|不能决定|还未", clause[: decided.start("what")]):
        return Candidate(clause, "episodic", DECISION)
    if _DONE.match(clause):
        return Candidate(clause, "episodic", EVENT)
    if not resolve(clause, at):
        return None
    rest = _rest(clause, at)
    deadline = bool(_DEADLINE.search(clause)) and bool(
        re.match(rf"(?:{_WE}|[^，。你他她]{{0,12}}(?:{_EVENT_NOUNS})|前|之前|要|得|必须)", rest)
    )
    if deadline:
        return Candidate(clause, "episodic", DEADLINE)
    if repetitions(clause, at):
        return None
    found = _EVENT_REST.match(rest) or _EVENT_MOVED.match(rest) or _EVENT_NOUN_ONLY.fullmatch(rest)
    return Candidate(clause, "episodic", EVENT) if found else None
