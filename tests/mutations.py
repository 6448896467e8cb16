"""Seeded damage to files."""

from __future__ import annotations

import random
from pathlib import Path


def mutate(path: Path, dice: random.Random, *, filled: bool = False) -> str:
    """Damage a file, or remove it; returns what was done. ``filled``: only where it is not zero, if it is anywhere."""
    content = bytearray(path.read_bytes())
    kind = dice.choice(["flip", "flip", "flip", "byte", "zeros", "cut", "empty", "gone"])
    if kind == "gone":
        path.unlink()
        return kind
    if content:
        at = dice.randrange(len(content))
        if filled and any(content):
            at = dice.choice([place for place, byte in enumerate(content) if byte])
        if kind == "flip":
            content[at] ^= 1 << dice.randrange(8)
        elif kind == "byte":
            content[at] = dice.randrange(256)
        elif kind == "zeros":
            content[at : at + 64] = bytes(len(content[at : at + 64]))
        else:
            del content[at if kind == "cut" else 0 :]
    path.write_bytes(content)
    return kind
