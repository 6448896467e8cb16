"""What one device contributes to a secure sum: its masked vector, then what removes the masks of others."""

from __future__ import annotations

from collections.abc import Sequence

from fedforget.protocol import masking
from fedforget.protocol.fixed_point import Words
from fedforget.protocol.masking import Contribution, Graph, KeyPair


def contribute(pair: KeyPair, graph: Graph, words: Words) -> Contribution:
    """Mask a vector, in place. The same context gives the same masks; shares are drawn anew."""
    context, neighbours = graph.context, graph.neighbours(pair.public)
    seed = pair.self_seed(context)
    masking.add_mask(words, seed, 1)
    parts, shares, masks = masking.split(seed, len(neighbours)), [], []
    for other, part in zip(neighbours, parts, strict=True):
        mask, key = pair.pair_secrets(other, context)
        masking.add_mask(words, mask, masking.sign_of(pair.public, other))
        shares.append(masking.encrypt(part, key, context))
        masks.append(mask)
    return Contribution(words, shares, [masking.check_of(each, context) for each in (seed, *masks, *parts)])


def reveal(pair: KeyPair, context: bytes, neighbours: Sequence[bytes], shares: Sequence[bytes]) -> list[bytes]:
    """For each neighbour, its share of the neighbour's self seed, or the pair seed if it has not answered.

    ``shares`` are the encrypted shares that the neighbours made for this device, empty for those without an answer.
    Zeros stand for a share that cannot be decrypted: one wrong device must not stop the others.
    """
    revealed = []
    for other, share in zip(neighbours, shares, strict=True):
        mask, key = pair.pair_secrets(other, context)
        revealed.append((masking.decrypt(share, key, context) or bytes(masking.SHARE)) if share else mask)
    return revealed
