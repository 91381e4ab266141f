"""Bringing older stores into memstore. Every importer can be run again: what is known stays as it is."""

from memstore.importers.agenthub import import_agenthub
from memstore.importers.jsonl import import_jsonl

__all__ = ["import_agenthub", "import_jsonl"]
