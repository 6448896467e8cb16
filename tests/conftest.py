"""What tests share: small data whose right answer shows by eye, and the real data where it is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

import fedforget as ff
from fedforget.data import checkerboard

ROOT = Path(__file__).parents[1]

# No deadline, since the first call of a property may compile; the same examples on every run.
settings.register_profile("fedforget", deadline=None, derandomize=True)
settings.load_profile("fedforget")


@pytest.fixture
def board() -> ff.Interactions:
    return checkerboard(users=60, items=40, tastes=2, share=0.7)


@pytest.fixture(scope="session")
def ml_100k() -> ff.Interactions:
    """MovieLens-100k from a folder at hand, else fetched; skips where neither is possible."""
    folder = Path(os.environ.get("FEDFORGET_DATA") or ROOT.parent / "shared" / "data")
    try:
        return ff.load("ml-100k", folder=folder if (folder / "ml-100k").is_dir() else None)
    except ff.DataError as error:
        pytest.skip(f"MovieLens-100k is neither at hand nor within reach: {error.problem}")
