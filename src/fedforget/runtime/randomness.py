"""Keyed randomness: every draw comes from a stream named by (seed, purpose, round, user).

A stream is a SplitMix64 generator. Its state is a one-element ``uint64`` array, which compiled code can advance. The
initial state depends only on the key, so results do not depend on how clients are grouped, on the number of workers, or
on the engine.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedforget.runtime.compiled import exact
from fedforget.runtime.ids import ItemId as ItemId
from fedforget.runtime.ids import UserId as UserId

Stream = NDArray[np.uint64]
#: One round, or a round for each user.
Rounds = int | NDArray[np.int64]

#: Purposes of streams. The numbers are part of the format of a run: never reuse or change them.
COHORT: Final = 1
NEGATIVES: Final = 2
BATCHES: Final = 3
INIT_PUBLIC: Final = 4
INIT_PRIVATE: Final = 5
SPLIT: Final = 6
CANDIDATES: Final = 7
SYNTHETIC: Final = 8
SELECTION: Final = 9
ATTACK: Final = 10
MALICIOUS: Final = 11
INIT_ITEM: Final = 12
ROUNDING: Final = 13
COVER: Final = 14
AUDIT: Final = 17

_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_S11: Final = np.uint64(11)
_S27: Final = np.uint64(27)
_S30: Final = np.uint64(30)
_S31: Final = np.uint64(31)


@exact
def mix(x: np.uint64) -> np.uint64:
    """Scramble 64 bits (the finaliser of SplitMix64), a bijection."""
    x = (x ^ (x >> _S30)) * _MIX_1
    x = (x ^ (x >> _S27)) * _MIX_2
    return x ^ (x >> _S31)


@exact
def key(seed: int, purpose: int, round_: int, user: np.uint64) -> np.uint64:
    """The start of the stream for one (seed, purpose, round, user)."""
    state = mix(np.uint64(seed) + _GAMMA)
    state = mix(state ^ (np.uint64(purpose) + _GAMMA))
    state = mix(state ^ (np.uint64(round_) + _GAMMA))
    return mix(state ^ (np.uint64(user) + _GAMMA))


@exact
def stream(seed: int, purpose: int, round_: int, user: np.uint64) -> Stream:
    """A fresh stream for one (seed, purpose, round, user)."""
    state = np.empty(1, np.uint64)
    state[0] = key(seed, purpose, round_, user)
    return state


@exact
def next_bits(state: Stream) -> np.uint64:
    """Advance the stream by one 64-bit draw."""
    state[0] += _GAMMA
    return mix(state[0])


@exact
def uniform(state: Stream) -> float:
    """A draw from [0, 1) with 53 random bits."""
    return np.float64(next_bits(state) >> _S11) * (1.0 / 9007199254740992.0)


@exact
def below(state: Stream, n: int) -> int:
    """A draw from 0 .. n-1. The bias of the scaling is below n / 2^53."""
    return int(uniform(state) * n)


@exact
def shuffle(state: Stream, values: NDArray[np.int32]) -> None:
    """Shuffle in place (Fisher-Yates)."""
    for i in range(values.size - 1, 0, -1):
        j = below(state, i + 1)
        kept = values[i]
        values[i] = values[j]
        values[j] = kept


@exact
def choose(state: Stream, values: NDArray[np.int32], n: int) -> None:
    """Move n values drawn without replacement to the front (the first n steps of a shuffle)."""
    for i in range(n):
        j = i + below(state, values.size - i)
        kept = values[i]
        values[i] = values[j]
        values[j] = kept


@exact
def fill_normal(state: Stream, out: NDArray[np.float32], std: float) -> None:
    """Fill a flat array with normal draws of mean 0 (Box-Muller, two at a time)."""
    for i in range(0, out.size, 2):
        radius = std * np.sqrt(-2.0 * np.log(1.0 - uniform(state)))
        angle = 2.0 * np.pi * uniform(state)
        out[i] = radius * np.cos(angle)
        if i + 1 < out.size:
            out[i + 1] = radius * np.sin(angle)


@exact
def fill_normal_by_user(
    seed: int, purpose: int, users: NDArray[np.uint64], out: NDArray[np.float32], std: float
) -> None:
    """Fill row i with normal draws from the stream of user i (round 0)."""
    for i in range(users.size):
        fill_normal(stream(seed, purpose, 0, users[i]), out[i], std)


@exact
def fill_uniform(state: Stream, out: NDArray[np.float32], low: float, high: float) -> None:
    """Fill a flat array with draws between low and high."""
    for i in range(out.size):
        out[i] = low + (high - low) * uniform(state)


def priorities(seed: int, purpose: int, rounds: Rounds, users: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One keyed draw for each user, in one round or in a round of its own.

    Sorting by it gives a random order, in which the order of two users does not depend on others.
    """
    return _priorities(seed, purpose, np.full(users.size, rounds, np.int64), users)


@exact
def _priorities(seed: int, purpose: int, rounds: NDArray[np.int64], users: NDArray[np.uint64]) -> NDArray[np.uint64]:
    out = np.empty(users.size, np.uint64)
    for i in range(users.size):
        out[i] = key(seed, purpose, rounds[i], users[i])
    return out


def user_key(user_id: UserId) -> int:
    """The 64-bit key of a user id: the same on every machine and in every process."""
    return _key_of(user_id)


def secret_key(user: UserId, secret: str) -> int:
    """The key of a user's draws from a secret that only its device knows; without a secret that of its id."""
    if not secret:
        return user_key(user)
    key = user_key(user).to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8, key=bytes.fromhex(secret)).digest(), "little")


def item_key(item_id: int | str) -> int:
    """The 64-bit key of an item id."""
    return _key_of(item_id)


def _key_of(id_: int | str) -> int:
    name = f"s:{id_}" if isinstance(id_, str) else f"i:{int(id_)}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
