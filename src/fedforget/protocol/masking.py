"""Masking: how the devices of a cohort hide their vectors, so that the server can only learn the sum.

After Bonawitz et al. (CCS 2017), with the sparser graph of Bell et al. (CCS 2020), in two messages. Every device has an
X25519 key pair. For one sum, identified by its *context*, a device adds to its vector a self mask and, for each of its
neighbours, a pair mask that the neighbour subtracts. It sends the masked vector and, encrypted for each neighbour, one
share of the seed of each of these masks. In the second message the server names the devices that have answered. A
device then reveals, for each neighbour that has, its share of the neighbour's self seed, and for each that has not, the
seed of their pair mask. It never reveals both. For a device that answers the first message and not the second, its
neighbours also reveal their shares of the seeds of its masks with devices that have not answered. So the server can
remove the masks from the sum, whoever is lost when; no single vector was ever readable.

Vectors are whole numbers modulo 2^32 (``fixed_point``). Masks are ChaCha20 key streams, seeds come from HKDF, shares
from Shamir's scheme, encryption is ChaCha20-Poly1305.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import shamirs
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedforget.protocol.fixed_point import Words
from fedforget.protocol.order import Order
from fedforget.runtime.randomness import UserId

#: Devices in a cohort of more than this plus one have this many neighbours; in a smaller one all others are.
NEIGHBOURS = 24
#: Sizes in bytes: of keys and contexts, of seeds, of their shares, and what encryption adds.
KEY, SEED, SHARE, SEALING = 32, 16, 17, 12 + 16
#: The prime modulo which seeds are shared.
PRIME = 2**130 - 5
#: The size of a hash by which the server checks what is revealed.
CHECK = 16
#: Words of a mask that are made at once: few enough for the processor's cache.
BLOCK = 1 << 15


class MaskingError(ValueError):
    """A public key is not valid."""


@dataclass(frozen=True)
class KeyPair:
    """The X25519 key pair of a user's device. The private key never leaves it."""

    private: bytes

    @classmethod
    def new(cls) -> Self:
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    @cached_property
    def public(self) -> bytes:
        """The key that others know."""
        return X25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw()

    def self_seed(self, context: bytes) -> bytes:
        """The seed of the self mask: the same whenever the device is asked again for the same sum."""
        return _derive(self.private, context, b"self", SEED)

    def pair_secrets(self, other: bytes, context: bytes) -> tuple[bytes, bytes]:
        """The seed of the mask and the key for shares that this device has with another one, for one sum."""
        own = X25519PrivateKey.from_private_bytes(self.private)
        try:
            shared = own.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError as error:
            raise MaskingError("the public key of a device is not valid") from error
        both = _derive(shared, context, b"pair", SEED + KEY)
        return both[:SEED], both[SEED:]


@dataclass(frozen=True)
class Contribution:
    """The first message of a device: its masked vector, encrypted shares of its seeds, and hashes of both.

    Seed 0 is the self seed, seed 1 + n that of the mask with neighbour n. ``shares`` has for each neighbour its shares
    of all seeds. ``checks`` are hashes of the seeds, then of the shares of each seed: the server recognises by them
    what is revealed later.
    """

    words: Words
    shares: Sequence[bytes]
    checks: Sequence[bytes]

    def seed_check(self, seed: int) -> bytes:
        """The hash of a seed."""
        return self.checks[seed]

    def share_check(self, seed: int, neighbour: int) -> bytes:
        """The hash of a neighbour's share of a seed."""
        return self.checks[(1 + seed) * len(self.shares) + 1 + neighbour]

    def fits(self, size: int, neighbours: int) -> bool:
        """Whether it has the right sizes."""
        return (
            self.words.shape == (size,)
            and len(self.shares) == neighbours
            and len(self.checks) == (1 + neighbours) ** 2
            and all(len(share) == sealed_size(neighbours) for share in self.shares)
            and all(len(check) == CHECK for check in self.checks)
        )


@dataclass(frozen=True)
class RevealOrder:
    """The second message to a device, about one sum: who has answered.

    ``answered`` is the number of devices that have. ``shares`` are, for each neighbour, the encrypted shares that it
    made for this device, or nothing if it has not answered. ``absent`` are the keys of devices that have not answered,
    among its neighbours and their neighbours.
    """

    user: UserId
    round: int
    context: bytes
    answered: int
    shares: tuple[bytes, ...]
    absent: frozenset[bytes] = frozenset()


def context_of(order: Order, round_: int, task: Mapping[str, object], parameters: str) -> bytes:
    """The context of a sum: a hash of what identifies it.

    That is the federation, the trajectory, the order, the round, the task, the digest of the global parameters, and the
    keys of the devices.
    """
    keys = sorted(key.hex() for key in order.cohorts[round_])
    content = [order.federation, order.trajectory, order.number, round_, dict(task), parameters, keys]
    return hashlib.sha256(b"fedforget secure sum 1" + json.dumps(content, sort_keys=True).encode()).digest()


@dataclass(frozen=True)
class Ring:
    """Devices in a ring, named by their public keys: who is whose neighbour.

    In a small ring all are neighbours. ``closed`` is false for a part of a ring, of which only the neighbours of
    devices in the middle are known.
    """

    keys: tuple[bytes, ...]
    closed: bool = True

    @cached_property
    def _place(self) -> dict[bytes, int]:
        return {key: place for place, key in enumerate(self.keys)}

    def neighbours(self, key: bytes) -> list[bytes]:
        """The neighbours of a device, in the order in which its shares are numbered."""
        if self.closed and len(self.keys) <= NEIGHBOURS + 1:
            return [other for other in self.keys if other != key]
        half, place = NEIGHBOURS // 2, self._place[key]
        return [self.keys[(place + step) % len(self.keys)] for step in (*range(-half, 0), *range(1, half + 1))]

    def around(self, key: bytes) -> Ring:
        """The part of the ring with a device, its neighbours and their neighbours."""
        if len(self.keys) <= 2 * NEIGHBOURS + 1:
            return self
        place = self._place[key]
        steps = range(-NEIGHBOURS, NEIGHBOURS + 1)
        return Ring(tuple(self.keys[(place + step) % len(self.keys)] for step in steps), closed=False)


def ring_of(context: bytes, keys: Sequence[bytes]) -> Ring:
    """The devices of a sum in a ring, in an order set by the context."""
    return Ring(tuple(sorted(keys, key=lambda key: hashlib.sha256(context + key).digest())))


def threshold(neighbours: int) -> int:
    """The number of shares that recover a seed: more than half of the neighbours."""
    return neighbours // 2 + 1


def sealed_size(neighbours: int) -> int:
    """The size of the encrypted shares for one neighbour."""
    return SEALING + (1 + neighbours) * SHARE


def add_mask(words: Words, seed: bytes, sign: int) -> None:
    """Add the mask of a seed to a vector, or subtract it, in place."""
    cipher = Cipher(algorithms.ChaCha20(_derive(seed, b"", b"stream", KEY), bytes(16)), None).encryptor()
    combine, zeros, stream = np.add if sign > 0 else np.subtract, bytes(4 * BLOCK), bytearray(4 * BLOCK)
    mask = np.frombuffer(stream, "<u4")
    for start in range(0, words.size, BLOCK):
        block = words[start : start + BLOCK]
        cipher.update_into(zeros[: block.nbytes], stream)
        combine(block, mask[: block.size], out=block)


def sign_of(own: bytes, other: bytes) -> int:
    """Whether a device adds or subtracts the mask that it has with another one."""
    return 1 if own < other else -1


def split(seed: bytes, neighbours: int) -> list[bytes]:
    """Shares of a seed, one for each neighbour."""
    shares = shamirs.shares(int.from_bytes(seed, "big"), neighbours, PRIME, threshold(neighbours))
    return [int(share[1]).to_bytes(SHARE, "big") for share in shares]


def join(shares: Sequence[tuple[int, bytes]]) -> bytes | None:
    """The seed, from as many shares as the threshold, numbered from 1; None if they do not belong together."""
    points = [(number, int.from_bytes(share, "big")) for number, share in shares]
    if any(value >= PRIME for _, value in points):
        return None
    seed = int(shamirs.interpolate([shamirs.share(number, value, PRIME) for number, value in points]))
    return seed.to_bytes(SEED, "big") if seed < 2 ** (8 * SEED) else None


def encrypt(shares: bytes, key: bytes, context: bytes) -> bytes:
    """Shares that only the device with the same key can read."""
    nonce = os.urandom(12)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, shares, context)


def decrypt(sealed: bytes, key: bytes, context: bytes) -> bytes | None:
    """Shares that were encrypted for this device; None if they were not, or are damaged."""
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:12], sealed[12:], context)
    except InvalidTag:
        return None


def check_of(secret: bytes, context: bytes) -> bytes:
    """A hash by which a revealed seed or share is recognised."""
    return hashlib.sha256(context + secret).digest()[:CHECK]


def _derive(secret: bytes, context: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, None, b"fedforget " + purpose + b" " + context).derive(secret)
