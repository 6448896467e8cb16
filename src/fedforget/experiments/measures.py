"""Measures of a stored federation: accuracy after any round, and the size of the device logs."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from fedforget.data import Interactions
from fedforget.device.log.stats import PaperLog, log_stats
from fedforget.device.scoring import scorer
from fedforget.evaluation import Ranking, evaluate
from fedforget.evaluation.ranking import Scorer
from fedforget.experiments.outcome import Accuracy, Curve, LogSize
from fedforget.runtime.workers import Workers
from fedforget.simulation.federation import Federation

#: Positions of the points of a curve, as fractions of all rounds.
CURVE_POINTS = (0.05, 0.15, 0.3, 0.5, 0.75)


def accuracy_after(fed: Federation, round_: int, train: Interactions, test: Interactions) -> Accuracy:
    """The accuracy after a round, over the users of ``train``.

    Private parameters come from the device logs: exact for the last round, as stored in the log for earlier ones.
    """
    initial = fed.model.init_private(train.user_keys, fed.config.seed)
    private = fed.devices.log.private(round_, train.user_keys, initial)
    score = scorer(fed.config, fed.history.snapshot(round_), train, private)
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


def popularity(train: Interactions) -> Scorer:
    """Scores every item by its number of users."""
    counts = np.bincount(train.indices, minlength=train.n_items).astype(np.float32)
    return lambda _: counts


def log_size(fed: Federation) -> LogSize:
    """The mean log of a device: all entries, and the copy of the private parameters from before the last round."""
    stats = log_stats(fed.devices.log, fed.train.user_keys)
    paper = PaperLog.of(fed.model, fed.config.sampler, fed.train.counts, stats.entries)
    return LogSize(
        total=float(stats.per_device.mean()),
        rows=float(stats.of("rows").mean()),
        dense=float(stats.of("dense").mean()),
        formula=float(paper.rows.mean()),
        item_table=item_table_bytes(fed),
    )


def item_table_bytes(fed: Federation) -> int:
    """The size of the item embeddings in float32."""
    return fed.train.n_items * fed.model.dim * 4
