"""Measures of a federation: accuracy after any round, size of the device logs, and cost of unlearning."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedforget.data import Interactions
from fedforget.device.log.stats import PaperLog, log_stats
from fedforget.device.scoring import scorer
from fedforget.evaluation import Ranking, evaluate
from fedforget.evaluation.ranking import Scorer
from fedforget.runtime.workers import Workers
from fedforget.server.receipt import Receipt
from fedforget.simulation.federation import Federation

#: Positions of the points of a curve, as fractions of all rounds.
CURVE_POINTS = (0.05, 0.15, 0.3, 0.5, 0.75)


@dataclass(frozen=True)
class Accuracy:
    """Metrics of the remaining users in both protocols."""

    sampled: Mapping[str, float]
    full: Mapping[str, float]


#: Accuracy by round.
Curve = Sequence[tuple[int, Accuracy]]


@dataclass(frozen=True)
class LogSize:
    """Mean size of the unlearning log in bytes per device.

    ``rows`` are the item rows (or their norms), ``dense`` the other public tensors, ``formula`` the size of the item
    rows by the paper's formula, and ``item_table`` the item embeddings in float32.
    """

    total: float
    rows: float
    dense: float
    formula: float
    item_table: float


@dataclass(frozen=True)
class Outcome:
    """Cost and accuracy of one unlearning variant.

    ``seconds`` is the wall time of unlearning without evaluation. ``speedup`` is relative to Retrain; None if nothing
    was unlearned or Retrain was not measured.
    """

    seconds: float
    speedup: float | None
    accuracy: Accuracy
    log: LogSize
    receipt: Receipt | None = field(default=None, compare=False)
    curve: Curve = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain values, without receipt and curve."""
        return {
            "seconds": self.seconds,
            "speedup": self.speedup,
            "communication_rounds": 0 if self.receipt is None else self.receipt.communication_rounds,
            **asdict(self.accuracy),
            "log": asdict(self.log),
        }

    def curve_dicts(self) -> list[dict[str, Any]]:
        """The curve as plain values."""
        return [{"round": round_, **asdict(accuracy)} for round_, accuracy in self.curve]


def accuracy_after(fed: Federation, round_: int, train: Interactions, test: Interactions) -> Accuracy:
    """The accuracy after a round, over the users of ``train``.

    Private parameters come from the device logs: exact for the last round, as stored in the log for earlier ones.
    """
    initial = fed.model.init_private(train.user_keys, fed.config.seed)
    private = fed.devices.log.private(round_, train.user_keys, initial)
    score = scorer(fed.config, fed.history.snapshot(round_), train, private, train.user_keys)
    return accuracy_of(score, train, test, fed.devices.workers)


def accuracy_curve(fed: Federation, train: Interactions, test: Interactions) -> Curve:
    """The accuracy at some rounds before the last.

    Rounds that were replayed in one step have no state of their own; the preceding state is used.
    """
    usable = sorted(fed.history.usable_rounds())
    wanted = [round(share * fed.rounds) for share in CURVE_POINTS]
    rounds = dict.fromkeys(usable[bisect_right(usable, round_) - 1] for round_ in wanted)
    return [(round_, accuracy_after(fed, round_, train, test)) for round_ in rounds if 0 < round_ < fed.rounds]


def accuracy_of(score: Scorer, train: Interactions, test: Interactions, workers: Workers) -> Accuracy:
    """The accuracy of a scorer in both protocols."""
    result = evaluate(score, train, test, Ranking(), workers)
    return Accuracy(result.sampled, result.full)


def log_size(fed: Federation) -> LogSize:
    """The mean log of a device: all entries, and the copy of the private parameters from before the last round."""
    stats = log_stats(fed.devices.log, fed.train.user_keys)
    paper = PaperLog.of(fed.model, fed.config.sampler, fed.train.counts, stats.entries)
    means = (float(size.mean()) for size in (stats.per_device, stats.of("rows"), stats.of("dense"), paper.rows))
    total, rows, dense, formula = means
    return LogSize(total, rows, dense, formula, item_table_bytes(fed))


def item_table_bytes(fed: Federation) -> int:
    """The size of the item embeddings in float32."""
    return fed.train.n_items * fed.model.dim * 4
