"""SecureSum: adds up the masked vectors of a cohort and removes the masks from the sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedforget.protocol import masking
from fedforget.protocol.fixed_point import Words
from fedforget.protocol.masking import Contribution, Graph, RevealOrder
from fedforget.runtime.randomness import UserId


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
        if [len(each) for each in revealed] != self.revealed_sizes(user):
            return False
        sent = self.arrived[user]
        for place, given in enumerate(revealed):
            if len(given) == masking.SEED and masking.check_of(given, self.graph.context) != sent.pair_check(place):
                return False
        self.revealed[user] = list(revealed)
        return True

    @property
    def recoverable(self) -> bool:
        """Whether enough neighbours of every device have answered to recover its self seed."""
        for user in self.arrived:
            neighbours = self.graph.neighbours(self.keys[user])
            answered = sum(self._users[other] in self.arrived for other in neighbours)
            if answered < masking.threshold(len(neighbours)):
                return False
        return True

    def total(self) -> Words | None:
        """The sum without masks; None if masks of somebody cannot be removed."""
        silent = [user for user in self.arrived if user not in self.revealed]
        if len(self._seeds) < len(self.arrived) or any(self._has_absent_neighbour(user) for user in silent):
            return None
        words = np.zeros(self.size, np.uint32)
        for user, sent in self.arrived.items():
            words += sent.words
            masking.add_mask(words, self._seeds[user], -1)
            self._remove_pairs(words, user)
        return words

    @property
    def lost(self) -> set[UserId]:
        """The devices that revealed nothing valid, or whose shares are wrong though enough neighbours revealed."""
        return {
            user
            for user in self.arrived
            if user not in self.revealed or (user not in self._seeds and self._enough_revealed(user))
        }

    def _enough_revealed(self, user: UserId) -> bool:
        neighbours = self.graph.neighbours(self.keys[user])
        return sum(self._users[other] in self.revealed for other in neighbours) >= masking.threshold(len(neighbours))

    def _has_absent_neighbour(self, user: UserId) -> bool:
        return any(self._users[other] not in self.arrived for other in self.graph.neighbours(self.keys[user]))

    def _remove_pairs(self, words: Words, user: UserId) -> None:
        """Remove the masks that a device has with neighbours that did not answer."""
        own = self.keys[user]
        for place, other in enumerate(self.graph.neighbours(own)):
            if self._users[other] not in self.arrived:
                masking.add_mask(words, self.revealed[user][place], -masking.sign_of(own, other))

    @cached_property
    def _seeds(self) -> dict[UserId, bytes]:
        """The self seeds of all devices for which enough neighbours revealed valid shares."""
        seeds = {}
        for user in self.arrived:
            seed = self._seed(user)
            if seed is not None:
                seeds[user] = seed
        return seeds

    def _seed(self, user: UserId) -> bytes | None:
        """The self seed of a device, from the shares that fit its hashes; None if there are too few of them."""
        own, sent, context = self.keys[user], self.arrived[user], self.graph.context
        neighbours = self.graph.neighbours(own)
        shares = []
        for place, other in enumerate(neighbours):
            revealed = self.revealed.get(self._users[other])
            if revealed is not None:
                share = revealed[self.graph.neighbours(other).index(own)]
                if masking.check_of(share, context) == sent.share_check(place):
                    shares.append((place + 1, share))
        needed = masking.threshold(len(neighbours))
        if len(shares) < needed:
            return None
        seed = masking.join(shares[:needed])
        return seed if masking.check_of(seed, context) == sent.checks[0] else None

    @cached_property
    def _users(self) -> dict[bytes, UserId]:
        return {key: user for user, key in self.keys.items()}
