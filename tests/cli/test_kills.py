"""Kills of the command line at random times: the same command goes on, and nobody is half forgotten."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedforget as ff
from tests.cli.conftest import Shell, train_arguments

KILLS = 8


def fedforget(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from fedforget.cli.main import run; run()", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_killed_at_random_times_the_command_line_goes_on(shell: Shell, table: Path, tmp_path: Path):
    base = tmp_path / "base"
    shell(*train_arguments(table, base), "--rounds", 40)
    asked = ["--yes", "--users", "u1,u2", "--method", "retrain", "--json"]
    shutil.copytree(base, tmp_path / "whole")
    started = time.perf_counter()
    whole = fedforget("forget", tmp_path / "whole", *asked)
    out, errors = whole.communicate(timeout=120)
    assert whole.returncode == 0, errors
    usual, digest = time.perf_counter() - started, json.loads(out)["receipt"]["digest_after"]
    dice, kills = random.Random(0), 0
    for attempt in range(4 * KILLS):
        if kills >= KILLS:
            break
        run = tmp_path / f"run-{attempt}"
        shutil.copytree(base, run)
        process = fedforget("forget", run, *asked)
        time.sleep(dice.uniform(0.4, 1.0) * usual)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        fed = ff.Federation.open(run)
        forgotten = {"u1", "u2"}.isdisjoint(fed.members)
        assert forgotten or {"u1", "u2"} <= set(fed.members)
        fed.close()
        if not forgotten:
            again = fedforget("forget", run, *asked)
            out, errors = again.communicate(timeout=120)
            assert again.returncode == 0, errors
        fed = ff.Federation.open(run)
        assert fed.public.digest == digest
        assert fed.waiting is None
        assert len(list(run.glob("trajectory-*"))) == len(list(run.glob("receipts/*.json"))) == 1
        fed.close()
        shutil.rmtree(run)
    assert kills >= KILLS
