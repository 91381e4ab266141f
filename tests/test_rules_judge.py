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
