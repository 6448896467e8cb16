"""Measures on a federation as it is on disk: its accuracy after any round, and the size of its devices' logs."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from fedforget.data import Interactions
from fedforget.device.log.stats import PaperLog, log_stats
from fedforget.device.scoring import scorer
from fedforget.evaluation import Ranking, evaluate
from fedforget.evaluation.ranking import Scorer
from fedforget.experiments.outcome import Accuracy, Curve, LogSize
from fedforget.federation import Federation

#: Where on the way to the last round a curve has its points.
SHARES = (0.05, 0.15, 0.3, 0.5, 0.75)


def accuracy_after(fed: Federation, round_: int, train: Interactions, test: Interactions) -> Accuracy:
    """How good the model was after a round for the users of ``train``, who may be only some of the federation's.

    The public parameters are the round's snapshot, the private ones what the devices' logs tell: exactly for the last
    round, as their entries keep them (int8 in a log of lengths) for earlier ones. Nothing is timed or changed.
    """
    public = fed.history.snapshot(round_)
    initial = fed.model.init_private(train.user_keys, fed.settings.seed)
    private = fed.devices.log.private(round_, train.user_keys, initial)
    settings = fed.settings
    score = scorer(fed.model, settings.training, public, train, private, settings.seed)
    result = evaluate(score, train, test, Ranking(), fed.devices.workers)
    return Accuracy(result.sampled, result.full)


def accuracy_on_the_way(fed: Federation, train: Interactions, test: Interactions) -> Curve:
    """The accuracy at some rounds before the last, closer together where a model learns most.

    Rounds that were replayed in one step have one state: it is the one before that counts.
    """
    usable = sorted(fed.history.usable_rounds())
    wanted = [round(share * fed.rounds) for share in SHARES]
    rounds = dict.fromkeys(usable[bisect_right(usable, round_) - 1] for round_ in wanted)
    return [(round_, accuracy_after(fed, round_, train, test)) for round_ in rounds if 0 < round_ < fed.rounds]


def accuracy_of_popularity(train: Interactions, test: Interactions, like: Federation) -> Accuracy:
    """What recommending the most popular items to everyone would reach."""
    result = evaluate(popularity(train), train, test, Ranking(), like.devices.workers)
    return Accuracy(result.sampled, result.full)


def popularity(train: Interactions) -> Scorer:
    """Scores every item by the number of its users, the same for everyone."""
    counts = np.bincount(train.indices, minlength=train.n_items).astype(np.float32)
    return lambda _: counts


def log_size(fed: Federation) -> LogSize:
    """What a device of a federation keeps for unlearning, everything counted.

    That is every entry with its head, item numbers, numbers, private parameters and checksum, and beside the entries
    the exact copy of the private parameters from before the last round (and that round's number), which a device holds
    so that a round can be repeated. Its current private parameters are the model, not the log.
    """
    stats = log_stats(fed.devices.log, fed.train.user_keys)
    paper = PaperLog.of(fed.model, fed.settings.sampler, fed.train.counts, stats.entries)
    return LogSize(
        total=float(stats.per_device.mean()),
        rows=float(stats.of("rows").mean()),
        dense=float(stats.of("dense").mean()),
        formula=float(paper.rows.mean()),
        item_table=item_table_bytes(fed),
    )


def item_table_bytes(fed: Federation) -> int:
    """The item embeddings in float32: what any device has to receive anyway."""
    return fed.train.n_items * fed.model.dim * 4
