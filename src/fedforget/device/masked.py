"""What one device contributes to a secure sum: its masked vector, then what removes the masks of others."""

from __future__ import annotations

from fedforget.protocol import masking
from fedforget.protocol.fixed_point import Words
from fedforget.protocol.masking import Contribution, KeyPair, RevealOrder, Ring


def contribute(pair: KeyPair, context: bytes, ring: Ring, words: Words) -> Contribution:
    """Mask a vector, in place. The same context gives the same masks; shares are drawn anew."""
    neighbours = ring.neighbours(pair.public)
    seeds, keys = [pair.self_seed(context)], []
    masking.add_mask(words, seeds[0], 1)
    for other in neighbours:
        seed, key = pair.pair_secrets(other, context)
        masking.add_mask(words, seed, masking.sign_of(pair.public, other))
        seeds.append(seed)
        keys.append(key)
    shares = [masking.split(seed, len(neighbours)) for seed in seeds]
    for_each = [b"".join(of_neighbour) for of_neighbour in zip(*shares, strict=True)]
    checks = [masking.check_of(secret, context) for secret in (*seeds, *(share for each in shares for share in each))]
    encrypted = [masking.encrypt(part, key, context) for part, key in zip(for_each, keys, strict=True)]
    return Contribution(words, encrypted, checks)


def reveal(pair: KeyPair, ring: Ring, order: RevealOrder) -> list[bytes]:
    """For each neighbour that has answered, shares of its seeds; for another, the seed of the mask with it.

    The shares are those of the neighbour's self seed, and of its masks with devices that have not answered. Zeros stand
    for shares that cannot be decrypted: one wrong device must not stop the others.
    """
    revealed = []
    for other, sealed in zip(ring.neighbours(pair.public), order.shares, strict=True):
        mask, key = pair.pair_secrets(other, order.context)
        if not sealed:
            revealed.append(mask)
            continue
        theirs = ring.neighbours(other)
        shares = masking.decrypt(sealed, key, order.context) or bytes((1 + len(theirs)) * masking.SHARE)
        wanted = [0, *(1 + place for place, each in enumerate(theirs) if each in order.absent)]
        revealed.append(b"".join(shares[seed * masking.SHARE : (seed + 1) * masking.SHARE] for seed in wanted))
    return revealed
