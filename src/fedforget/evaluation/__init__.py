"""Evaluation: how good the recommendations are, seen from above both sides of the privacy boundary."""

from fedforget.evaluation.ranking import Ranking, evaluate
from fedforget.evaluation.report import Evaluation

__all__ = ["Evaluation", "Ranking", "evaluate"]
