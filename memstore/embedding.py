"""The embedder port: what a model must offer, what it is handed, and what is believed of its answer.

Text goes to a model through :func:`embeddable`; every vector comes back through :func:`check_documents`
or :func:`check_query`. Between the two lies code memstore did not write, so nothing about the answer is
taken on trust: a wrong width, a NaN or a zero vector stops here and never reaches an index.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from memstore.config import embeddings_server
from memstore.errors import EmbedderMismatch, EmbeddingError, EmbeddingRejected, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

MAX_DIM = 8192  # sqlite-vec's own ceiling for a vector column
HEAD_CHARS = 1500
TAIL_CHARS = 500
MAX_CHARS = HEAD_CHARS + TAIL_CHARS
ELLIPSIS = " … "
MIN_NORM = 1e-6  # below this a direction is rounding noise

NOT_FINITE = "not finite"
ZERO_VECTOR = "zero vector"

# One code point composes from at most four (for example U+1F82), so this many raw characters at either end
# always leave enough normalised ones. Cutting before NFKC matters: it sorts a run of combining marks in
# quadratic time, and 100,000 of them take ten seconds.
_RAW_PER_CHAR = 4
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_INVISIBLE = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """What makes two vectors comparable. Any difference in any field is another vector space.

    ``revision`` names the weights, not the code around them. The prefixes are what the model puts before a
    query or a document; they are recorded because they move the vectors as much as the weights do.
    """

    model: str
    revision: str
    dim: int
    query_prefix: str = ""
    document_prefix: str = ""

    def __post_init__(self) -> None:
        # From outside the types are only a promise, hence Any.
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        dim = fields.pop("dim")
        for name, value in fields.items():
            if not isinstance(value, str):
                raise InvalidInput(f"embedder identity: {name} must be a str, not {type(value).__name__}")
        for name in ("model", "revision"):
            if not fields[name].strip():
                raise InvalidInput(f"embedder identity: {name} must not be blank")
        if not isinstance(dim, int) or isinstance(dim, bool) or not 1 <= dim <= MAX_DIM:
            raise InvalidInput(
                f"embedder identity: dim must be a whole number from 1 to {MAX_DIM}, not {dim!r}"
            )

    def digest(self) -> str:
        """16 hex digits over all fields; the same in every process and release."""
        fields = [self.model, self.revision, self.dim, self.query_prefix, self.document_prefix]
        # JSON keeps the fields apart: no two different identities can spell the same bytes.
        return hashlib.blake2b(json.dumps(fields).encode("ascii"), digest_size=8).hexdigest()


@runtime_checkable
class Embedder(Protocol):
    """Turns text into vectors of one space.

    Implementations are called from several threads at once and must allow it, by a lock of their own if
    need be. They may be slow; the callers have deadlines. Constructing one should be cheap: a model is
    loaded at the first use, and a model that cannot be loaded or called raises
    :class:`~memstore.errors.EmbedderUnavailable`, at that use and at every later one.
    """

    @property
    def identity(self) -> EmbedderIdentity:
        """The space of the vectors. Constant for the life of the object; reading it may load the model."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors to be stored: float32 of shape ``(len(texts), dim)``, row ``i`` for ``texts[i]``.

        No texts give shape ``(0, dim)``. A row must not depend on the texts beside it. Rows need not be of
        unit length; a text without a vector gets a row of zeros. Prefixes are the implementation's to add.
        """
        ...

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector to search with: float32 of shape ``(dim,)``, to be compared with document vectors by cosine.

        May raise :class:`~memstore.errors.EmbeddingRejected` for a text that has no vector.
        """
        ...


def identity_of(embedder: Embedder) -> EmbedderIdentity:
    """What the embedder says it is.

    :raises EmbeddingError: whatever it raises.
    """
    try:
        return embedder.identity
    except EmbeddingError:
        raise
    except Exception as error:
        raise EmbeddingError(
            f"the embedder cannot say what it is: {type(error).__name__}: {error}"
        ) from error


def check_same(stored: EmbedderIdentity, found: EmbedderIdentity) -> None:
    """:raises EmbedderMismatch: when the embedder's space is not that of the store's vectors."""
    if stored != found:
        raise EmbedderMismatch(
            f"the store's vectors are of {stored.model} ({stored.revision}, {stored.dim} dimensions), the embedder is "
            f"{found.model} ({found.revision}, {found.dim}); nothing was changed. Run reindex() (memstore reindex) to "
            "change over"
        )


def embeddable(text: str) -> str | None:
    """The form of ``text`` that any model is handed, or None when there is nothing to see in it.

    NFKC, because models were trained on composed text (a decomposed Korean sentence lands elsewhere);
    control characters become spaces, because a NUL ends the text for engines written in C; a lone surrogate
    becomes U+FFFD, because it cannot be encoded; whitespace runs become one space. A text of more than
    2,000 characters is cut to its first 1,500 and last 500, joined by an ellipsis. Applying it twice changes
    nothing.
    """
    text = _collapse(_SURROGATE.sub("\ufffd", text))
    if len(text) > _RAW_PER_CHAR * MAX_CHARS:
        head = _normal(text[: _RAW_PER_CHAR * HEAD_CHARS])
        tail = _normal(text[-_RAW_PER_CHAR * TAIL_CHARS :])
    else:
        head = tail = _normal(text)
        if len(head) <= MAX_CHARS:
            return head if _visible(head) else None
    cut = head[:HEAD_CHARS].rstrip() + ELLIPSIS + tail[-TAIL_CHARS:].lstrip()
    return cut if _visible(cut.replace(ELLIPSIS, "")) else None


def _collapse(text: str) -> str:
    return " ".join(_CONTROL.sub(" ", text).split())


def _normal(text: str) -> str:
    return _collapse(unicodedata.normalize("NFKC", text))


def _visible(text: str) -> bool:
    return any(unicodedata.category(char) not in _INVISIBLE for char in text)


def check_documents(vectors: object, n: int, dim: int) -> tuple[NDArray[np.float32], list[str | None]]:
    """What an embedder returned for ``n`` texts, made safe to store.

    Returns contiguous float32 of shape ``(n, dim)`` and one reason per row: None for a row that is kept,
    scaled to unit length, else why not, and that row is zeros. An answer that is no such set of vectors at
    all raises :class:`~memstore.errors.EmbeddingRejected`.
    """
    import numpy as np

    rows = _numbers(vectors, (n, dim))
    finite = np.all(np.isfinite(rows), axis=1)
    rows[~finite] = 0.0
    # Dividing by the largest component first keeps the sum of squares inside float64, whatever the scale.
    peak = np.abs(rows).max(axis=1, initial=0.0)
    rows /= np.where(peak > 0.0, peak, 1.0)[:, None]
    length = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    zero = peak < MIN_NORM / np.maximum(length, 1.0)
    rows[zero] = 0.0
    rows /= np.where(zero, 1.0, length)[:, None]
    reasons: list[str | None] = [None] * n
    for row in np.flatnonzero(zero):
        reasons[row] = ZERO_VECTOR if finite[row] else NOT_FINITE
    return np.ascontiguousarray(rows, dtype=np.float32), reasons


def check_query(vector: object, dim: int) -> NDArray[np.float32]:
    """:func:`check_documents` for one vector of shape ``(dim,)``; here a faulty vector raises as well."""
    rows, (reason,) = check_documents(_numbers(vector, (dim,))[None, :], 1, dim)
    if reason is not None:
        raise EmbeddingRejected(f"the embedder's query vector was refused: {reason}")
    first: NDArray[np.float32] = rows[0]
    return first


def _numbers(vectors: object, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """``vectors`` as a float64 array of exactly ``shape`` that the caller may write to."""
    import numpy as np

    expected = " x ".join(map(str, shape))
    try:
        array = np.asarray(vectors)
        fault = "" if array.dtype.kind in "fiu" else f"{array.dtype} is no number type"
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        # RuntimeError: a torch tensor that still carries gradients refuses to become an array.
        fault = str(error)
    if fault:
        raise EmbeddingRejected(
            f"the embedder returned something that is no array of numbers: "
            f"expected {expected}, got {type(vectors).__name__} ({fault})"
        )
    if array.shape == (0,) and shape[0] == 0:
        array = array.reshape(shape)  # an empty list cannot say how wide it is
    if array.shape != shape:
        got = " x ".join(map(str, array.shape)) or "a single number"
        raise EmbeddingRejected(
            f"the embedder returned vectors of the wrong shape: expected {expected}, got {got}"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is reported as "not finite"
        return np.array(array, dtype=np.float64, order="C")


_FORMS = (
    "'local', 'st:<model name or folder>', 'openai:<model>', "
    "an object with identity, embed_documents and embed_query, or None"
)
# By name, not by import: the adapters sit above the port and import it.
_LOCAL = ("memstore.embedders.local", "LocalEmbedder")
_ST = ("memstore.embedders.sentence_transformers", "SentenceTransformerEmbedder")
_OPENAI = ("memstore.embedders.openai", "OpenAIEmbedder")


def resolve(spec: str | Embedder | None) -> Embedder | None:
    """The embedder that ``spec`` names; objects are checked for the port's members and given back.

    Cheap: loads no model and imports no torch. A missing package therefore shows at first use, as
    :class:`~memstore.errors.EmbedderUnavailable`. The server of an ``openai:`` model is named by the environment.

    :raises ConfigError: when the environment names none.
    """
    if spec is None:
        return None
    if isinstance(spec, str):
        if spec == "local":
            return _adapter(_LOCAL)
        kind, colon, rest = spec.partition(":")
        if kind == "st" and colon and rest.strip():
            return _adapter(_ST, rest.strip())
        if kind == "openai" and colon and rest.strip():
            return _adapter(_OPENAI, rest.strip(), **embeddings_server())
        raise InvalidInput(f"unknown embedder {spec!r}: use {_FORMS}")
    return _checked_object(spec)


def _adapter(where: tuple[str, str], *arguments: str, **options: Any) -> Embedder:
    module, name = where
    embedder: Embedder = getattr(importlib.import_module(module), name)(*arguments, **options)
    return embedder


def _checked_object(spec: Any) -> Embedder:
    if isinstance(spec, type):
        raise InvalidInput(f"the embedder must be an object, not the class {spec.__name__}: call it first")
    for member in ("identity", "embed_documents", "embed_query"):
        # Looked up statically first: reading ``identity`` may load a model.
        try:
            inspect.getattr_static(spec, member)
        except AttributeError:
            if not hasattr(spec, member):
                raise InvalidInput(
                    f"the embedder ({type(spec).__name__}) has no member {member!r}: use {_FORMS}"
                ) from None
        if member != "identity" and not callable(getattr(spec, member)):
            raise InvalidInput(f"the embedder ({type(spec).__name__}): {member} is not callable")
    embedder: Embedder = spec
    return embedder
