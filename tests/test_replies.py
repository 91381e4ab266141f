"""Replies of models: chatty, fenced, broken, cut off and hostile (case 32 as a kind), and apologies (case 36)."""

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore.errors import LLMRejected
from memstore.replies import MAX_DEPTH, MAX_REPLY_CHARS, is_apology, read_json, read_text

ONE = [{"content": "甲"}]
A = json.dumps(ONE, ensure_ascii=False)
FENCE = "```"


def items(value):
    if isinstance(value, list):
        return all(isinstance(item, dict) and "content" in item for item in value)
    return isinstance(value, dict) and "content" in value


GOOD = {
    "bare": A,
    "fence marked json": f"{FENCE}json\n{A}\n{FENCE}",
    "fence marked JSON, on one line": f"{FENCE}JSON {A}{FENCE}",
    "fence without a mark": f"{FENCE}\n{A}\n{FENCE}",
    "fence of tildes": f"~~~json\n{A}\n~~~",
    "fence that is never closed": f"{FENCE}json\n{A}",
    "prose around": f"Sure! Here it is:\n\n{A}\n\nHope this helps.",
    "brackets in prose": f"[note] see [1 of 2], {{x}} and [link](http://a.b/c):\n{A}\n[end]",
    "boxes of a list": f"- [ ] think\n- [x] write\n{A}\n- [ ] rest",
    "scratch, then json": f'{FENCE}\n[{{"content": "draft"}}]\n{FENCE}\nnow:\n{FENCE}json\n{A}\n{FENCE}',
    "json, then another fence": f'{FENCE}json\n{A}\n{FENCE}\ne.g.\n{FENCE}\n[{{"content": "x"}}]\n{FENCE}',
    "scratch cut off, then json": f'{FENCE}\n[{{"content": "dra\n{FENCE}\n{FENCE}json\n{A}\n{FENCE}',
    "two fences without marks": f'{FENCE}\n[{{"content": "draft"}}]\n{FENCE}\n{FENCE}\n{A}\n{FENCE}',
    "two in prose": f'First [{{"content": "draft"}}], better {A}',
    "comma after the last item": A[:-1] + " ,\n]",
    "comma after the array": A + ",",
    "commas after item and field": '[{"content": "甲",},]',
    "thoughts": f'<think>maybe [{{"content": "no"}}] or ["x</think>\n{A}',
    "thoughts, other mark": f"<THINKING>\n[]\n</THINKING>\n{A}",
    "thoughts opened in the prompt": f'so [{{"content": "no"}}]\n</think>\n{A}',
    "byte order mark": f"\ufeff{A}",
    "raw line break after": f"\r\n{A}\r\n",
    "mention of [] behind": f"{A}\n(I would have answered [] for nothing.)",
    "a key twice": '[{"content": "old", "content": "甲"}]',
}


@pytest.mark.parametrize("reply", GOOD.values(), ids=GOOD)
def test_what_can_be_read_is_read(reply):
    assert read_json(reply, items) == ONE


def test_a_single_object_is_left_to_the_caller():
    assert read_json(f"Here: {A[1:-1]}", items) == ONE[0]


def test_objects_one_a_line_are_one_array():
    assert read_json('{"content": "a"}\n{"content": "b"},\n{"content": "c"}', items) == [
        {"content": c} for c in "abc"
    ]


@pytest.mark.parametrize(
    "reply",
    ["[]", "[ ]", f"{FENCE}json\n[]\n{FENCE}", "Nothing to keep: []", "[\n]", f"<think>{A}</think>[]"],
)
def test_an_empty_array_is_an_answer(reply):
    assert read_json(reply, items) == []


def test_an_empty_array_at_the_end_revokes_a_draft():
    assert read_json(f"Draft: {A}\nAll of it is small talk, so: []", items) == []


@pytest.mark.parametrize(
    "text",
    [
        f"run {FENCE}pip install x{FENCE} first",
        f"line\n{FENCE}json\n[]\n{FENCE}\nend",
        'say "hi", [x], {y}',
        'a \\ b \\" c',
        "<think>no</think>",
        "tail,]",
        "tab\tand\nbreak",
        "😀 \u2028 é",
        ", } ,]",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "around", ["{}", FENCE + "json\n{}\n" + FENCE, "See [this]:\n{}\nDone.", FENCE + "\n{}\n" + FENCE]
)
def test_texts_come_back_unharmed(text, around):
    value = [{"content": text}]
    for ascii_only in (True, False):
        reply = around.replace("{}", json.dumps(value, ensure_ascii=ascii_only))
        assert read_json(reply, items) == value


def test_raw_line_breaks_in_a_text_are_kept():
    assert read_json(f'[{{"content": "a\n{FENCE}\nb"}}]', items) == [{"content": f"a\n{FENCE}\nb"}]


def test_lone_surrogates_are_replaced_and_pairs_kept():
    assert read_json(r'[{"content": "\ud800x\ud83d\ude00\udc00"}]', items) == [{"content": "�x😀�"}]
    assert read_json('[{"content": "\ud800x\ud83d\ude00"}]', items) == [{"content": "�x😀"}]
    assert read_json(r'[{"content": "x", "\udfff": 1}]', items) == [{"content": "x", "�": 1}]


TWO = '[{"content": "a"}, {"content": "b"}]'
BAD = {
    "empty": "",
    "blank": " \n\t",
    "a mark alone": "\ufeff",
    "prose": "There is nothing of note.",
    "null": "null",
    "another object": "{}",
    "another array": "[1, 2]",
    "commas alone": "[,]",
    "two commas": '[{"content": "a"},,]',
    "no comma": '[{"content": "a"} {"content": "b"}]',
    "quotes within": '[{"content": "he said "no" to it"}, {"content": "b"}]',
    "a bracket too many": '[{"content": "a"}], {"content": "b"}]',
    "a bracket too few": '"content": "a"}, {"content": "b"}]',
    "cut off behind a comma": '{"content": "a"}, {"content": "b"}, ',
    "cut off behind a bracket": '{"content": "a"}, {',
    "an item closed early": '[{"content": "a"}, "kind": "persona"}, {"content": "b"}]',
    "a list closed early": '[{"content": "a", "ids": ["x", ]"y"]}, {"content": "b"}]',
    "nothing, and more of it": '[]"content": "a"}]',
    "the rest of a broken one in its fence": f'{FENCE}json\n[{{"content" "a"}}]\n{{"content": "b"}}\n{FENCE}',
    "single quotes": "[{'content': 'a'}]",
    "comments": '[{"content": "a"} /* and */, {"content": "b"}]',
    "NaN": '[{"content": NaN}, {"content": "b"}]',
    "NaN first": '[NaN, {"content": "b"}]',
    "Infinity": '[{"content": -Infinity}]',
    "a float without end": '[{"content": 1e999}]',
    "5,000 digits": f'[{{"content": {"1" * 5000}}}]',
    "nested too deep": "[" * 100_000 + "]" * 100_000,
    "nested too deep, open": "[" * 100_000,
    "objects nested too deep": '{"content":' * 100_000 + "1" + "}" * 100_000,
    "thoughts without end": f"<think>{A}",
    "thoughts alone": f"<think>{A}</think>",
    "thoughts alone, opened in the prompt": f"{A}</think>",
    "the answer is cut off behind a draft": f"Draft: {A}\nFinal:\n{TWO[:-5]}",
    "the answer is broken behind a draft": f'Draft: {A}\nFinal:\n[{{"content" "b"}}]',
    "fence closed over a cut": f'{FENCE}json\n[{{"content": "a"}}, {{"content": "b\n{FENCE}',
    "too long": " " * MAX_REPLY_CHARS + A,
}


@pytest.mark.parametrize("reply", BAD.values(), ids=BAD)
def test_what_would_have_to_be_guessed_is_refused(reply):
    with pytest.raises(LLMRejected, match="stays pending") as refused:
        read_json(reply, items)
    assert "content" not in str(refused.value)


@pytest.mark.parametrize("before", ["", "Here you are:\n", f"{FENCE}json\n"])
def test_a_cut_at_any_place_is_noticed(before):
    """Nothing inside of a value that was cut off is taken for the answer."""
    whole = json.dumps([{"content": 'a "b" [c]', "n": [1, {"content": "x"}]}, {"content": "d"}])
    for end in range(1, len(whole)):
        with pytest.raises(LLMRejected):
            read_json(before + whole[:end], items)


WHOLE = json.dumps(
    [{"content": f'{name} "x" [y] {{z}}', "ids": ["m1", "m2"], "n": {"content": "no"}} for name in "abc"]
)


@settings(max_examples=1_000, deadline=None)
@given(
    st.sampled_from(["@", f"{FENCE}json\n@\n{FENCE}", "Here [1]:\n@\nok", '{"scene": "s", "memories": @}']),
    st.lists(
        st.tuples(st.integers(0, 400), st.sampled_from([*'[]{}",:\\ n1', ""]), st.booleans()),
        min_size=1,
        max_size=2,
    ),
)
def test_damage_never_drops_an_item_unseen(around, damage):
    """One or two characters more, fewer or others: all three items come back, or none."""

    def memories(value):
        return value.get("memories", [value]) if isinstance(value, dict) else value

    def shape(value):
        listed = memories(value)
        return isinstance(listed, list) and all(
            isinstance(item, dict) and "content" in item for item in listed
        )

    reply = around.replace("@", WHOLE)
    for place, put, instead in damage:
        at = place % len(reply)
        reply = reply[:at] + put + reply[at + instead :]
    try:
        found = memories(read_json(reply, shape))
    except LLMRejected:
        return
    assert len(found) == 3


def test_a_depth_that_real_replies_have_is_read():
    deep = "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2)
    assert read_json(f'[{{"content": {deep}}}]', items)


HUGE = ["[[[[", "{{{{", '{"', '"\\', '["\\', "[1,", "[n ", "[ ]", "[]", "{} ", "[   ", "<think>", "</think>", FENCE,
        "~~~", f'{FENCE}\n["a\n', f'{FENCE}json\n["a ', ",   ", "[1 ", '[{"a" ', '[{"content":"x"},', "[-",
        "[1" + " " * 500, '["a" b]',
        '{"a":b}\n```json\n']  # fmt: skip


@pytest.mark.parametrize("part", HUGE)
def test_work_grows_with_the_length_alone(part):
    """Counted in steps of Python code, not in time. Then a whole MiB: were a pattern quadratic, it would not end."""

    def steps(size):
        count = 0

        def step(frame, event, arg):
            nonlocal count
            count += 1
            return step

        before = sys.gettrace()
        sys.settrace(step)
        try:
            read_json((part * size)[:size], items)
        except LLMRejected:
            pass
        finally:
            sys.settrace(before)
        return count

    assert steps(20_000) <= 12 * steps(2_000) + 1_000
    with pytest.raises(LLMRejected):
        read_json((part * MAX_REPLY_CHARS)[: MAX_REPLY_CHARS - 1] + "x", items)


SCRAPS = st.sampled_from(
    ["[", "]", "{", "}", '"', ",", ":", "\\", "\n", " ", FENCE, FENCE + "json", "<think>", "</think>", "NaN", "1e999",
     "[ ]", "\ud800",
     "\\ud800", "\ufeff", '{"content": "a"}', A, TWO, "甲", "null", "-1", "//"]
)  # fmt: skip


@settings(max_examples=1_500, deadline=None)
@given(st.lists(SCRAPS, max_size=30).map("".join))
def test_any_text_is_read_or_refused(text):
    try:
        value = read_json(text, items)
    except LLMRejected:
        return
    assert items(value)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.fixed_dictionaries({"content": st.text(max_size=60), "x": JSON}), max_size=4),
    st.booleans(),
    st.integers(0, 3),
)
def test_whatever_json_writes_is_read_back(value, ascii_only, wrapping):
    told = json.dumps(value, ensure_ascii=ascii_only, indent=2 if wrapping % 2 else None)
    reply = (told, f"{FENCE}json\n{told}\n{FENCE}", f"So [here] it is:\n{told}", f"<think>[</think>{told}")[
        wrapping
    ]
    assert read_json(reply, items) == value


# --- plain text, apologies ------------------------------------------------------------------------------------


def test_plain_text_is_freed_of_its_wrapping():
    assert (
        read_text("\ufeff<think>[hm</think>\n```markdown\n# Ana\n- lives in Oslo\n```\n")
        == "# Ana\n- lives in Oslo"
    )
    assert read_text("[note] is her nickname") == "[note] is her nickname"
    inner = "Use:\n```\npip\n```\nalways"
    assert read_text(inner) == inner


@pytest.mark.parametrize(
    "text",
    ["", "  ", "```\n```", "<think>x", "<think>x</think>", '{"a": 1}', '[{"a', "x" * (MAX_REPLY_CHARS + 1)],
)
def test_what_is_no_plain_text_is_refused(text):
    with pytest.raises(LLMRejected):
        read_text(text)


APOLOGIES = [
    "对话中没有可用信息",
    "对话中没有可用信息。",
    "对话中没有可用信息，无法更新画像。",
    "I'm sorry, but I can't help with that.",
    "I’m sorry, but I don’t have enough information.",
    "As an AI language model, I cannot do this.",
    "As an AI, I do not have access to your data.",
    "很抱歉，我无法根据这些内容生成画像。",
    "抱歉，没有足够的信息。",
    "对不起，我不能完成这个请求",
    "No information available.",
    "There is no information about the user in the conversation.",
    "No relevant information found. Please provide more messages.",
    "The conversation does not contain any useful information.",
    "The provided messages contain no facts about the user.",
    "暂无信息",
    "暂无",
    "无",
    "None.",
    "N/A",
    "# 用户画像\n\n暂无信息",
    "## 偏好\n- 暂无\n## 习惯\n- 无",
    "- 偏好：暂无\n- 职业：未知",
    "无法从对话中提取有效信息。",
    "根据提供的对话内容，没有可用于更新画像的信息。",
    "作为一个人工智能语言模型，我无法提供该内容。",
    "Unfortunately, there is not enough data to build a profile.",
    "I cannot generate a profile from this.",
    "没有足够的信息来更新用户画像",
    "当前对话未提供任何用户信息。请提供更多对话内容。",
    "I apologize, but I cannot do that.",
    "**I'm sorry**, I can't.",
    "Sorry, no data.",
    "没有新的信息需要更新。",
    "Not enough information to create a profile.",
    "I am unable to determine any profile details.",
    "Nothing to report.",
    "目前没有关于用户的信息，因此画像保持不变。",
    "> 对话中没有可用信息",
    "“对话中没有可用信息”",
    "The conversation doesn't mention anything about the user.",
    "These messages have no information.",
    "The input is empty.",
    "对话为空",
    "上下文信息不足，无法生成。",
    "The provided conversation contains nothing useful.",
]
PROFILES = [
    "用户住在杭州，喜欢爬山。",
    "The user often says sorry and lives in Oslo.",
    "Sorry is a word that the user dislikes.",
    "- 用户说对不起之前总会先笑\n- 住在成都",
    "对不起是用户的口头禅，他住在成都。",
    "用户没有宠物。",
    "没有宠物，养过一只猫。",
    "I cannot eat peanuts.",
    "# Profile\n- There is no information about age.\n- Lives in Oslo.",
    "暂无关于年龄的信息。用户喜欢爬山。",
    "对话内容不得提供给第三方。",
    "As an assistant of the team, answer in Chinese.",
    "作为助手，回答要简短。",
    "不能吃辣，对花生过敏。",
    "无法早起，常在夜里工作。",
    "Unfortunately for him, the user broke his knee in May; he swims now.",
    "No meat; the user is vegetarian.",
    "No information leaves the company without review by Ana.",
    "",
    "   ",
    "偏好：暂无\n职业：程序员",
    "The user is afraid of heights.",
    "无糖可乐是他的最爱",
    "The user does not want conversations recorded.",
    "用户对话中没有提过家人，住在深圳。",
    "遗憾的事：错过了毕业典礼",
    "No updates on weekends; deploys on Tuesday only.",
    "The messages must not be longer than three lines.",
    "The conversation style should not be formal.",
    "对话没有结束",
    "内容不超过三行",
    "消息不要太长。",
]


@pytest.mark.parametrize("text", APOLOGIES)
def test_apologies_are_known(text):
    assert is_apology(text)


@pytest.mark.parametrize("text", PROFILES)
def test_a_profile_is_no_apology(text):
    assert not is_apology(text)
