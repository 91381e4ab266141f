"""Models run by the package ``sentence-transformers``: a folder, or a hub name that was downloaded before.

Nothing here goes to the network. A name is looked up in the local cache only: asking the hub from inside a
recall costs more than a minute of retries when there is no network, and a model that changes on its own
would be another vector space.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memstore.embedding import EmbedderIdentity, embeddable
from memstore.errors import EmbedderUnavailable, EmbeddingRejected, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

_INSTALL = "pip install torch (in the build you want), then pip install 'memstore[st]'"
_COMMIT = re.compile(r"[0-9a-f]{40}")
# The order of SentenceTransformer.encode_document.
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


class _Loaded(NamedTuple):
    model: Any
    identity: EmbedderIdentity
    document_prompt: str | None  # the prompt's name in model.prompts


class SentenceTransformerEmbedder:
    """A sentence-transformers model; needs ``memstore[st]``.

    The constructor imports and loads nothing. The first vector, or the first look at ``identity``, does; a
    failure then raises :class:`~memstore.errors.EmbedderUnavailable` and so does every later use of the
    object. Calls from several threads take turns, because the tokenizers behind a model do not bear company.
    After a fork, use a new object: torch's threads do not survive one.

    The prompts are the model's own. The revision of a folder is a hash of its files, that of a cached hub
    model its commit.
    """

    def __init__(
        self, name_or_folder: str | os.PathLike[str], *, device: str = "cpu", batch_size: int = 32
    ) -> None:
        self._name = os.fspath(name_or_folder)
        if not self._name.strip():
            raise InvalidInput("a sentence-transformers model needs a name or a folder")
        if batch_size < 1:
            raise InvalidInput(f"batch_size must be at least 1, not {batch_size}")
        self._device = device
        self._batch_size = batch_size
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None
        self._fault: str | None = None

    @property
    def identity(self) -> EmbedderIdentity:
        """Loads the model: only it knows its width and prompts."""
        with self._lock:
            return self._load().identity

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit rows of shape ``(len(texts), dim)``; a blank text gets zeros."""
        import numpy as np

        with self._lock:
            loaded = self._load()
            out = np.zeros((len(texts), loaded.identity.dim), dtype=np.float32)
            clean = [(row, text) for row, text in enumerate(map(embeddable, texts)) if text is not None]
            if clean:
                out[[row for row, _ in clean]] = loaded.model.encode_document(
                    [text for _, text in clean], prompt_name=loaded.document_prompt, **self._options()
                )
        return out

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """A unit vector of shape ``(dim,)``; a blank text raises :class:`~memstore.errors.EmbeddingRejected`."""
        import numpy as np

        clean = embeddable(text)
        if clean is None:
            raise EmbeddingRejected("a blank query has no vector")
        with self._lock:
            rows = self._load().model.encode_query([clean], **self._options())
        return np.ascontiguousarray(rows[0], dtype=np.float32)

    def _options(self) -> dict[str, Any]:
        return {
            "batch_size": self._batch_size,
            "show_progress_bar": False,
            "convert_to_numpy": True,
            "normalize_embeddings": True,
        }

    def _load(self) -> _Loaded:
        """The model, loaded once; the caller holds the lock."""
        if self._fault is not None:
            raise EmbedderUnavailable(self._fault)
        if self._loaded is None:
            try:
                self._loaded = _load(self._name, self._device)
            except EmbedderUnavailable as error:
                self._fault = str(error)
                raise
        return self._loaded


def _load(name: str, device: str) -> _Loaded:
    folder = _folder(name)
    # By name, so that neither a type checker nor an import graph pulls torch in.
    try:
        package = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise EmbedderUnavailable(
            f"sentence-transformers cannot be imported ({_line(error)}): {_INSTALL}"
        ) from error
    if not hasattr(package.SentenceTransformer, "encode_query"):
        raise EmbedderUnavailable(
            f"sentence-transformers {package.__version__} is too old, 5.0 is the floor: pip install -U 'memstore[st]'"
        )
    if folder is None:
        folder, label, revision = _cached(name, package.__version__)
    else:
        label = folder.resolve().name or "root"
        try:
            revision = _hash_of(folder)
        except OSError as error:
            raise EmbedderUnavailable(f"the model folder {name!r} cannot be read: {_line(error)}") from error
    try:
        with _quiet():
            model = package.SentenceTransformer(str(folder), device=device, local_files_only=True)
    except Exception as error:
        # Broad on purpose: a model's folder brings its own configuration, and through it any error of torch,
        # transformers, tokenizers or safetensors. All of them mean that this model cannot be had.
        raise EmbedderUnavailable(f"the model {name!r} cannot be loaded: {_line(error)}") from error
    return _describe(model, label, revision)


def _describe(model: Any, label: str, revision: str) -> _Loaded:
    prompts: dict[str, str] = model.prompts
    # encode_document takes the first name that exists, and a fresh model always has an empty "document",
    # which would hide the "passage" prompt of an E5 model. The first that says something is meant.
    document = next((prompt for prompt in _DOCUMENT_PROMPTS if prompts.get(prompt)), None)
    width = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
    dim = width()
    if dim is None:
        dim = len(model.encode_query(["width"], show_progress_bar=False)[0])
    identity = EmbedderIdentity(
        model=label,
        revision=revision,
        dim=int(dim),
        query_prefix=prompts.get("query") or "",
        document_prefix=prompts[document] if document else "",
    )
    return _Loaded(model, identity, document)


def _folder(name: str) -> Path | None:
    """The folder that ``name`` means, or None when it reads as a hub name."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or path.exists():
        raise EmbedderUnavailable(f"there is no model folder {name!r}")
    return None


def _cached(name: str, version: str) -> tuple[Path, str, str]:
    """Folder, label and revision of a hub model in the local cache."""
    hub = importlib.import_module("huggingface_hub")
    # A bare name belongs to the package's own organisation, as it does for SentenceTransformer itself.
    repository = name if "/" in name else f"sentence-transformers/{name}"
    try:
        folder = Path(hub.snapshot_download(repository, local_files_only=True))
    except (OSError, ValueError) as error:  # not there, or no name that the hub allows
        raise EmbedderUnavailable(
            f"there is no folder {name!r} and no such model in the local cache; memstore downloads nothing by "
            f"itself, so run: hf download {repository}"
        ) from error
    commit = folder.name if _COMMIT.fullmatch(folder.name) else f"unknown:{version}"
    return folder, repository, commit


def _hash_of(folder: Path) -> str:
    """16 hex digits over the names and bytes of the model's files, which is what another revision changes.

    Left out are hidden files and Markdown: a model card moves no vector.
    """
    total = hashlib.sha256()
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    for name, path in sorted(files.items()):
        if any(part.startswith(".") for part in name.split("/")) or name.lower().endswith(".md"):
            continue
        with path.open("rb") as file:
            total.update(name.encode("utf-8", "surrogateescape") + b"\0")
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:16]


@contextmanager
def _quiet() -> Iterator[None]:
    """No "Loading weights" bar on stderr; the switch belongs to the program, so it is put back."""
    if "HF_HUB_DISABLE_PROGRESS_BARS" in os.environ:  # the user decided, and the switch would warn
        yield
        return
    logging = importlib.import_module("transformers.utils.logging")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _line(error: BaseException) -> str:
    """One short line of a message that may have many."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
