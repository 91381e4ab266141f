"""What a conversation is about, judged by the words it is made of."""

import re
from functools import cache

from memstore.pipelines.values import Window
from memstore.stopwords import STOP_WORDS
from memstore.text import Tokenizer

SCENE_CHARS = 40
SHARED_ENOUGH = 0.15
"""The part of the fewer content words that two situations have to share to be one."""
READ_CHARS = 4_000
_ENDS = re.compile(r"[。！？!?；;\n]|\.\s")
_GREETING = re.compile(r"(?:你好呀?|您好|嗨|早上好|晚上好|在吗|hi|hello|hey(?: there)?|good (?:morning|evening|afternoon))[\s,，.。!！~]*", re.IGNORECASE)  # fmt: skip


def situation(window: Window) -> tuple[str, bool]:
    """The name of the window's situation, and whether it is another one than before.

    Where it is the same, the name stays. A situation counts as changed where neither the new messages nor what
    they follow share words with it.
    """
    said = [message.text[:READ_CHARS] for message in window.new if message.role == "user"]
    words = content_words("\n".join(said)[:READ_CHARS])
    if window.scene and (not words or _alike(words, window)):
        return window.scene, False
    name = next((named for text in said if (named := _name(text))), "") or (window.scene or "")
    return name, name != (window.scene or "")


def content_words(text: str) -> frozenset[str]:
    return frozenset(
        word for word in _tokenizer().query(text).words if word not in STOP_WORDS and not word.isdecimal()
    )


def _alike(words: frozenset[str], window: Window) -> bool:
    before = "\n".join(
        [window.scene or "", *(m.text[:READ_CHARS] for m in window.background if m.role == "user")]
    )
    known = content_words(before[-READ_CHARS:])
    return bool(known) and len(words & known) >= SHARED_ENOUGH * min(len(words), len(known))


def _name(text: str) -> str:
    """The first sentence that says something, cut to a line."""
    for part in _ENDS.split(text):
        line = _GREETING.sub("", " ".join(part.split()), count=1).strip(" ,，:：")
        if content_words(line):
            return line[:SCENE_CHARS].rstrip()
    return ""


@cache
def _tokenizer() -> Tokenizer:
    return Tokenizer()
