"""Loaded once by the server that processes are forked from: what each of them would load for seconds."""

from memstore.pipelines import rules as rules
from memstore.tokenizers import Tokenizers
from scripts.pipeline_story import playing as playing

Tokenizers().likely("").index("热身 warm-up")
