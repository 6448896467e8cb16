"""Waiting: what is known of the requests that wait for the next batch, without loading them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """The number of the requests, when the first of them came, and the nearest of their deadlines."""

    count: int
    received: float
    deadline: float
