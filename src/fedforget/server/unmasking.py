"""SecureSum: adds up the masked vectors of a cohort and removes the masks from the sum."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedforget.protocol import masking
from fedforget.protocol.fixed_point import Words
from fedforget.protocol.masking import Contribution, Graph, RevealOrder
from fedforget.runtime.randomness import UserId

#: How many sets of shares are tried to recover a self seed if some are wrong.
TRIES = 50


@dataclass
class SecureSum:
    """The sum over one cohort: ``keys`` are the public keys of its users, ``arrived`` what they sent."""

    graph: Graph
    keys: Mapping[UserId, bytes]
    size: int
    arrived: dict[UserId, Contribution] = field(default_factory=dict)
    revealed: dict[UserId, list[bytes]] = field(default_factory=dict)

    def add(self, user: UserId, sent: Contribution) -> bool:
        """Take what a device sent; False if it does not fit."""
        if not sent.fits(self.size, len(self.graph.neighbours(self.keys[user]))):
            return False
        self.arrived[user] = sent
        return True

    def reveal_order(self, user: UserId, round_: int) -> RevealOrder:
        """What a device is told about the others, so that it reveals what removes their masks."""
        own, users, shares = self.keys[user], self._users, []
        for other in self.graph.neighbours(own):
            sent = self.arrived.get(users[other])
            shares.append(b"" if sent is None else sent.shares[self.graph.neighbours(other).index(own)])
        return RevealOrder(user, round_, self.graph.context, len(self.arrived), tuple(shares))

    def revealed_sizes(self, user: UserId) -> list[int]:
        """The sizes of what a device reveals about each neighbour."""
        users = self._users
        answered = [users[other] in self.arrived for other in self.graph.neighbours(self.keys[user])]
        return [masking.SHARE if each else masking.SEED for each in answered]

    def add_revealed(self, user: UserId, revealed: Sequence[bytes]) -> bool:
        """Take what a device revealed; False if it does not fit its own hashes."""
        sizes = self.revealed_sizes(user)
        if [len(each) for each in revealed] != sizes:
            return False
        for given, check in zip(revealed, self.arrived[user].checks[1:], strict=True):
            if len(given) == masking.SEED and masking.check_of(given, self.graph.context) != check:
                return False
        self.revealed[user] = list(revealed)
        return True

    def total(self) -> Words | None:
        """The sum without masks; None if masks of somebody cannot be removed."""
        words = np.zeros(self.size, np.uint32)
        for user, sent in self.arrived.items():
            seed = self._self_seed(user)
            if seed is None:
                return None
            words += sent.words
            masking.add_mask(words, seed, -1)
            if not self._remove_pairs(words, user):
                return None
        return words

    def _remove_pairs(self, words: Words, user: UserId) -> bool:
        """Remove the masks that a device has with neighbours that did not answer; False if it revealed nothing."""
        own, users = self.keys[user], self._users
        for place, other in enumerate(self.graph.neighbours(own)):
            if users[other] not in self.arrived:
                if user not in self.revealed:
                    return False
                masking.add_mask(words, self.revealed[user][place], -masking.sign_of(own, other))
        return True

    def _self_seed(self, user: UserId) -> bytes | None:
        """The self seed of a device, from its neighbours' shares; None if too few of them are right."""
        own, users = self.keys[user], self._users
        neighbours = self.graph.neighbours(own)
        shares = []
        for number, other in enumerate(neighbours, start=1):
            revealed = self.revealed.get(users[other])
            if revealed is not None:
                shares.append((number, revealed[self.graph.neighbours(other).index(own)]))
        check = self.arrived[user].checks[0]
        sets = itertools.combinations(shares, masking.threshold(len(neighbours)))
        for chosen in itertools.islice(sets, TRIES):
            seed = masking.join(chosen)
            if masking.check_of(seed, self.graph.context) == check:
                return seed
        return None

    @cached_property
    def _users(self) -> dict[bytes, UserId]:
        return {key: user for user, key in self.keys.items()}
