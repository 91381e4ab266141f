"""The pipelines without a model: rules for Chinese and English. Precision goes before recall."""

from collections.abc import Sequence

from memstore.pipelines.rules.extracting import extract
from memstore.pipelines.rules.judging import judge
from memstore.pipelines.rules.writing import profile, scenes
from memstore.pipelines.values import (
    Comparison,
    Extraction,
    Judgement,
    ProfileTask,
    SceneChange,
    SceneTask,
    Verdict,
    Window,
)

RULES_VERSION = 1
"""Raised with every change of what the rules decide; it is kept with everything that they made."""


class RulesJudge:
    """Decides by rules what a model would be asked for: the same answer every time, and no cost."""

    @property
    def name(self) -> str:
        """Marks what the rules made, with their version."""
        return f"rules-{RULES_VERSION}"

    def extract(self, window: Window) -> Judgement[Extraction]:
        return Judgement(extract(window), self.name)

    def verdicts(self, comparison: Comparison) -> Judgement[Sequence[Verdict]]:
        return Judgement(judge(comparison), self.name)

    def scenes(self, task: SceneTask) -> Judgement[Sequence[SceneChange]]:
        return Judgement(scenes(task), self.name)

    def profile(self, task: ProfileTask) -> Judgement[str]:
        return Judgement(profile(task), self.name)
