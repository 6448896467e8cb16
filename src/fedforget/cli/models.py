"""How models are named on the command line."""

from __future__ import annotations

from fedforget.errors import one_of
from fedforget.models import MODELS


def named_models(names: str) -> list[str]:
    """The models of a list separated by commas; an unknown one is refused."""
    for name in names.split(","):
        if name not in MODELS:
            raise one_of("model", name, sorted(MODELS))
    return names.split(",")
