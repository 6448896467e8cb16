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
    folder = os.environ.get("FEDFORGET_DATA") or ROOT.parent / "shared" / "data"
    if not (Path(folder) / "ml-100k").is_dir():
        pytest.skip("no MovieLens-100k at hand: name its folder in FEDFORGET_DATA")
    return ff.load("ml-100k", folder=folder)
