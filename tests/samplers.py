"""Samplers by their name, with positional settings."""

from __future__ import annotations

from fedforget.protocol.sampler import SAMPLERS, Sampler


def make_sampler(name: str = "mixed", R: float = 75.0, beta: float = 0.5) -> Sampler:
    return SAMPLERS.build(name, R=R, beta=beta)
