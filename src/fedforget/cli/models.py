"""Comma-separated lists on the command line."""

from __future__ import annotations

from fedforget.errors import unknown_choice
from fedforget.models import MODELS


def named_models(names: str) -> list[str]:
    """The models of a comma-separated list."""
    for name in names.split(","):
        if name not in MODELS:
            raise unknown_choice("model", name, sorted(MODELS))
    return names.split(",")
