"""What tests share: small data whose right answer shows by eye, and the real data where it is at hand."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

import fedforget as ff
from fedforget.data import checkerboard
from fedforget.runtime.workers import available_cores

ROOT = Path(__file__).parents[1]

# No deadline, since the first call of a property may compile; the same examples on every run.
settings.register_profile("fedforget", deadline=None, derandomize=True)
# `make test-all` loads this one instead, which counts where a property does not say itself how many examples it needs.
settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=1000)
settings.load_profile("fedforget")


def pytest_configure() -> None:
    """Temporary folders are kept in memory where there is room: small databases on a busy disk take most of the time.

    Set ``TMPDIR`` to have them elsewhere. What a killed process has written stays in either.
    """
    memory = Path("/dev/shm")
    chosen = not os.environ.keys().isdisjoint({"TMPDIR", "PYTEST_DEBUG_TEMPROOT"})
    if not chosen and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**30:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(memory)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: the test on a real network mostly waits."""
    return available_cores() + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several processes, each takes the next file: those with slow tests come first, lest one be left at the end."""
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)


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
