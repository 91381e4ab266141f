"""The least score that a row needs in a leg, so that recall can abstain (SPEC R2)."""

import json
import math
from collections.abc import Mapping
from typing import Any

from memstore.config import Settings, is_number
from memstore.errors import InvalidInput
from memstore.storage.base import Reader, Writer
from memstore.types import LEGS

META_KEY = "floors"


def of(reader: Reader, settings: Settings) -> Mapping[str, float]:
    """The floors of a recall: those of the settings, else those that a calibration stored for the active model."""
    return settings.floors if settings.floors is not None else stored(reader)


def stored(reader: Reader) -> dict[str, float]:
    """What a calibration stored; nothing where it was for another model than the store's vectors are of now."""
    text = reader.meta(META_KEY)
    if text is None:
        return {}
    kept: dict[str, Any] = json.loads(text)
    return dict(kept["floors"]) if kept["model"] == _model(reader) else {}


def keep(tx: Writer, floors: Mapping[str, float] | None) -> None:
    """Store floors for the model that the store's vectors are of; None or nothing: no floors."""
    tx.set_meta(
        META_KEY, json.dumps({"model": _model(tx), "floors": checked({} if floors is None else floors)})
    )


def checked(floors: Mapping[str, float]) -> dict[str, float]:
    """:raises InvalidInput: naming what is no leg or no number."""
    if not isinstance(floors, Mapping):
        raise InvalidInput(f"floors are a mapping like {{'vector': 0.8}}, not {type(floors).__name__}")
    for leg, floor in floors.items():
        if leg not in LEGS:
            raise InvalidInput(f"floors name {leg!r:.40}; the legs are 'text' and 'vector'")
        if not is_number(floor, least=-math.inf):
            raise InvalidInput(f"the floor of the {leg} leg must be a number, not {floor!r:.40}")
    return {leg: float(floor) for leg, floor in floors.items()}


def _model(reader: Reader) -> str | None:
    active = reader.generation("active")
    return active.identity.digest() if active is not None else None
