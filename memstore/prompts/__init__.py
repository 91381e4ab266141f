"""The prompts of the pipelines: one ``<task>.<language>.md`` each, with name and version in its head. ``form.any`` is what
is said of the form of an answer, in any language, where a server takes no schema.

A decision keeps the ``id`` of the prompt that it was made with (``extract.zh@1``), so a changed text is a new version;
a test holds the two together.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from memstore.errors import ConfigError

_FOLDER = Path(__file__).parent
_FILE = re.compile(r"---\n(?P<head>.*?)\n---\n(?P<system>.*?)\n<!-- user -->\n(?P<user>.*)", re.DOTALL)
_SLOT = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class Prompt:
    """``user`` is a template: ``{{slots}}`` in it are filled by :meth:`filled`."""

    name: str
    version: int
    system: str
    user: str

    @property
    def id(self) -> str:
        return f"{self.name}@{self.version}"

    def filled(self, values: Mapping[str, str]) -> tuple[Mapping[str, str], ...]:
        """The messages of a request. Both texts are filled in one pass: slots within a value stay as they are."""

        def fill(template: str) -> str:
            return _SLOT.sub(lambda slot: values[slot[1]], template)

        return (
            {"role": "system", "content": fill(self.system)},
            {"role": "user", "content": fill(self.user)},
        )


@cache
def prompt(task: str, language: str) -> Prompt:
    """The prompt of a task in the language of a conversation.

    :raises ConfigError: when there is none, or its file is not one.
    """
    name = f"{task}.{language}"
    path = _FOLDER / f"{name}.md"
    if not re.fullmatch(r"\w+\.\w+", name) or not path.is_file():
        raise ConfigError(f"there is no prompt {name!r}; the prompts are {', '.join(prompt_names())}")
    parts = _FILE.fullmatch(path.read_text(encoding="utf-8"))
    head = dict(line.split(": ", 1) for line in parts["head"].splitlines()) if parts else {}
    if parts is None or head.get("name") != name or not head.get("version", "").isdecimal():
        raise ConfigError(f"the prompt file {path.name} is damaged: reinstall memstore")
    return Prompt(name, int(head["version"]), parts["system"].strip(), parts["user"].strip())


def prompt_names() -> tuple[str, ...]:
    """Of all prompts, sorted: ``extract.en``, ``extract.zh`` and so on."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.md")))
