"""The tokenizer: what is found by what."""

# ruff: noqa: S311 - seeded chance

import random
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Sequence

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memstore import MemoryStore, Message, Scope, Settings
from memstore import text as module
from memstore.date_words import dates_named
from memstore.text import (
    MAX_QUERY_TERMS,
    MAX_TOKEN_LENGTH,
    NORMALISED_AT_ONCE,
    Phrase,
    Tokenizer,
    normalise,
    searchable_text,
    squeezed,
    variant_table,
    without_empty_text,
)

TOKENIZER = Tokenizer()


def words(text: str) -> list[str]:
    return TOKENIZER.index(text).words.split()


def literal(text: str) -> list[str]:
    return TOKENIZER.index(text).literal.split()


# --- words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("会议改到周四下午", ["会议", "改", "到", "周四", "下午"]),
        ("running runs ran", ["run", "run", "ran"]),
        ("编译build-x7成功", ["编译", "build", "x7", "x", "7", "成功"]),
        ("v1.2.3", ["v1", "v", "1", "2", "3"]),
        ("5GB/s", ["5gb", "5", "gb", "s"]),
        ("src/app.py", ["src", "app", "py"]),
        ("snake_case_name", ["snake", "case", "name"]),
        ("café CAFÉ cafe\u0301", ["cafe", "cafe", "cafe"]),
        ("ＡＢＣ１２３", ["abc123", "abc", "123"]),
        ("pass\u200bword", ["password"]),
        ("soft\u00adhyphen", ["softhyphen"]),
        ("😂", ["u1f602"]),
        ("👍🏽", ["u1f44d", "u1f3fd"]),
        ("3€ ©", ["3", "ua9"]),
        ("ひらがな", ["ひら", "らが", "がな"]),
        ("の", ["の"]),
        ("한국어", ["한국", "국어"]),
        ("ภาษา", ["ภา", "าษ", "ษา"]),
        ("...。，！？-—()\"'", []),
        ("", []),
        (" \t\n\u3000", []),
        ("Привет мир", ["привет", "мир"]),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("银行卡", ["银行", "行卡", "卡"]),
        ("猫", ["猫"]),
        ("跑完build-x7后", ["跑完", "完", "bu", "ui", "il", "ld", "d", "x7", "7", "后"]),
        ("v1.2.3", ["v", "1", "2", "3"]),
        ("好，的", ["好", "的"]),
        ("ひら", ["ひら", "ら"]),
        ("在don't里", ["在", "do", "on", "n", "t", "里"]),
        ("哈希" + "a1" * 33, ["哈希", "希", *["a1", "1a"] * 32, "a1", "1"]),
        ("哈希" + "a1" * 2_049, ["哈希", "希", *["a", "1"] * 2_049]),
        ("😂", []),
    ],
)
def test_literal(text, expected):
    assert literal(text) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ｆｕｌｌ　Ｗｉｄｔｈ", "full width"),
        ("ﬁne", "fine"),
        (unicodedata.normalize("NFD", "Übergrößenträger"), unicodedata.normalize("NFC", "übergrößenträger")),
        (unicodedata.normalize("NFD", "한국어"), "한국어"),
        (unicodedata.normalize("NFD", "がぎ"), "がぎ"),
        ("zero\u200bwidth\u200d", "zerowidth"),
        ("\ufeffword", "word"),
        ("❤️", "❤"),
        ("ｶﾀｶﾅ", "カタカナ"),
        ("Ⅷ", "viii"),
        ("①②", "12"),
        ("Tiếng Việt", "tieng viet"),
    ],
)
def test_what_looks_the_same_is_the_same(one, other):
    assert TOKENIZER.index(one) == TOKENIZER.index(other)
    assert TOKENIZER.query(one) == TOKENIZER.query(other)


def test_an_apostrophe_stays_inside_its_word():
    assert len(words("don't isn’t o'clock")) == 3
    assert words("don't") == words("don’t") == words("DON'T")
    assert words("it's") == words("it")
    assert words("'quoted'") == words("quoted")
    assert words("rock 'n' roll") == words("rock n roll")


def test_normalising_keeps_what_differs():
    assert normalise("é") == "e"
    assert normalise("и") != normalise("й")  # accents of Latin letters only
    assert words("一") != words("二")
    assert words("貓") != words("猫")


# --- every token is found as itself -------------------------------------------------------------------------------

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.text(
    st.sampled_from(
        "ab1_-.'’/ 会议周四银の한ภ😂❤️é\u0301ß\u200b\u00adＡ①ﬁİıǅ\U00020000\U00030000〇々\x00\u2028"
    ),
    max_size=40,
)


@pytest.fixture(scope="module")
def fts():
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE t USING fts5(words, literal, tokenize = 'unicode61 remove_diacritics 0')"
    )
    yield connection
    connection.close()


def found_as_itself(connection: apsw.Connection, column: str, token: str) -> bool:
    return bool(connection.execute("SELECT rowid FROM t(?)", (f'{column} : "{token}"',)).fetchall())


@given(ANY_TEXT)
@example("".join(chr(c) for c in range(0x2FF0, 0x3130)))
@example("𞤀𞤁 𐕰𐕱 Ა Ꭰ ꭰ Ⴀ ⴀ ᲀ ꟊ ß ſ K Å")
@example("\U00030000\U00031350\U0002ebf0 한글 ᄒ ㄱ")
@example("x̂ x̄ q̇ ⃠ ҈ a⃝")
@settings(max_examples=250)
def test_the_engine_keeps_every_token_whole(fts, text):
    tokens = TOKENIZER.index(text)
    fts.execute("DELETE FROM t")
    fts.execute("INSERT INTO t (words, literal) VALUES (?, ?)", (tokens.words, tokens.literal))
    for column in ("words", "literal"):
        emitted = getattr(tokens, column).split()
        assert all(token.isalnum() for token in emitted)
        assert all(len(token) <= max(MAX_TOKEN_LENGTH, 2 * 7) for token in emitted)
        for token in set(emitted):
            assert found_as_itself(fts, column, token), token
    # as many positions as tokens: none was cut in two, none was dropped
    [(sizes,)] = fts.execute("SELECT sz FROM t_docsize").fetchall() or [(b"\x00\x00",)]
    assert varints(sizes) == [len(tokens.words.split()), len(tokens.literal.split())]


def test_the_engine_keeps_every_letter_and_digit_of_unicode(fts):
    letters = [chr(code) for code in range(0x110000) if chr(code).isalnum()]
    for start in range(0, len(letters), 2_000):
        tokens = [token for letter in letters[start : start + 2_000] for token in literal(letter)]
        fts.execute("DELETE FROM t")
        fts.execute("INSERT INTO t (words, literal) VALUES ('', ?)", (" ".join(tokens),))
        [(sizes,)] = fts.execute("SELECT sz FROM t_docsize").fetchall()
        assert varints(sizes)[1] == len(tokens), hex(ord(letters[start]))


def varints(blob: bytes) -> list[int]:
    """SQLite's variable-length integers, as FTS5 keeps column sizes."""
    out, value = [], 0
    for byte in blob:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            out.append(value)
            value = 0
    return out


@given(ANY_TEXT)
@example("SEP")
@example("2023-05-08 五月八日")
@settings(max_examples=150)
def test_a_text_finds_itself(text):
    """Every token of a short text, asked as a query, is among the tokens that the text is indexed under; only a date
    that the query names is looked for in the messages of that date."""
    indexed, asked = TOKENIZER.index(text), TOKENIZER.query(text)
    assert set(asked.words) - set(dates_named(normalise(text))) <= set(indexed.words.split())
    held = indexed.literal.split()
    assert set(asked.literal) <= set(held)
    assert bool(asked) == bool(indexed)
    assert bool(asked.phrases) == bool(held)
    assert not held or any(in_sequence(phrase, held) for phrase in asked.phrases)


def in_sequence(phrase: Phrase, held: list[str]) -> bool:
    """As FTS5 looks for a phrase."""
    wanted = list(phrase.tokens)
    for n in range(len(held) - len(wanted) + 1):
        part = held[n : n + len(wanted)]
        if part == wanted or (phrase.prefix and part[:-1] == wanted[:-1] and part[-1].startswith(wanted[-1])):
            return True
    return False


HAN = st.text(st.sampled_from("会议改到周四下午银行卡的了他们数据库"), min_size=1, max_size=6)


@given(HAN, HAN, HAN)
@settings(max_examples=150)
def test_the_phrase_of_a_han_query_is_in_every_row_around_it(before, query, after):
    held = literal(before + query + after)
    asked = TOKENIZER.query(query)
    assert len(asked.phrases) == 1
    assert in_sequence(asked.phrases[0], held)


# --- queries ------------------------------------------------------------------------------------------------------


def test_a_query_keeps_64_terms_of_its_head_and_tail():
    numbers = [f"w{n}x" for n in range(300)]
    asked = TOKENIZER.query(" ".join(numbers))
    assert len(asked.words) == MAX_QUERY_TERMS == 64
    assert asked.words[0].startswith("w0")
    assert "w299x" in asked.words
    assert "w150x" not in asked.words
    assert [len(phrase.tokens) for phrase in asked.phrases] == [
        64,
        64,
    ]  # their beginning: finds no fewer rows


def test_repeated_terms_count_once():
    asked = TOKENIZER.query("rain " * 500)
    assert asked.words == ("rain",)
    assert asked.literal == ("rain",)


def test_a_long_query_is_read_at_both_ends_and_has_no_phrase():
    asked = TOKENIZER.query("alpha " + "filler " * 10_000 + "omega")
    assert {"alpha", "omega"} <= set(asked.words)
    assert asked.phrases == ()


@pytest.mark.parametrize(
    ("query", "phrases"),
    [
        ("银", [(("银",), True)]),
        ("行卡", [(("行卡",), False)]),
        ("银行卡", [(("银行", "行卡"), False)]),
        ("周四 abc", [(("周四", "四", "ab", "bc"), False)]),
        ("周四 a", [(("周四", "四", "a"), True)]),
        ("x7", [(("x7",), False), (("x", "7"), True)]),
        ("ild-x7", [(("il", "ld", "d", "x7"), False), (("ild", "x", "7"), True)]),
        ("x", [(("x",), True)]),
        ("GB/s", [(("gb", "b", "s"), True), (("gb", "s"), True)]),
        ("了，他们", [(("了", "他们"), False)]),
        ("…", []),
    ],
)
def test_the_phrases_of_a_query(query, phrases):
    assert [(p.tokens, p.prefix) for p in TOKENIZER.query(query).phrases] == phrases


@pytest.mark.parametrize(
    ("query", "ranked"), [("用 docker 部署", ("用", "部署", "署")), ("build-x7", ("build",)), ("x7", ())]
)
def test_bigrams_of_letters_do_not_rank(query, ranked):
    assert TOKENIZER.query(query).literal == ranked


@pytest.mark.parametrize("query", ["", " ", "。，！？", "...", '"', "\x00", "()*^"])
def test_a_query_of_signs_is_empty(query):
    assert not TOKENIZER.query(query)


def test_a_long_run_of_letters_is_cut_into_pieces():
    tokens = words("x" * 70 + "1" * 200)
    assert all(len(token) <= MAX_TOKEN_LENGTH for token in tokens)
    assert len(words("a" * 10_000)) == 1  # a word of letters keeps its beginning
    assert TOKENIZER.query("ab1" * 100).words == tuple(dict.fromkeys(words("ab1" * 100)))


# --- bounded work -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a" + "\u0301" * 100_000,
        "\u0301" * 100_000,
        ("a" + "\u0301" * 30) * 3_000,
        "e\u0301" * 50_000,
        "x" * 100_000,
    ],
    ids=["one letter", "no letter", "runs", "pairs", "plain"],
)
def test_combining_marks_are_normalised_in_bounded_parts(text):
    """NFKC sorts a run of marks in quadratic time; parts bound it, and nothing of the text is lost by cutting."""
    parts = list(module._parts(text))
    assert "".join(parts) == text
    assert max(map(len, parts)) <= 2 * NORMALISED_AT_ONCE
    assert len(parts) <= len(text) // NORMALISED_AT_ONCE + 1


def test_parts_are_cut_in_front_of_a_letter():
    text = "x" * (NORMALISED_AT_ONCE - 1) + "e\u0301" + "y" * 10
    assert normalise(text) == normalise(unicodedata.normalize("NFC", text))
    assert words("b" * 10 + " " + "e\u0301" * NORMALISED_AT_ONCE) == words(
        "b" * 10 + " " + "é" * NORMALISED_AT_ONCE
    )


def test_long_runs_of_han_are_cut_before_the_dictionary():
    seen: list[int] = []

    class Counting:
        identity = "counting"

        def cut(self, run):
            seen.append(len(run))
            return [run[:2]]

    tokens = Tokenizer(Counting()).index("界" * 5_000)
    assert max(seen) <= module.MAX_HAN_RUN
    assert sum(seen) == 5_000
    assert tokens.literal.count("界界") == 4_999


# --- any substring is found ---------------------------------------------------------------------------------------

PIECES = (
    "会议", "改到", "周四下午", "银行卡", "的", "了", "数据库", "跑完", "后", "build-x7", "v1.2.3", "GB/s", "src/app.py", "snake_case", "x7",
    "K8s", "ID", "0xFF", "don't", "a", "7", " ", "  ", "，", "。", "-", "_", "/", ".", "😂", "ひらがな", "カタカナ", "の", "ー", "한국어", "Ｆｕｌｌ", "é",
)  # fmt: skip


def drawn(
    texts: Sequence[str], rng: random.Random, count: int, lengths: tuple[int, int] = (2, 8)
) -> list[str]:
    """Substrings of texts in normal form, each with a letter, digit or Han in it and no blank at its ends."""
    forms = [form for form in map(TOKENIZER.squeezed, texts) if len(form) >= lengths[0]]
    found: list[str] = []
    while len(found) < count:
        form, length = rng.choice(forms), rng.randint(*lengths)
        start = rng.randrange(max(1, len(form) - length + 1))
        part = form[start : start + length]
        if part == part.strip() and len(part) >= lengths[0] and literal(part):
            found.append(part)
    return found


def holding(texts: Sequence[str], part: str) -> list[str]:
    """The oracle: a plain substring search over the normal forms."""
    return [text for text in texts if part in TOKENIZER.squeezed(text)]


@pytest.mark.parametrize("seed", range(8))
def test_every_substring_of_a_mixed_text_is_found(tmp_path, seed):
    """N: 8 stores of 60 rows, 250 substrings each: all of up to five rows are found, a single one first."""
    rng = random.Random(seed)
    texts = list(
        dict.fromkeys(
            rng.choice("会数银猫の") + "".join(rng.choices(PIECES, k=rng.randint(2, 12))) for _ in range(60)
        )
    )
    scope = Scope("team", "user", "agent")
    with MemoryStore(tmp_path / "store.db", settings=Settings(durability="process", timezone="UTC")) as store:
        store.record(scope, [Message("user", text) for text in texts], "one")
        alone = 0
        for part in drawn(texts, rng, 250):
            wanted = holding(texts, part)
            assert wanted
            found = [hit.content for hit in store.search_messages(scope, part, 5)]
            if len(wanted) <= 5:
                assert set(wanted) <= set(found), part
            if len(wanted) == 1:
                alone += 1
                assert found[0] == wanted[0], part
        assert alone > 50


@pytest.mark.parametrize(
    "query", ["x7", "build-x7", "1.2.3", "v1.2.3", "GB/s", "src/app.py", "ild-x7", "pp.p", "2.3"]
)
def test_identifiers_glued_to_han_come_first(tmp_path, query):
    texts = [
        "跑完build-x7后恢复",
        "升到v1.2.3了",
        "带宽5GB/s够用",
        "改了src/app.py文件",
        "x 7 b 1 2 3",
        "跑完后恢复",
        "x和7和3",
        "gb and s",
        "plain text app",
    ]
    scope = Scope("team", "user", "agent")
    with MemoryStore(tmp_path / "store.db", settings=Settings(durability="process", timezone="UTC")) as store:
        store.record(scope, [Message("user", text) for text in texts], "one")
        wanted = holding(texts, TOKENIZER.squeezed(query))
        assert [hit.content for hit in store.search_messages(scope, query, 5)][: len(wanted)] == wanted[
            ::-1
        ] or len(wanted) == 1
        assert store.search_messages(scope, query, 5)[0].content in wanted


def test_folding_is_character_by_character():
    folding = Tokenizer(fold_variants=True)
    assert folding.index("圖書館 Abc") == folding.index("图书馆 abc")
    assert folding.squeezed("圖書館") == "图书馆"
    assert TOKENIZER.squeezed("圖書館") == "圖書館"
    assert all(len(new) == 1 for new in variant_table().values())
    assert "opencc" in folding.identity
    assert "variants" not in TOKENIZER.identity


def test_tokens_of_another_tokenizer_are_renewed():
    folding = Tokenizer(fold_variants=True)
    held = TOKENIZER.index("圖書館")
    assert TOKENIZER.renewed(held, "圖書館") is held
    assert folding.renewed(held, "圖書館") == folding.index("图书馆")
    assert folding.renewed(None, "圖書館") == folding.index("图书馆")


def test_a_store_that_folds_says_what_is_missing_without_opencc(tmp_path):
    code = (
        "import sys; sys.modules['opencc'] = None\nfrom memstore import ConfigError, MemoryStore, Settings\n"
        "for settings in (None, Settings(fold_variants=True)):\n"
        "    try:\n        MemoryStore(sys.argv[1] if settings is None else sys.argv[2], settings=settings)\n"
        "    except ConfigError as error:\n        print(error)"
    )
    path = tmp_path / "store.db"
    MemoryStore(path, settings=Settings(fold_variants=True)).close()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, path, tmp_path / "new.db"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("pip install 'memstore[zh]'") == 2
    assert not (tmp_path / "new.db").exists()


# --- identity, threads, imports -----------------------------------------------------------------------------------


def test_the_identity_is_stable_and_names_its_parts():
    assert Tokenizer().identity == TOKENIZER.identity == Tokenizer().identity
    for part in ("memstore", "jieba 0.42.1", "snowball", unicodedata.unidata_version):
        assert part in TOKENIZER.identity


def test_the_identity_is_the_same_in_another_process():
    code = "from memstore.text import Tokenizer; t = Tokenizer(); print(t.identity); print(t.index('会议改到周四下午 running'))"
    runs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)
    }
    assert len(runs) == 1
    assert TOKENIZER.identity.encode() in runs.pop()


def test_threads_get_the_same_tokens():
    texts = [f"会议改到周四下午 running {n} ひらがな" for n in range(40)]
    expected = [Tokenizer().index(text) for text in texts]
    shared, wrong = Tokenizer(), []

    def work() -> None:
        wrong.extend(
            text for text, tokens in zip(texts, expected, strict=True) if shared.index(text) != tokens
        )

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "loaded"), [("plain English, ひらがな, 한국어, Привет, 😂", False), ("会议", True)]
)
def test_the_dictionary_is_loaded_for_han_only(text, loaded):
    code = (
        f"import sys; from memstore.text import Tokenizer; t = Tokenizer(); t.index({text!r}); t.query({text!r}); "
        f"assert t.warm_up({text!r}) == {loaded}; print('jieba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(loaded)


# --- content and helpers ------------------------------------------------------------------------------------------


def test_searchable_text_is_the_text_parts_only():
    blocks = [
        {"type": "text", "text": "one"},
        {"type": "image", "source": {"data": "aGk="}},
        {"type": "tool_result", "content": [{"type": "text", "text": "two"}, {"type": "image"}]},
        {"type": "tool_use", "input": {"text": "no"}},
        {"type": "thinking", "thinking": "no"},
        {"type": "text", "text": ""},
        "not a block",
        None,
    ]
    assert searchable_text(blocks) == "one\ntwo"
    assert [searchable_text(other) for other in (None, 5, {}, [], "plain")] == ["", "", "", "", "plain"]


def test_without_empty_text():
    kept = [{"type": "text", "text": "x"}, {"type": "image"}, {"text": ""}]
    assert without_empty_text([*kept, {"type": "text", "text": ""}, {"type": "text"}]) == kept


def test_squeezed_ignores_case_width_and_runs_of_blanks():
    assert squeezed("  Ａ\u3000B\n\tc ") == "a b c"
