"""The recall stage: a question in, ranked and explained rows out (SPEC section 3)."""

from memstore.recall import floors
from memstore.recall.query_embedding import QueryEmbedding, QueryVectors
from memstore.recall.question import Question
from memstore.recall.recaller import Recaller
from memstore.recall.traces import Traces
from memstore.recall.why_not import why_not

__all__ = ["QueryEmbedding", "QueryVectors", "Question", "Recaller", "Traces", "floors", "why_not"]
