"""How well conversations become memories: precision, recall, kinds, times and verdicts on labelled conversations.

The cases are beside this file, with their own README. They are run through a store as any user would run them; what
judges is the rules, or any chat model of OpenAI's API.
"""

from benchmarks.extraction.running import Options, run
from benchmarks.extraction.scoring import table

__all__ = ["Options", "run", "table"]
