"""Verdicts by the rules: a table of old and new statements in both languages, and what has to hold for any text."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore import Scope
from memstore.pipelines.rules.judging import judge
from memstore.pipelines.rules.likeness import opposite
from memstore.pipelines.rules.statement import read
from memstore.pipelines.values import Compared, Comparison, Known, Proposal, Verdict
from memstore.types import Kind

NOW = datetime(2026, 5, 6, 9, 0, tzinfo=UTC)
SCOPE = Scope("acme", "ana", "helper")


def known(number: int, content: str, kind: Kind = "persona", priority: int = 50) -> Known:
    return Known(f"m{number}", kind, content, priority, NOW)


def compared(*items: tuple[str, list[str]], kind: Kind = "persona") -> Comparison:
    return Comparison(
        SCOPE,
        "zh",
        tuple(
            Compared(Proposal(new, kind), tuple(known(i, old, kind) for i, old in enumerate(olds)))
            for new, olds in items
        ),
        NOW,
    )


def verdict(new: str, *olds: str, kind: Kind = "persona") -> Verdict:
    [made] = judge(compared((new, list(olds)), kind=kind))
    return made


DUPLICATES = [
    ("用户喜欢喝咖啡", "我很喜欢咖啡。"),
    ("用户住在杭州", "我住在杭州！"),
    ("用户住在杭州。", "用户 住在 杭州"),
    ("预算三万", "预算是30,000"),
    ("用户讨厌香菜", "我不喜欢吃香菜"),
    ("每天晨跑", "每天晨跑"),
    ("用户喜欢咖啡、茶和果汁", "我喜欢茶"),
    ("用户对花生过敏，出门总带药", "用户对花生过敏"),
    ("明天下午三点开会", "开会明天下午3点"),
    ("ＡＰＩ 文档用 Markdown 写", "API文档用markdown写"),
    ("请用中文回复", "以后请用中文回复我。"),
    ("宠物不可以上车", "宠物不允许上车"),
    ("用户在腾讯工作，负责支付", "我在腾讯工作"),
    ("代码提交前必须跑测试", "代码提交前要跑测试"),
    ("The user lives in Berlin", "I live in Berlin."),
    ("I really like black coffee", "user likes black coffee"),
    ("User likes tea and coffee", "I like coffee"),
    ("User is allergic to peanuts", "I'm allergic to peanuts!"),
    ("I work at Siemens in Munich", "I work at Siemens"),
    ("User doesn't eat pork", "I do not eat pork"),
    ("Dogs may not board", "dogs are not allowed to board"),
    ("Always answer in French", "Please answer in French"),
    ("The user plays the cello; practises weekly", "User plays the cello"),
    ("The budget is $30,000", "the budget is $30k"),
    ("User hates olives", "I dislike olives"),
]
OPPOSITES = [
    ("宠物可以上车", "宠物不可以上车"),
    ("宠物不可以上车", "宠物可以上车"),
    ("员工可以带狗进办公室", "员工禁止带狗进办公室"),
    ("用户喜欢香菜", "用户不喜欢香菜了"),
    ("用户喜欢香菜", "我讨厌香菜"),
    ("用户抽烟", "我已经不抽烟了"),
    ("用户抽烟", "用户不抽烟"),
    ("周末去爬山", "周末不去爬山了"),
    ("回答要简短", "以后回答要详细"),
    ("用户吃猪肉", "用户从不吃猪肉"),
    ("回复里使用表情符号", "回复里不要使用表情符号"),
    ("dogs may board", "dogs may not board"),
    ("Dogs can't board", "dogs can board"),
    ("User likes jazz", "User does not like jazz"),
    ("I love cilantro", "I hate cilantro"),
    ("User eats pork", "User doesn't eat pork"),
    ("Use emojis in replies", "Do not use emojis in replies"),
    ("I drink coffee", "I no longer drink coffee"),
    ("I smoke", "I quit smoking"),
]
REPLACED = [
    ("用户住在上海", "用户搬到北京了"),
    ("用户住在上海", "我现在住在杭州"),
    ("用户住在上海", "用户从上海搬到北京"),
    ("用户在腾讯工作", "用户从腾讯跳槽到字节跳动"),
    ("用户在腾讯工作", "用户从腾讯离职了"),
    ("服务器部署在阿里云", "服务器迁移到腾讯云"),
    ("User drinks coffee every morning", "User gave up coffee"),
    ("My manager is Tom", "My manager is now Sue"),
    ("家在成都", "我上个月搬到了重庆"),
    ("用户在腾讯工作", "我跳槽到字节跳动了"),
    ("用户就职于华为", "用户入职了小米"),
    ("用户的手机号是13800001111", "我的手机号换成13900002222"),
    ("用户的邮箱是a@example.com", "我的邮箱改为b@example.com"),
    ("预算三万", "预算五万"),
    ("装修预算三万", "装修预算提高到五万"),
    ("旅行预算是8000元", "旅行预算降到6000元"),
    ("用户的职位是工程师", "用户的职位是技术总监"),
    ("用户是一名产品经理", "用户升任产品总监了"),
    ("用户用 Vim 写代码", "我改用 VS Code 写代码了"),
    ("用户用 Vim", "用户从 Vim 换成 Emacs 了"),
    ("用户用MySQL", "不用MySQL了，改用PostgreSQL"),
    ("用户叫王芳", "用户改名叫王一诺"),
    ("请叫我小王", "以后叫我王总"),
    ("每天晨跑", "膝伤后改游泳，不再跑步"),
    ("用户每天喝咖啡", "我不喝咖啡了"),
    ("用户经常熬夜", "用户不再熬夜"),
    ("用户是素食者", "我开始吃肉了"),
    ("用户单身", "我结婚了"),
    ("用户今年30岁", "我31岁了"),
    ("用户养了一只猫叫咪咪", "我的猫去世了"),
    ("用中文回答", "请用英文回答"),
    ("项目截止日期是5月1日", "项目截止日期推迟到5月10日"),
    ("User lives in Berlin", "I moved to Munich"),
    ("I live in New York", "User relocated to Boston last month"),
    ("User lives in Lyon", "User moved from Lyon to Paris"),
    ("User works at Google", "I now work at Meta"),
    ("User works for Siemens", "I joined Bosch"),
    ("User works as a nurse", "User was promoted to nurse manager"),
    ("My phone number is 555-0100", "My phone number is now 555-0199"),
    ("User's email is a@example.com", "My email changed to b@example.com"),
    ("The budget is 30k", "The budget is 50k"),
    ("The travel budget is $3000", "The travel budget was raised to $5000"),
    ("User uses Vim", "I switched from Vim to VS Code"),
    ("User uses npm", "I switched to pnpm"),
    ("I use Chrome", "I use Firefox instead of Chrome"),
    ("My name is Ana Lopez", "My name is now Ana Silva"),
    ("Call me Bob", "Call me Robert from now on"),
    ("I run every morning", "I no longer run"),
    ("I swim on Mondays", "I stopped swimming"),
    ("User is vegetarian", "I eat meat again"),
    ("User is single", "I got married"),
    ("User has a cat named Miso", "My cat died"),
    ("Please reply in English", "Reply in German from now on"),
]
APPOINTMENTS = [
    ("会议周四", "会议改到周五"),
    ("项目评审会定于2026-05-07 15:00", "项目评审会推迟到2026-05-08 15:00"),
    ("用户周四和张三开会", "周四和张三的开会改到周五"),
    ("用户下周三去北京出差", "去北京的出差取消了"),
    ("周六聚餐", "周六的聚餐取消了"),
    ("The design review is on Thursday", "The design review was moved to Friday"),
    ("Dentist appointment on Monday at 9am", "The dentist appointment was rescheduled to Tuesday"),
    ("User has a dentist appointment on Monday", "Rescheduled the dentist appointment to Tuesday"),
    ("User is going to a concert on Saturday", "The concert on Saturday was cancelled"),
    ("Team offsite is planned for 2026-06-01", "The team offsite was called off"),
]
CONTAINED = [
    ("用户喜欢咖啡", "用户喜欢咖啡和茶"),
    ("用户在腾讯工作", "用户在腾讯工作，负责支付系统"),
    ("User likes coffee", "User likes coffee and tea"),
    ("User plays chess", "User plays chess with his father"),
]
BOTH_LIVE = [
    ("不同版本分开存", "相同批次分开存"),
    ("用户喜欢咖啡", "用户喜欢茶"),
    ("用户对花生过敏", "用户对虾过敏"),
    ("用户会说法语", "用户会说日语"),
    ("用户的狗叫旺财", "用户的猫叫咪咪"),
    ("用户的猫叫花花", "用户的猫叫咪咪"),
    ("用户的儿子叫小明", "用户的儿子叫小刚"),
    ("用户住在上海", "用户的妈妈搬到北京了"),
    ("用户住在上海", "用户打算搬到北京"),
    ("用户住在上海", "下个月可能搬到北京"),
    ("用户住在上海", "用户以前住在北京"),
    ("用户住在上海", "出差住在北京的酒店"),
    ("用户在北京工作", "用户在腾讯工作"),
    ("用户在腾讯工作", "用户在家工作"),
    ("旅行预算三万", "装修预算五万"),
    ("用户的手机号是13800001111", "妈妈的手机号是13900002222"),
    ("用户用微信", "我改用 VS Code 了"),
    ("用户喜欢咖啡", "用户喜欢咖啡馆"),
    ("用户喜欢苹果", "用户喜欢苹果手机"),
    ("用户喜欢咖啡和茶", "用户不喜欢茶了"),
    ("用户每天跑步", "张三不再跑步"),
    ("用户抽烟喝酒", "用户不再喝酒加班"),
    ("我妈妈喜欢咖啡", "我喜欢咖啡"),
    ("张三的弟弟住在柏林", "张三住在柏林"),
    ("如果下雨，用户不去跑步", "用户不去跑步"),
    ("用户以前喜欢咖啡", "用户喜欢咖啡"),
    ("用户养了一只猫", "外婆去世了"),
    ("张三是李四的老板", "李四是张三的老板"),
    ("不过他喜欢猫", "他不喜欢狗"),
    ("用户认为张三住在北京", "张三住在北京"),
    ("用户在腾讯工作", "用户离开了会场"),
    ("用户特别怕狗", "用户怕狗叫"),
    ("未来想学钢琴", "想学吉他"),
    ("不仅支持导出PDF", "不支持导出PDF"),
    ("预算不超过三万", "预算没有上限"),
    ("User likes coffee", "User likes tea"),
    ("User is allergic to peanuts", "User is allergic to shrimp"),
    ("User speaks French", "User speaks Japanese"),
    ("User has a dog", "User has a cat"),
    ("User lives in Berlin", "My sister moved to Munich"),
    ("User lives in Berlin", "I want to move to Munich"),
    ("User lives in Berlin", "I used to live in Munich"),
    ("User lives in Berlin", "User moved to Postgres"),
    ("User lives in Berlin", "I will live in Munich next year"),
    ("User works at Google", "User works at home on Fridays"),
    ("User works at Google", "I also work for a small startup"),
    ("The travel budget is $3000", "The marketing budget is $5000"),
    ("My phone number is 555-0100", "My office phone number is 555-0199"),
    ("I run a company", "I no longer run"),
    ("I run every morning", "Bob no longer runs"),
    ("I like apple", "I like apple pie"),
    ("The backup server runs Debian", "The server runs Debian"),
    ("Bob trusts Alice", "Alice trusts Bob"),
    ("I lived in Rome", "I live in Rome"),
    ("I like nothing but jazz", "I like jazz"),
    ("User doesn't like tea or coffee", "User likes coffee"),
    ("User likes tea and coffee", "User doesn't like coffee"),
    ("User uses Slack", "I switched to VS Code"),
    ("I want tea or coffee", "I want coffee"),
    ("User might visit Rome in June", "User visits Rome"),
    ("User is a mother", "User is a nurse"),
]
SEVERAL_EVENTS = [
    ("和张三的会议在周四", "和李四的会议改到周五"),
    ("用户喜欢线上会议", "会议取消了"),
    ("用户今天跑了5公里", "用户今天跑了8公里"),
    ("The budget review is on Thursday", "The design review was moved to Friday"),
    ("User met Tom on Monday", "User met Tom on Tuesday"),
]


@pytest.mark.parametrize(("old", "new"), DUPLICATES)
def test_what_is_known_is_skipped(old, new):
    made = verdict(new, "用户会弹钢琴", old)
    assert (made.action, made.target_ids) == ("skip", ("m1",))


@pytest.mark.parametrize(("old", "new"), [*OPPOSITES, *REPLACED, *CONTAINED])
def test_the_newer_statement_replaces_the_older(old, new):
    made = verdict(new, "用户会弹钢琴", old)
    assert (made.action, made.target_ids) == ("update", ("m1",)), made.reason


@pytest.mark.parametrize(("old", "new"), APPOINTMENTS)
def test_moved_and_cancelled_appointments(old, new):
    made = verdict(new, "用户昨天买了自行车", old, kind="episodic")
    assert (made.action, made.target_ids) == ("update", ("m1",)), made.reason


@pytest.mark.parametrize(("old", "new"), BOTH_LIVE)
def test_both_stay(old, new):
    made = verdict(new, old)
    assert (made.action, made.target_ids) == ("store", ()), made.reason


@pytest.mark.parametrize(("old", "new"), SEVERAL_EVENTS)
def test_several_events_stay(old, new):
    made = verdict(new, old, kind="episodic")
    assert (made.action, made.target_ids) == ("store", ()), made.reason


NEIGHBOURS: dict[Kind, list[str]] = {
    "persona": [
        "用户会弹钢琴",
        "The user plays the cello on weekends",
        "用户的妹妹叫小雅",
        "用户喜欢看科幻电影",
    ],
    "episodic": [
        "用户昨天（2026-03-10）买了自行车",
        "用户计划2026年8月去西藏自驾",
        "The user has a piano recital on 30 May 2026",
    ],
    "instruction": ["日期用 ISO 格式", "Sign every email with Lin", "引用要注明出处"],
}
"""What must be left alone."""
NEWER = [
    ("persona", "用户今年 30 岁", "我今年31了"),
    ("persona", "用户的女儿今年 5 岁", "我女儿6岁了"),
    ("persona", "用户用的手机是 iPhone 13", "我手机换成华为Mate 60了"),
    ("persona", "用户的邮箱是 a@x.com", "我邮箱换成 b@y.com 了"),
    ("persona", "The user is 34 years old", "I'm 35 now"),
    ("persona", "The user's wife is a nurse", "My wife is a doctor now"),
    ("persona", "The user's boss is Karen", "My boss is now Ahmed"),
    ("persona", "The user's team uses Jira", "We moved from Jira to Linear"),
    ("persona", "The user goes to the gym every morning", "I stopped going to the gym"),
    ("persona", "The user studies at MIT", "I transferred to Stanford"),
    ("persona", "The user writes Java", "I write Kotlin now instead of Java"),
    ("persona", "The user uses a Windows laptop", "I use a Mac now"),
    ("episodic", "用户的会议在 2026 年 3 月 18 日", "会议推迟到3月20号（2026-03-20）了"),
    ("episodic", "用户计划 2026 年 3 月 15 日去看牙", "看牙改到3月22号（2026-03-22）了"),
    ("episodic", "The user has a meeting on 12 March 2026", "the meeting is now on March 13 (2026-03-13)"),
    ("persona", "用户住在广州", "我搬家了，现在住佛山了"),
    ("persona", "用户住在成都", "现在住重庆了，不在成都了"),
    ("persona", "用户家住天津", "我已经不在天津住了，搬到沈阳去了"),
    ("persona", "用户现居上海浦东", "我搬到嘉兴了"),
    ("persona", "用户租住在朝阳区", "我现在住海淀"),
    ("persona", "用户在一家广告公司做文案", "我现在在一家游戏公司当策划"),
    ("persona", "用户在医院做护士", "我现在在社区诊所做行政"),
    ("persona", "用户在中学教语文", "我换到 ByteDance 了"),
    ("persona", "用户是小学老师", "现在在一家教培公司当教研主管"),
    ("persona", "用户在阿里做后端", "我跳槽到拼多多了"),
    ("persona", "用户单身", "我结婚了"),
    ("persona", "用户已婚", "我离婚了"),
    ("persona", "用户喝咖啡", "我不喝咖啡了"),
    ("persona", "用户抽烟", "我戒烟了"),
    ("persona", "用户爱吃羊肉", "我不吃羊肉"),
    ("persona", "用户讨厌榴莲", "我现在爱吃榴莲了"),
    ("persona", "用户家不允许养狗", "我家可以养狗"),
    ("persona", "用户的房子，可以抽烟", "我的房子不可以抽烟"),
    ("persona", "用户用 Notion 做笔记", "我改用 Obsidian 做笔记了"),
    ("persona", "用户每周三健身", "我不健身了"),
    ("persona", "用户吃素", "我现在吃肉了"),
    ("persona", "用户没有孩子", "我女儿叫小满，今年一岁"),
    ("persona", "用户养了一只叫豆包的猫", "我家猫叫豆包，是只布偶，今年两岁"),
    ("persona", "用户有一个女儿", "我女儿叫糖糖，今年五岁"),
    ("persona", "用户在腾讯工作", "我在腾讯做数据分析师"),
    ("persona", "用户对坚果过敏", "我对坚果过敏，严重的时候要打针"),
    ("persona", "The user lives in Bristol", "I moved to Cardiff"),
    ("persona", "The user lives in Leeds", "I'm in Manchester now"),
    ("persona", "The user is based in Porto", "We relocated to Madrid"),
    ("persona", "The user works at Nike", "I work for Adidas now"),
    ("persona", "The user works as a nurse at a clinic", "I joined a hospital as a ward manager"),
    ("persona", "The user is a barista", "I'm a data analyst now"),
    ("persona", "The user drinks coffee every morning", "I quit coffee"),
    ("persona", "The user smokes", "I quit smoking"),
    ("persona", "The user is vegan", "I'm not vegan anymore"),
    ("persona", "The user eats meat", "I'm vegetarian now"),
    ("persona", "The user loves horror movies", "I can't stand horror movies"),
    ("persona", "Smoking is allowed on the user's balcony", "smoking isn't allowed on my balcony"),
    ("persona", "Pets are not allowed in the user's building", "pets are allowed in my building now"),
    ("persona", "The user can drive", "I can't drive"),
    ("persona", "The user is single", "I got engaged"),
    ("persona", "The user has no pets", "We adopted a cat"),
    ("persona", "The user has a dog named Rex", "Rex died"),
    ("persona", "The user has a dog", "my dog Biscuit is a corgi, 3 years old"),
    ("persona", "The user lives in London", "I live in Hackney, London"),
    ("persona", "The user is a nurse", "I'm a pediatric nurse at a hospital in Leeds"),
    ("persona", "用户在一家银行做风控", "update：我换到 Sea 了，做 risk analyst"),
    ("persona", "用户爱吃 sushi", "我不吃 sushi"),
    ("persona", "用户是 vegan", "我不是 vegan 了"),
    ("persona", "用户家在宁波", "我搬回温州了"),
    ("persona", "用户的车，可以带狗", "我的车不可以带狗"),
    ("persona", "用户在华为做测试工程师", "我换到小米了"),
    ("persona", "用户是研究生", "我毕业了，现在在研究所做研究员"),
    ("persona", "用户不会做饭", "我现在会做饭了"),
    ("persona", "用户对猫毛过敏", "我对猫毛不过敏了"),
    ("persona", "用户喜欢喝奶茶", "我戒奶茶了"),
    ("persona", "用户的女儿叫朵朵", "我女儿叫朵朵，今年上一年级"),
    ("persona", "用户对牛奶过敏", "我对牛奶过敏，喝了会起疹子"),
    ("persona", "The user lives in Chicago", "we moved to Austin last week (2026-03-02 ~ 2026-03-08)"),
    ("persona", "The user works in marketing at Unilever", "I joined Nestlé as brand manager"),
    ("persona", "The user is a junior developer", "I got promoted to senior developer"),
    ("persona", "The user likes sushi", "I don't eat sushi anymore"),
    ("persona", "The user doesn't like cats", "I love cats"),
    ("persona", "The user cannot swim", "I can swim now"),
    ("persona", "The user rents a flat in Leeds", "I live in York now"),
    ("persona", "The user is a student", "I'm a teacher now"),
    ("persona", "Guests are allowed in the user's dorm", "guests are not allowed in my dorm"),
    ("persona", "The user drives to work", "I no longer drive to work"),
    ("persona", "The user is allergic to cats", "I'm not allergic to cats anymore"),
    ("persona", "The user has a daughter", "my daughter Lena is six"),
    ("persona", "The user works at Siemens", "I work at Siemens as a mechanical engineer"),
    ("episodic", "用户计划10月去云南旅行", "云南不去了，请不下来假"),
    ("episodic", "用户2026年3月20日下午三点有面试", "周五（2026-03-20）的面试取消了"),
    ("episodic", "用户计划2026年5月1日办婚礼", "婚礼推迟到10月1日（2026-10-01）了"),
    ("episodic", "用户2026年4月10日出发去东京", "去东京的航班改到4月12日（2026-04-12）了"),
    ("episodic", "用户报名了11月的上海马拉松", "上海马拉松我不跑了"),
    ("episodic", "用户预约了3月18日体检", "体检提前到3月16日（2026-03-16）了"),
    ("episodic", "项目原定2026-04-01上线", "上线时间推迟到4月15日（2026-04-15）"),
    ("episodic", "团队决定用 MySQL", "我们最后决定用 PostgreSQL，不用 MySQL 了"),
    ("episodic", "The user plans a trip to Greece in July 2026", "we're not going to Greece after all"),
    ("episodic", "The user plans a holiday in Norway in August 2026", "the Norway trip is off"),
    (
        "episodic",
        "The user has an interview at Acme on 2026-04-02",
        "my interview at Acme was moved to April 7 (2026-04-07)",
    ),
    (
        "episodic",
        "The user's flight to Rome leaves on 5 May 2026",
        "my flight to Rome got rescheduled to May 6 (2026-05-06)",
    ),
    (
        "episodic",
        "The user is running the Leeds marathon on 10 May 2026",
        "I'm not running the marathon after all",
    ),
    (
        "episodic",
        "The user is hosting a dinner on 14 March 2026",
        "the dinner on Saturday (2026-03-14) is cancelled",
    ),
    ("episodic", "The team chose React for the new frontend", "we're going with Vue instead of React"),
    ("episodic", "用户的 demo 定在 2026-04-10", "demo 改到 2026-04-17 了"),
    (
        "episodic",
        "The user has a meeting with Lin on 2026-03-19",
        "跟 Lin 的 meeting 改到周五（2026-03-20）了",
    ),
    ("episodic", "用户预定2026年5月2日入住三亚的酒店", "三亚的酒店退了"),
    ("episodic", "用户4月去张家界团建", "团建取消了"),
    ("episodic", "用户2026-03-18有一场家长会", "家长会改到3月19日（2026-03-19）了"),
    ("episodic", "用户计划2026年9月读博", "我不读博了"),
    ("episodic", "用户准备5月搬家", "搬家推迟到6月（2026-06）了"),
    ("episodic", "The user plans to visit Prague in May 2026", "we're not going to Prague anymore"),
    (
        "episodic",
        "The user has a yoga class on 2026-03-14",
        "the yoga class was moved to Sunday (2026-03-15)",
    ),
    ("episodic", "The user will move house on 1 April 2026", "the move got pushed to April 15 (2026-04-15)"),
    ("episodic", "The user booked a table at Noma for 2026-04-04", "we cancelled the table at Noma"),
    ("episodic", "The user decided to use Kafka", "we decided to use NATS instead of Kafka"),
    ("instruction", "回复用表格", "以后别用表格了，改成段落"),
    ("instruction", "用户要求用英文回复", "以后都用中文回复我"),
    ("instruction", "回答要简短", "以后回答详细一点"),
    ("instruction", "称呼用户为小李", "以后叫我李姐"),
    ("instruction", "代码注释用中文写", "以后代码注释一律用英文写"),
    ("instruction", "回复中使用表情符号", "以后回复里别用表情符号了"),
    ("instruction", "总是先给结论", "以后不要先给结论，先讲过程"),
    ("instruction", "Reply in English", "please reply in Dutch from now on"),
    ("instruction", "Keep answers short", "From now on give me detailed answers"),
    ("instruction", "Use imperial units", "Going forward, use metric units"),
    ("instruction", "Call the user Alex", "Call me Sandy from now on"),
    ("instruction", "Use a formal tone", "From now on use a casual tone"),
    ("instruction", "Write code examples in Java", "From now on write code examples in Kotlin"),
    ("instruction", "commit message 用中文写", "以后 commit message 一律用 English 写"),
    ("instruction", "回复控制在100字以内", "以后回答详细点"),
    ("instruction", "用列表回答", "以后改用表格"),
    ("instruction", "语气要正式", "以后说话随意一点"),
    ("instruction", "用户希望被称为老张", "以后叫我张哥"),
    ("instruction", "邮件用中文写", "以后邮件一律用英文写"),
    ("instruction", "温度用摄氏度", "以后温度都用华氏度"),
    ("instruction", "Write in a formal tone", "From now on keep it casual"),
    ("instruction", "Always reply in German", "From now on reply in English"),
    ("instruction", "Use American spelling", "in future use British spelling"),
    ("instruction", "Answer at length with detailed explanations", "keep answers short from now on"),
    ("instruction", "Show prices in dollars", "always quote prices in euros"),
    ("instruction", "Use tables", "Don't use tables anymore"),
]
"""A memory in the third person, and what the user says of the same later."""
AGAIN = [
    ("persona", "用户对芒果过敏", "我芒果过敏"),
    ("persona", "用户住在武汉", "我家在武汉"),
    ("persona", "用户不吃辣", "我吃不了辣"),
    ("persona", "用户是一名会计", "我做会计的"),
    ("persona", "用户养了一只猫", "我有一只猫"),
    ("persona", "用户养了一只叫豆包的猫", "我家猫叫豆包"),
    ("persona", "用户喜欢喝乌龙茶", "我爱喝乌龙茶"),
    ("persona", "The user is allergic to shellfish", "As I said, I'm allergic to shellfish"),
    ("persona", "The user lives in Cardiff", "I'm based in Cardiff"),
    ("persona", "The user is a nurse", "I work as a nurse"),
    ("persona", "The user dislikes olives", "I can't stand olives"),
    ("persona", "The user has a cat called Miso", "our cat is called Miso"),
    ("persona", "The user can't drive", "I don't know how to drive"),
    ("persona", "用户讨厌下雨天", "我不喜欢下雨天"),
    ("persona", "用户喜欢打篮球", "我爱打篮球"),
    ("persona", "用户会说粤语", "我会粤语"),
    ("persona", "用户不喝酒", "我滴酒不沾"),
    ("persona", "用户的女儿叫朵朵", "我女儿叫朵朵"),
    ("persona", "The user hates mushrooms", "I can't stand mushrooms"),
    ("persona", "The user enjoys hiking", "I love hiking"),
    ("persona", "The user is allergic to nuts", "I have an allergy to nuts"),
    ("persona", "The user works at Siemens", "I work for Siemens"),
    ("persona", "The user has a dog called Rex", "my dog is called Rex"),
    ("episodic", "用户计划2026年5月去日本旅行", "我们5月（2026-05）要去日本旅行"),
    ("episodic", "用户2026-03-20下午三点有面试", "我周五（2026-03-20）下午三点（15:00）有个面试"),
    ("episodic", "The user's wedding is on 14 June 2026", "The wedding is on June 14 (2026-06-14)"),
    ("instruction", "始终用中文回答用户", "请你以后都用中文回答我"),
    ("instruction", "回答时不要使用表情符号", "回复里别用表情符号"),
    ("instruction", "Answer in French", "Always answer in French please"),
    ("instruction", "用中文回复", "之后都用中文回复我"),
    ("instruction", "Use metric units", "Going forward, use metric units"),
]
APART = [
    ("persona", "用户的女儿今年 8 岁", "我女儿3岁了"),
    ("persona", "用户今年 30 岁", "我女儿今年10岁"),
    ("persona", "用户的女儿今年 5 岁", "我儿子6岁了"),
    ("persona", "The user is 34 years old", "My brother is 35 now"),
    ("persona", "The user uses Python", "I use Docker now"),
    ("persona", "The user's wife is a nurse", "My mother is a doctor now"),
    ("persona", "The user's team uses Jira", "We moved from Slack to Teams"),
    ("persona", "The user writes Java", "I write docs now instead of tickets"),
    ("persona", "The user studies at MIT", "My sister transferred to Stanford"),
    ("persona", "用户的手机是 iPhone 13", "我老婆的手机换成华为了"),
    ("episodic", "用户的会议在 2026 年 3 月 18 日", "面试推迟到3月20号（2026-03-20）了"),
    ("episodic", "The user has a meeting on 12 March 2026", "the demo is now on March 13 (2026-03-13)"),
    ("persona", "用户每天去健身房", "我不去游泳了"),
    ("persona", "用户住在杭州", "我爸妈搬到南京了"),
    ("persona", "用户在银行工作", "我现在在写论文"),
    ("persona", "用户在银行工作", "我加入了一个读书会"),
    ("persona", "用户是银行柜员", "我现在是素食者"),
    ("persona", "用户在银行工作", "我现在在上瑜伽课"),
    ("persona", "用户在银行工作", "我换到靠窗的座位了"),
    ("persona", "用户是设计师", "我是左撇子"),
    ("persona", "用户是设计师", "我现在是两个孩子的妈妈"),
    ("persona", "用户是设计师", "我是四川人"),
    ("persona", "用户在腾讯做设计师", "我现在在健身房练力量"),
    ("persona", "The user works at a bank", "I joined a gym"),
    ("persona", "The user works at a bank", "I joined a choir"),
    ("persona", "The user is a designer", "I'm a vegetarian now"),
    ("persona", "The user is a designer", "I'm a dad now"),
    ("persona", "The user is a designer", "I'm a morning person now"),
    ("persona", "The user works at a bank", "I'm with my parents now"),
    ("persona", "The user works at a bank", "I'm at the office now"),
    ("persona", "用户住在成都", "我现在住院了"),
    ("persona", "用户住在成都", "我在北京出差"),
    ("persona", "用户住在成都", "我家在装修"),
    ("persona", "The user lives in Leeds", "I'm in love"),
    ("persona", "The user lives in Leeds", "I'm in a band now"),
    ("persona", "The user lives in Leeds", "I grew up in York"),
    ("persona", "The user lives in Leeds", "My home office is in the attic"),
    ("persona", "用户喜欢猫", "我家猫叫米粒"),
    ("persona", "用户吃鱼", "我不会做鱼"),
    ("persona", "用户会做饭", "我不喜欢做饭"),
    ("persona", "用户喜欢跑步", "我不会跑马拉松"),
    ("persona", "用户不喝牛奶", "我喜欢牛奶的味道"),
    ("persona", "The user drinks tea", "I don't drink coffee"),
    ("persona", "The user likes dogs", "I'm allergic to dogs"),
    ("persona", "The user has a dog called Rex", "my dog Pepper is a poodle"),
    ("persona", "The user's sister is a nurse", "my sister is called Ana"),
    ("episodic", "用户计划5月去成都", "我5月（2026-05）在成都买了房"),
    ("episodic", "用户在成都开了公司", "成都的会取消了"),
    ("episodic", "The user moved to Oslo in January 2026", "the Oslo trip is off"),
    ("episodic", "用户决定用 Redis 做缓存", "我们决定用 Kafka 做队列"),
    ("episodic", "The team decided to use Redis", "we decided to hire Ana instead of Bob"),
    ("instruction", "代码示例用 Python", "以后日志用英文写"),
    ("instruction", "邮件要正式", "以后回答随意一点"),
    ("instruction", "用中文回复", "以后总结要简短"),
    ("instruction", "Use tables for comparisons", "From now on use British spelling"),
    ("persona", "用户喜欢狗", "我家猫叫米粒"),
    ("episodic", "用户3月25日有家长会", "3月25日（2026-03-25）的聚餐取消了"),
    ("instruction", "用简体中文回复", "标题不要超过20个字"),
    ("persona", "The user is learning Korean", "I'm learning Thai"),
    (
        "episodic",
        "The user's flight to Oslo is on 2026-03-14",
        "the concert was moved to March 20 (2026-03-20)",
    ),
    ("instruction", "Be polite and formal", "always write tests first"),
    ("persona", "用户养了一只猫", "我养了一只狗"),
    ("persona", "用户对芒果过敏", "我对花粉过敏"),
    ("persona", "用户的姐姐在腾讯工作", "我跳槽到美团了"),
    ("persona", "用户在北京出生", "我现在住上海"),
    ("persona", "用户会说英语", "我会说法语"),
    ("persona", "用户的老家在湖南", "我现在住深圳"),
    ("persona", "用户喜欢红茶", "我喜欢绿茶"),
    ("persona", "用户的儿子三岁", "我女儿今年五岁"),
    ("persona", "用户用 iPhone", "我用 Windows"),
    ("persona", "用户在杭州上大学", "我现在在上海工作"),
    ("persona", "The user is allergic to shellfish", "I'm allergic to latex"),
    ("persona", "The user's mother lives in Leeds", "I moved to York"),
    ("persona", "The user's wife works at Nike", "I work for Adidas now"),
    ("persona", "The user has a cat", "We adopted a dog"),
    ("persona", "The user grew up in Leeds", "I live in York"),
    ("persona", "The user speaks Spanish", "I speak French"),
    ("persona", "The user studied at MIT", "I work at Apple"),
    ("persona", "用户的弟弟是医生", "我是老师"),
    ("persona", "用户家在宁波", "我公司在温州"),
    ("persona", "用户住在上海", "我在杭州出差"),
    ("persona", "用户喜欢喝奶茶", "我不吃辣"),
    ("persona", "用户会说粤语", "我不会说上海话"),
    ("persona", "用户的狗叫阿福", "我家猫叫阿福"),
    ("persona", "用户喜欢狗", "我对狗毛过敏"),
    ("persona", "用户用 Python 做数据分析", "我现在学 Rust"),
    ("persona", "用户在银行工作", "我老公在学校当老师"),
    ("persona", "The user's brother lives in Chicago", "I live in Austin now"),
    ("persona", "The user enjoys hiking", "I don't like skiing"),
    ("persona", "The user works at Siemens", "My wife works at Bosch"),
    ("persona", "The user can swim", "I can't drive"),
    ("persona", "The user has a dog called Rex", "my cat is called Rex"),
    ("persona", "The user visited Chicago in May", "I live in Austin"),
    ("episodic", "用户计划10月去云南旅行", "我10月（2026-10）要去拍婚纱照"),
    ("episodic", "用户3月20日（2026-03-20）要看牙", "周五（2026-03-20）的面试取消了"),
    ("episodic", "用户2026年3月10日和张总开会", "和李总的会改到3月12日（2026-03-12）了"),
    ("episodic", "用户3月9日去了健身房", "我3月10日（2026-03-10）去参加了婚礼"),
    ("episodic", "The user plans a trip to Greece in July 2026", "the Norway trip is off"),
    ("episodic", "The user met Sam on 9 March 2026", "I'm meeting Sam on March 12 (2026-03-12)"),
    (
        "episodic",
        "The user flew to Rome on 5 January 2026",
        "my flight to Oslo got rescheduled to May 6 (2026-05-06)",
    ),
    ("episodic", "用户计划4月去三亚", "我4月（2026-04）要去重庆出差"),
    ("episodic", "用户2026-03-18有一场家长会", "周五（2026-03-13）的组会取消了"),
    ("episodic", "用户2026-03-10做了体检", "体检改到3月20日（2026-03-20）了"),
    ("episodic", "The user plans to visit Prague in May 2026", "I'm going to Vienna in May (2026-05)"),
    ("episodic", "The user has a yoga class on 2026-03-14", "the concert was moved to Sunday (2026-03-15)"),
    (
        "episodic",
        "The user had dinner with Ana on 2026-03-01",
        "dinner with Ana is moved to March 20 (2026-03-20)",
    ),
    ("instruction", "回复用表格", "以后代码里都加注释"),
    ("instruction", "用英文写代码注释", "以后都用中文回复我"),
    ("instruction", "回答要简短", "以后回答里附上来源"),
    ("instruction", "称呼用户为小李", "以后都用中文回复我"),
    ("instruction", "Keep answers short", "Use metric units"),
    ("instruction", "Call the user Alex", "Reply in English from now on"),
    ("instruction", "Use British spelling", "Going forward, use metric units"),
    ("instruction", "邮件用中文写", "以后注释都用英文写"),
    ("instruction", "语气要正式", "以后别用表情"),
    ("instruction", "Always reply in German", "Write code comments in English"),
    ("instruction", "Use tables", "Call me Kim"),
]


def among_others(kind: Kind, old: str, new: str) -> Verdict:
    before, *behind = NEIGHBOURS[kind]
    [made] = judge(compared((new, [before, old, *behind]), kind=kind))
    return made


@pytest.mark.parametrize(("kind", "old", "new"), NEWER)
def test_what_the_user_says_later_replaces_the_memory_that_it_is_about(kind, old, new):
    made = among_others(kind, old, new)
    assert (made.action, made.target_ids) == ("update", ("m1",)), made.reason


@pytest.mark.parametrize(("kind", "old", "new"), AGAIN)
def test_what_is_said_again_in_other_words_is_skipped(kind, old, new):
    made = among_others(kind, old, new)
    assert (made.action, made.target_ids) == ("skip", ("m1",)), made.reason


@pytest.mark.parametrize(("kind", "old", "new"), APART)
def test_what_is_about_something_else_is_stored(kind, old, new):
    made = among_others(kind, old, new)
    assert (made.action, made.target_ids) == ("store", ()), made.reason


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("persona", "用户在银行做柜员，喜欢下棋", "我跳槽到一家药厂了"),
        ("persona", "The user lives in Leeds with his wife Ada", "I moved to York"),
        ("persona", "用户没有孩子，养了一只猫", "我女儿叫小满"),
        ("instruction", "用表格回答，并附上来源", "以后改用列表"),
    ],
)
def test_a_memory_that_says_something_else_too_is_not_lost(kind, old, new):
    assert among_others(kind, old, new).action == "store"


def test_an_event_that_two_memories_could_mean_is_left_alone():
    olds = ["用户计划5月去青岛旅行", "用户计划9月去青岛旅行"]
    [made] = judge(compared(("青岛不去了", olds), kind="episodic"))
    assert made.action == "store"


def test_what_an_earlier_item_replaced_is_not_replaced_again():
    first, second = judge(compared(("预算五万", ["预算三万"]), ("预算八万", ["预算三万"])))
    assert (first.action, first.target_ids) == ("update", ("m0",))
    assert (second.action, second.target_ids, second.target_items) == ("update", (), (0,))


def test_the_same_said_twice_in_one_batch_is_kept_once():
    first, second = judge(compared(("用户喜欢爵士乐", []), ("我很喜欢爵士乐。", [])))
    assert first.action == "store"
    assert (second.action, second.target_ids, second.target_items) == ("skip", (), (0,))


def test_a_value_set_back_within_a_batch_is_not_taken_for_known():
    _, back = judge(compared(("预算五万", ["预算三万"]), ("预算改回三万，即预算三万", ["预算三万"])))
    assert back.action != "skip"


def test_an_absolute_instruction_is_never_replaced():
    absolute = known(0, "回复里使用表情符号", "instruction", priority=-1)
    item = Compared(Proposal("回复里不要使用表情符号", "instruction"), (absolute,))
    assert judge(Comparison(SCOPE, "zh", (item,), NOW))[0].action == "store"


def test_kinds_are_not_mixed():
    old = known(0, "用户住在上海", "persona")
    for kind in ("episodic", "instruction"):
        item = Compared(Proposal("用户搬到北京了", kind), (old,))
        assert judge(Comparison(SCOPE, "zh", (item,), NOW))[0].action == "store"


def test_all_of_the_same_attribute_are_replaced():
    made = verdict("User moved to Oslo", "User lives in Rome", "User likes pasta", "User resides in Milan")
    assert (made.action, made.target_ids) == ("update", ("m0", "m2"))


def test_two_appointments_that_could_be_meant_are_left_alone():
    made = verdict(
        "The review was moved to Friday", "Design review on Monday", "Code review on Tuesday", kind="episodic"
    )
    assert made.action == "store"


PIECES = st.sampled_from(
    "用户 我 不 没 别 住在 搬到 上海 北京 从 改到 改成 换成 预算 三万 5 万 周四 会议 取消 不再 跑步 喜欢 和 ， 。 了 的 用 Vim VS Code "  # noqa: SIM905
    "I user don't no longer moved to lives in Berlin from switched budget is now 30k meeting Friday and , . not like".split(
        " "
    )
)
TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(PIECES, max_size=40).map("".join),
    st.lists(PIECES, max_size=40).map(" ".join),
)


@given(st.lists(st.tuples(TEXTS, st.lists(TEXTS, max_size=4)), max_size=4))
def test_any_text_gets_verdicts_within_bounds(items):
    comparison = compared(*items)
    verdicts = judge(comparison)
    assert verdicts == judge(comparison)
    assert [made.item for made in verdicts] == list(range(len(items)))
    consumed: list[str] = []
    for made, item in zip(verdicts, comparison.items, strict=True):
        assert set(made.target_ids) <= {one.id for one in item.neighbours}
        assert all(0 <= number < made.item for number in made.target_items)
        assert made.action in ("store", "skip", "update")
        assert (made.action == "store") == (not made.target_ids and not made.target_items)
        consumed += made.target_ids if made.action == "update" else ()
    assert len(consumed) == len(set(consumed))


@given(TEXTS, TEXTS)
def test_a_negation_more_or_less_is_never_skipped(new, old):
    if read(new).tokens and read(old).tokens and read(new).negations != read(old).negations:
        assert verdict(new, old).action != "skip"
    if opposite(read(new), read(old)):
        assert verdict(new, old).action == "update"
