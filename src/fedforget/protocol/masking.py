"""Masking: how the devices of a cohort hide their vectors, so that the server can only learn the sum.

After Bonawitz et al. (CCS 2017), with the sparser graph of Bell et al. (CCS 2020), in two messages. Every device has an
X25519 key pair. For one sum, identified by its *context*, a device adds to its vector a self mask and, for each of its
neighbours, a pair mask that the neighbour subtracts. It sends the masked vector and shares of its self mask's seed,
one for each neighbour, encrypted. In the second message the server names the devices that have answered. A device then
reveals, for each neighbour that has, its share of the neighbour's self seed, and for each that has not, the seed of
their pair mask. It never reveals both. The server removes the masks from the sum; no single vector was ever readable.

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
from Crypto.Protocol.SecretSharing import Shamir
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
#: Sizes in bytes: of keys and contexts, of a self seed and its shares, of a pair seed, of an encrypted share.
KEY, SHARE, SEED, SEALED = 32, 16, 32, 12 + 16 + 16
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
        return _derive(self.private, context, b"self", SHARE)

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
    """The first message of a device: its masked vector, encrypted shares of its self seed, and hashes of its seeds.

    Shares are in the order of the device's neighbours. ``checks`` are hashes of the self seed, of the pair seeds and of
    the shares: the server recognises by them what is revealed later.
    """

    words: Words
    shares: Sequence[bytes]
    checks: Sequence[bytes]

    def pair_check(self, neighbour: int) -> bytes:
        """The hash of the pair seed with a neighbour."""
        return self.checks[1 + neighbour]

    def share_check(self, neighbour: int) -> bytes:
        """The hash of a neighbour's share of the self seed."""
        return self.checks[1 + len(self.shares) + neighbour]

    def fits(self, size: int, neighbours: int) -> bool:
        """Whether it has the right sizes."""
        return (
            self.words.shape == (size,)
            and len(self.shares) == neighbours
            and len(self.checks) == 1 + 2 * neighbours
            and all(len(share) == SEALED for share in self.shares)
            and all(len(check) == CHECK for check in self.checks)
        )


@dataclass(frozen=True)
class RevealOrder:
    """The second message to a device, about one sum: who has answered.

    ``answered`` is the number of devices that have. ``shares`` are, for each neighbour, the encrypted share that it
    made for this device, or nothing if it has not answered.
    """

    user: UserId
    round: int
    context: bytes
    answered: int
    shares: tuple[bytes, ...]


def context_of(order: Order, round_: int, task: Mapping[str, object], parameters: str) -> bytes:
    """The context of a sum: a hash of what identifies it.

    That is the federation, the trajectory, the order, the round, the task, the digest of the global parameters, and the
    keys of the devices.
    """
    keys = sorted(key.hex() for key in order.cohorts[round_])
    content = [order.federation, order.trajectory, order.number, round_, dict(task), parameters, keys]
    return hashlib.sha256(b"fedforget secure sum 1" + json.dumps(content, sort_keys=True).encode()).digest()


@dataclass(frozen=True)
class Graph:
    """Which devices of a cohort, named by their public keys, are neighbours: a ring in an order set by the context."""

    context: bytes
    keys: tuple[bytes, ...]

    @cached_property
    def _ring(self) -> list[bytes]:
        return sorted(self.keys, key=lambda key: hashlib.sha256(self.context + key).digest())

    @cached_property
    def _place(self) -> dict[bytes, int]:
        return {key: place for place, key in enumerate(self._ring)}

    def neighbours(self, key: bytes) -> list[bytes]:
        """The neighbours of a device, in the order in which its shares are numbered."""
        size, place = len(self._ring), self._place[key]
        if size <= NEIGHBOURS + 1:
            return [other for other in self._ring if other != key]
        half = NEIGHBOURS // 2
        return [self._ring[(place + step) % size] for step in (*range(-half, 0), *range(1, half + 1))]


def threshold(neighbours: int) -> int:
    """The number of shares that recover a self seed: more than half of the neighbours."""
    return neighbours // 2 + 1


def add_mask(words: Words, seed: bytes, sign: int) -> None:
    """Add the mask of a seed to a vector, or subtract it, in place."""
    key = seed if len(seed) == KEY else _derive(seed, b"", b"stream", KEY)
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()
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
    """Shares of a self seed, one for each neighbour."""
    return [share for _, share in Shamir.split(threshold(neighbours), neighbours, seed, False)]


def join(shares: Sequence[tuple[int, bytes]]) -> bytes:
    """The self seed, from as many shares as the threshold; they are numbered from 1."""
    seed: bytes = Shamir.combine(list(shares), False)
    return seed


def encrypt(share: bytes, key: bytes, context: bytes) -> bytes:
    """A share that only the device with the same key can read."""
    nonce = os.urandom(12)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, share, context)


def decrypt(sealed: bytes, key: bytes, context: bytes) -> bytes | None:
    """A share that was encrypted for this device; None if it was not, or is damaged."""
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:12], sealed[12:], context)
    except InvalidTag:
        return None


def check_of(seed: bytes, context: bytes) -> bytes:
    """A hash by which a revealed seed is recognised."""
    return hashlib.sha256(context + seed).digest()[:CHECK]


def _derive(secret: bytes, context: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, None, b"fedforget " + purpose + b" " + context).derive(secret)
