"""Scenes and profiles without a model: extracts of what the memories say, never a new sentence."""

from memstore.pipelines.rules.profile_writing import profile
from memstore.pipelines.rules.scene_writing import scenes

__all__ = ["profile", "scenes"]
