"""``fedforget bench service`` with few users, reads and requests: nothing is lost or done twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")


@pytest.mark.slow
def test_requests_survive_the_kills_and_reads_are_answered() -> None:
    options = ["--rate", "50", "--seconds", "3", "--queued", "40", "--num-users", "2000", "--json"]
    command = [sys.executable, "-m", "fedforget", "bench", "service", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env={**os.environ})
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    reads, queue = result["reads"], result["queue"]
    assert reads["errors"] == {}
    assert reads["latency"]["p50"] <= reads["latency"]["p99"] <= reads["latency"]["max"]
    assert 0 < reads["replayed_share"] <= 1
    assert queue["answered_before_kill"] == pytest.approx(16, abs=8)
    assert queue["repeated"] == queue["completed"] == queue["members_forgotten"] == queue["requests"] == 40
    for problem in ("refused", "lost", "stored_twice", "never_carried_out", "carried_out_twice"):
        assert queue[problem] == 0, problem
    assert queue["verified"]
