"""Loaded once by the server that processes are forked from: what each of them would load for seconds."""

import scripts.pipeline_story.playing  # noqa: F401 - it is enough that they are there
from memstore.tokenizers import Tokenizers

Tokenizers().likely("").index("热身 warm-up")
