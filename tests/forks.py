"""Processes for tests that kill them: forks of one that has imported everything and loaded the compiled code.

A process has one server of forks, whichever test asks first, so all tests share this one and what it prepares. It runs
no thread: a fork would inherit the locks that one holds.
"""

from __future__ import annotations

import importlib
import multiprocessing
import tempfile
import threading
from pathlib import Path
from unittest.mock import patch

import pytest

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.forks_prepared"])


def prepare() -> None:
    """Import what the forks need, and do once what they do, so that its compiled code is loaded."""
    from fedforget.runtime import workers

    with (
        patch.object(workers, "available_cores", lambda: 1),  # a single worker starts no thread
        tempfile.TemporaryDirectory() as folder,
    ):
        for module in ("tests.test_crash", "tests.test_forgetting_crash", "tests.flower.test_faults"):
            try:
                rehearse = importlib.import_module(module).rehearse
            except pytest.skip.Exception:  # the Flower engine is an extra
                continue
            rehearse(Path(folder) / module)
    for thread in set(threading.enumerate()) - {threading.main_thread()}:  # those that fetched replies are at their end
        thread.join(10)
    assert threading.active_count() == 1
