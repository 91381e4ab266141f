"""Prompts are files with versions: what a decision was made with can be told later."""

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from memstore.errors import ConfigError
from memstore.prompts import Prompt, prompt, prompt_names

TASKS = ("extract", "profile", "scenes", "verdict")
LANGUAGES = ("en", "zh")

# A changed text needs a new version: raise the number in the file's head, then write its new line here.
DIGESTS = {
    "extract.en@1": "fc0815f5b47622be",
    "extract.zh@1": "7437d10478b8ea02",
    "form.any@1": "835fc7822e89319c",
    "profile.en@1": "d961140840fcbba8",
    "profile.zh@1": "2bb155f4610a6fe0",
    "scenes.en@1": "f1756c7545cdb426",
    "scenes.zh@1": "99553b275dcfec7f",
    "verdict.en@1": "4f90aa7fe573ea3d",
    "verdict.zh@1": "b11c0b85aa61d83b",
}


def _digest(one: Prompt) -> str:
    return hashlib.sha256(f"{one.system}\0{one.user}".encode()).hexdigest()[:16]


def test_every_task_has_a_prompt_in_both_languages():
    """Beside them stands what is said of the form of an answer, whatever its language."""
    of_tasks = {f"{task}.{language}" for task in TASKS for language in LANGUAGES}
    assert set(prompt_names()) == {*of_tasks, "form.any"}


def test_a_changed_text_is_a_new_version():
    found = {one.id: _digest(one) for one in (prompt(*name.split(".")) for name in prompt_names())}
    assert found == DIGESTS


@pytest.mark.parametrize("task", TASKS)
def test_both_languages_of_a_prompt_take_the_same_values(task):
    slots = [
        set(re.findall(r"{{(\w+)}}", one.system + one.user))
        for one in (prompt(task, each) for each in LANGUAGES)
    ]
    assert slots[0] == slots[1]
    assert slots[0]


def test_values_are_filled_in_one_pass():
    one = Prompt("x.en", 3, "at most {{most}}", "<a>{{text}}</a>")
    assert one.id == "x.en@3"
    filled = one.filled({"most": "5", "text": r"{{most}} \1 $most"})
    assert filled == (
        {"role": "system", "content": "at most 5"},
        {"role": "user", "content": r"<a>{{most}} \1 $most</a>"},
    )


@pytest.mark.parametrize(
    "name", [("extract", "fr"), ("nothing", "zh"), ("../prompts/extract", "zh"), ("", "")]
)
def test_a_prompt_that_is_not_there_is_named(name):
    with pytest.raises(ConfigError, match=r"extract\.en, extract\.zh"):
        prompt(*name)


def test_the_wheel_has_the_prompts(tmp_path):
    pytest.importorskip("hatchling")
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"memstore/prompts/{name}.md" for name in prompt_names()} <= names
