"""Chat models: which one a text or an object names. The adapters are loaded when they are named, not before."""

import importlib
import inspect
import re
from typing import Any

from memstore.config import chat_server
from memstore.errors import InvalidInput
from memstore.llm import LLM

_FORMS = "'openai:<model>@<base url>', 'openai:<model>', an object with a method complete(request), or None"
# The model's own name may hold an @, so it ends where a URL begins.
_OPENAI = re.compile(r"openai:(?P<model>.+?)(?:@(?P<url>https?://.*))?", re.IGNORECASE | re.DOTALL)


def resolve_llm(spec: str | LLM | None) -> LLM | None:
    """The chat model that ``spec`` names; objects are checked for ``complete`` and given back.

    Cheap: asks no server and imports no HTTP client. A missing package therefore shows at first use, as
    :class:`~memstore.errors.LLMUnavailable`. The key, and the server unless it is named, are the environment's.

    :raises ConfigError: when neither names a server. :raises InvalidInput: for anything else that names no model.
    """
    if spec is None:
        return None
    if isinstance(spec, str):
        named = _OPENAI.fullmatch(spec.strip())
        if named is None or not named["model"].strip():
            # Not repeated: it may be a key in the wrong place, or hold a password.
            raise InvalidInput(f"the llm is named by a text that names none: use {_FORMS}")
        return _openai(named["model"].strip(), **chat_server(named["url"]))
    return _checked_object(spec)


def _openai(model: str, **options: Any) -> LLM:
    # By name, so that memstore can be imported without the adapter.
    llm: LLM = importlib.import_module("memstore.llms.openai").OpenAIChat(model, **options)
    return llm


def _checked_object(spec: Any) -> LLM:
    if isinstance(spec, type):
        raise InvalidInput(f"the llm must be an object, not the class {spec.__name__}: call it first")
    complete = getattr(spec, "complete", None)
    if not callable(complete):
        raise InvalidInput(f"the llm ({type(spec).__name__}) has no method complete(request): use {_FORMS}")
    if inspect.iscoroutinefunction(complete):
        raise InvalidInput(f"the llm ({type(spec).__name__}): complete(request) must not be async")
    llm: LLM = spec
    return llm
