"""ServerView: what a curious server sees of some users in training, and how well it guesses their items."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedforget.device.masked import contribute
from fedforget.evaluation.server_attacks import ROW_ATTACKS, Received, Scores, auc, direction, precision
from fedforget.protocol.fixed_point import SumFormat
from fedforget.protocol.masking import KEY, KeyPair, ring_of
from fedforget.protocol.updates import Updates
from fedforget.runtime import randomness
from fedforget.runtime.randomness import UserId
from fedforget.server.run_config import RunConfig
from fedforget.server.unlearning.cover import Cover

#: What a server finds out about one user by one attack: the AUC and the precision, None if there is nothing to tell.
Found = dict[str, float | None]
#: Attacks that use which rows were sent, of one round and over rounds.
SENT, RECURRENCE = "sent", "recurrence"
#: Devices in the sum that a vector is masked for: with more neighbours it would have more masks, to the same effect.
MASKED_FOR = 3


def found(scores: Scores, own: NDArray[np.bool_]) -> Found:
    """How well scores tell a user's own items from others."""
    return {"auc": auc(scores, own), "precision": precision(scores, own)}


@dataclass
class Guesses:
    """The attacks on one user, over the rounds in which it took part.

    ``own`` marks its items. ``scores`` are the sums of each attack's ranks by item, ``sent`` counts the rounds in which
    an item was sent. ``newest`` are the results for the newest round alone.
    """

    own: NDArray[np.bool_]
    rounds: int = 0
    scores: dict[str, Scores] = field(default_factory=dict)
    sent: Scores = field(init=False)
    newest: dict[str, Found] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sent = np.zeros(self.own.size)

    def add(self, update: Received, counts: Scores | None = None) -> None:
        """Attack one more update; ``counts`` say how often each item was sent, by default once if it is there."""
        self.rounds += 1
        if counts is None:
            counts = np.zeros(self.own.size)
            counts[update.items] = 1.0
        self.sent += counts
        self.newest = {SENT: found(counts, self.own)}
        for name, attack in ROW_ATTACKS.items():
            scores = attack(update)
            self.newest[name] = found(scores, self.own[update.items])
            ranks = np.unique(scores, return_inverse=True)[1] / max(scores.size, 1)
            self.scores.setdefault(name, np.zeros(self.own.size))[update.items] += ranks

    def over_all_rounds(self) -> dict[str, Found]:
        """The results of all rounds together: the mean rank of each item that was ever sent, and how often it was."""
        ever = self.sent != 0
        means = {name: scores[ever] / np.abs(self.sent[ever]) for name, scores in self.scores.items()}
        return {
            RECURRENCE: found(self.sent / max(self.rounds, 1), self.own),
            **{name: found(mean, self.own[ever]) for name, mean in means.items()},
        }


class ServerView:
    """The attacks on all audited users, in plain and in secure mode, from the updates of each round.

    ``items_of`` are the users' own items, ``guesses`` the keys of their draws as far as the server can compute them.
    """

    def __init__(
        self,
        config: RunConfig,
        n_items: int,
        items_of: Mapping[UserId, NDArray[np.int32]],
        guesses: Mapping[UserId, int],
    ) -> None:
        self.config = config
        self.n_items = n_items
        self.guesses = guesses
        own = {user: _flags(items, n_items) for user, items in items_of.items()}
        self.plain = {user: Guesses(flags) for user, flags in own.items()}
        self.secure = {user: Guesses(flags) for user, flags in own.items()}
        self.erasure: dict[UserId, tuple[Found, Found]] = {}
        self.sums: list[NDArray[np.int64]] = []
        self.cohorts: list[set[UserId]] = []
        self.side = 0

    def take(self, round_: int, updates: Updates) -> None:
        """Attack the updates of one round."""
        popularity = np.bincount(updates.items, minlength=self.n_items)
        users = list(updates.users)
        self.sums.append(popularity)
        self.cohorts.append(set(users))
        for place, user in enumerate(users):
            if user in self.plain:
                one = updates.between(place, place + 1)
                guess = np.array([self.guesses[user]], np.uint64)
                (key,) = randomness.priorities(self.config.seed, randomness.NEGATIVES, round_, guess)
                received = Received(one.items, one.rows, key, self.n_items, self.side or 1)
                if not self.side:  # the first user stands for a device of the server's own
                    known = auc(direction(received), self.plain[user].own[one.items])
                    self.side = -1 if known is not None and known < 0.5 else 1
                self.plain[user].add(replace(received, side=self.side))
                self._mask(one, len(users), round_, key, self.secure[user])
                if user not in self.erasure:
                    self.erasure[user] = self._difference(user, users, updates)

    def _mask(self, update: Updates, cohort: int, round_: int, key: np.uint64, guesses: Guesses) -> None:
        """Attack the vector that arrives in secure mode, as if it were an update."""
        model = self.config.model
        sums = SumFormat(self.n_items, model.dim, model.update_layout.size, self.config.bounds, cohort)
        words = np.zeros(sums.size, np.uint32)
        sums.encode(update, np.zeros(1, np.uint64), round_, self.config.seed, words)
        pairs = [KeyPair.new() for _ in range(MASKED_FOR)]
        context = round_.to_bytes(KEY, "big")
        sent = contribute(pairs[0], context, ring_of(context, [pair.public for pair in pairs]), words)
        seen = sums.decode(sent.words, [0])
        counts = sums.counts(sent.words)
        everything = np.arange(self.n_items, dtype=np.int32)
        guesses.add(Received(everything, seen.items, key, self.n_items), counts)

    def _difference(self, user: UserId, users: Sequence[UserId], updates: Updates) -> tuple[Found, Found]:
        """What the sums before and after an erasure of this user tell: with the cover, and without."""
        own = self.plain[user].own
        results = []
        for minimum in (self.config.server.minimum, 0):
            cover = Cover({user}, {user}, minimum, self.config.seed, 1)
            stay = set(cover.remaining(users))
            left_out = updates.only(np.array([each not in stay for each in users], bool))
            results.append(found(np.bincount(left_out.items, minlength=self.n_items).astype(np.float64), own))
        return results[0], results[1]

    def sums_over_rounds(self) -> tuple[list[Found], list[Found]]:
        """What the sums of all rounds tell of each user, from the rounds it was in; and of somebody else instead."""
        sums = np.array(self.sums, np.float64)
        of_own, of_other = [], []
        users = [user for user, guesses in self.plain.items() if 0 < guesses.rounds < len(sums)]
        for place, user in enumerate(users):
            inside = np.array([user in cohort for cohort in self.cohorts])
            scores = sums[inside].mean(0) - sums[~inside].mean(0)
            of_own.append(found(scores, self.plain[user].own))
            of_other.append(found(scores, self.plain[users[place - 1]].own))
        return of_own, of_other


def mean_of(results: Sequence[Found]) -> Found:
    """The mean over users; None if there is nothing to tell about anybody."""
    means: Found = {}
    for name in ("auc", "precision"):
        known = [value for each in results if (value := each[name]) is not None]
        means[name] = float(np.mean(known)) if known else None
    return means


def by_attack(guesses: Mapping[UserId, Guesses], of: Callable[[Guesses], dict[str, Found]]) -> dict[str, Any]:
    """The mean over users of each attack."""
    results: dict[str, list[Found]] = defaultdict(list)
    for each in guesses.values():
        if each.rounds:
            for name, result in of(each).items():
                results[name].append(result)
    return {name: mean_of(each) for name, each in results.items()}


def _flags(items: NDArray[np.int32], n_items: int) -> NDArray[np.bool_]:
    flags = np.zeros(n_items, bool)
    flags[items] = True
    return flags
