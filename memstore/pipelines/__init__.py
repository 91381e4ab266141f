"""The pipelines: conversations become memories (L1), scenes (L2) and profiles (L3)."""
