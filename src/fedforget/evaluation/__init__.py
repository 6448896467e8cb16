"""Evaluation of recommendations by ranking metrics."""

from fedforget.evaluation.ranking import Ranking, evaluate
from fedforget.evaluation.report import Evaluation

__all__ = ["Evaluation", "Ranking", "evaluate"]
