"""SecureSum: adds up the masked vectors of a cohort and removes the masks from the sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedforget.protocol import masking
from fedforget.protocol.fixed_point import Words
from fedforget.protocol.masking import Contribution, RevealOrder, Ring
from fedforget.runtime.randomness import UserId


@dataclass
class SecureSum:
    """The sum over one cohort: ``keys`` are the public keys of its users, ``arrived`` what they sent.

    ``revealed`` has, by the key of a device and of its neighbour, what the first revealed about the second.
    """

    context: bytes
    keys: Mapping[UserId, bytes]
    size: int
    arrived: dict[UserId, Contribution] = field(default_factory=dict)
    revealed: dict[bytes, dict[bytes, bytes]] = field(default_factory=dict)

    @cached_property
    def ring(self) -> Ring:
        """Who is whose neighbour."""
        return masking.ring_of(self.context, list(self.keys.values()))

    def add(self, user: UserId, sent: Contribution) -> bool:
        """Take what a device sent; False if it does not fit."""
        if not sent.fits(self.size, len(self.ring.neighbours(self.keys[user]))):
            return False
        self.arrived[user] = sent
        return True

    @property
    def recoverable(self) -> bool:
        """Whether enough neighbours of every device have answered to recover its seeds."""
        answered = self._answered
        neighbours = [self.ring.neighbours(key) for key in answered]
        return all(sum(other in answered for other in each) >= masking.threshold(len(each)) for each in neighbours)

    def reveal_order(self, user: UserId, round_: int) -> RevealOrder:
        """What a device is told about the others, so that it reveals what removes their masks."""
        own, answered, shares = self.keys[user], self._answered, []
        for other in self.ring.neighbours(own):
            sent = answered.get(other)
            shares.append(b"" if sent is None else sent.shares[self.ring.neighbours(other).index(own)])
        absent = frozenset(key for key in self.ring.around(own).keys if key not in answered)
        return RevealOrder(user, round_, self.context, len(answered), tuple(shares), absent)

    def revealed_sizes(self, user: UserId) -> list[int]:
        """The sizes of what a device reveals about each neighbour."""
        return [
            masking.SHARE * (1 + len(self._absent_neighbours(other))) if other in self._answered else masking.SEED
            for other in self.ring.neighbours(self.keys[user])
        ]

    def add_revealed(self, user: UserId, revealed: Sequence[bytes]) -> bool:
        """Take what a device revealed; False if its sizes are wrong or its seeds do not fit its own hashes."""
        if [len(each) for each in revealed] != self.revealed_sizes(user):
            return False
        own = self.keys[user]
        for place, (other, given) in enumerate(zip(self.ring.neighbours(own), revealed, strict=True)):
            if other not in self._answered and not self._fits(user, 1 + place, given):
                return False
        self.revealed[own] = dict(zip(self.ring.neighbours(own), revealed, strict=True))
        return True

    def total(self) -> Words | None:
        """The sum without masks; None if masks of somebody cannot be removed."""
        if len(self._seeds) < len(self.arrived):
            return None
        words = np.zeros(self.size, np.uint32)
        for user, sent in self.arrived.items():
            own = self.keys[user]
            self_seed, pair_seeds = self._seeds[user]
            words += sent.words
            masking.add_mask(words, self_seed, -1)
            for other, seed in pair_seeds.items():
                masking.add_mask(words, seed, -masking.sign_of(own, other))
        return words

    @property
    def wrong(self) -> set[UserId]:
        """Devices whose seeds cannot be recovered though enough neighbours revealed their shares."""
        return {user for user in self.arrived if user not in self._seeds and self._enough_revealed(user)}

    @property
    def silent(self) -> set[UserId]:
        """Devices that revealed nothing valid."""
        return {user for user in self.arrived if self.keys[user] not in self.revealed}

    @cached_property
    def _answered(self) -> dict[bytes, Contribution]:
        """What devices sent, by key; not to be read before all have arrived."""
        return {self.keys[user]: sent for user, sent in self.arrived.items()}

    def _absent_neighbours(self, key: bytes) -> list[bytes]:
        return [other for other in self.ring.neighbours(key) if other not in self._answered]

    def _enough_revealed(self, user: UserId) -> bool:
        neighbours = self.ring.neighbours(self.keys[user])
        return sum(other in self.revealed for other in neighbours) >= masking.threshold(len(neighbours))

    @cached_property
    def _seeds(self) -> dict[UserId, tuple[bytes, dict[bytes, bytes]]]:
        """The self seed of each device, and the seeds of its masks with absent neighbours, where all are known."""
        found = {}
        for user in self.arrived:
            absent = self._absent_neighbours(self.keys[user])
            seeds = [self._shared_seed(user, 0, 0)]
            for number, other in enumerate(absent, start=1):
                own = self.revealed.get(self.keys[user], {}).get(other)
                place = self.ring.neighbours(self.keys[user]).index(other)
                seeds.append(own or self._shared_seed(user, 1 + place, number))
            known = [seed for seed in seeds if seed is not None]
            if len(known) == len(seeds):
                found[user] = known[0], dict(zip(absent, known[1:], strict=True))
        return found

    def _shared_seed(self, user: UserId, seed: int, number: int) -> bytes | None:
        """A seed of a device from the shares that fit its hashes, each the ``number``-th that a neighbour revealed."""
        own, sent = self.keys[user], self.arrived[user]
        neighbours = self.ring.neighbours(own)
        shares, needed = [], masking.threshold(len(neighbours))
        for place, other in enumerate(neighbours):
            if other in self.revealed:
                share = self.revealed[other][own][number * masking.SHARE : (number + 1) * masking.SHARE]
                if masking.check_of(share, self.context) == sent.share_check(seed, place):
                    shares.append((place + 1, share))
        joined = masking.join(shares[:needed]) if len(shares) >= needed else None
        return joined if joined is not None and self._fits(user, seed, joined) else None

    def _fits(self, user: UserId, number: int, seed: bytes) -> bool:
        return masking.check_of(seed, self.context) == self.arrived[user].seed_check(number)
