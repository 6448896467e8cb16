"""Few open files and no room: every command ends with the file, the reason and the next step, and goes on later."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

QUICK = ("--workers", "1")
SMALL = ("--set", "epochs=1", "--set", "dim=8", "--set", "fraction=0.05")
COMMANDS = {
    "train": ("train", "--out", "{run}", "--rounds", "3"),
    "forget": ("forget", "{run}", "--users", "0", "--yes", "--method", "retrain"),
    "evaluate": ("evaluate", "{run}"),
}
NAMED = re.compile(r"^Error: .*(/\S+): .+\.\n\S.*\.$", re.MULTILINE)


def fedforget(*arguments: object, limit: tuple[int, int] | None = None) -> subprocess.CompletedProcess[str]:
    def restrict() -> None:
        if limit is not None:
            resource.setrlimit(limit[0], (limit[1], limit[1]))

    command = [sys.executable, "-m", "fedforget", *map(str, arguments), *QUICK]
    settings = {**os.environ, "COLUMNS": "500"}
    return subprocess.run(command, env=settings, preexec_fn=restrict, capture_output=True, text=True, timeout=100)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of two rounds with each kind of log."""
    folder = tmp_path_factory.mktemp("limits")
    for store in ("packed", "sqlite"):
        done = fedforget(
            "train", "synthetic", "--out", folder / store, "--rounds", 2, *SMALL, "--set", f"log.store={store}"
        )
        assert done.returncode == 0, done.stderr
    return {store: folder / store for store in ("packed", "sqlite")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "limit", "fails"),
    [
        ("packed", (resource.RLIMIT_NOFILE, 9), {"train", "forget"}),
        ("packed", (resource.RLIMIT_NOFILE, 11), {"forget"}),
        ("sqlite", (resource.RLIMIT_NOFILE, 9), {"train", "forget", "evaluate"}),
        ("sqlite", (resource.RLIMIT_NOFILE, 40), set()),  # fewer files of users are kept open
        ("packed", (resource.RLIMIT_FSIZE, 40_000), {"train", "forget"}),
        ("sqlite", (resource.RLIMIT_FSIZE, 33_000), {"train", "forget"}),
    ],
    ids=lambda value: str(value) if isinstance(value, str | tuple) else "",
)
def test_a_command_that_reaches_a_limit_says_so_and_goes_on_without_it(base, store, limit, fails, tmp_path):
    for name, command in COMMANDS.items():
        run = tmp_path / name
        shutil.copytree(base[store], run)
        arguments = [part.format(run=run) for part in command]
        done = fedforget(*arguments, limit=limit)
        assert (done.returncode != 0) == (name in fails), (name, done.stderr)
        assert "Traceback" not in done.stderr, done.stderr
        if done.returncode:
            assert done.returncode == 1, done.stderr
            assert NAMED.search(done.stderr), done.stderr
            assert not re.search("damaged|delete it|Remove that", done.stderr), done.stderr
            assert fedforget(*arguments).returncode == 0


@pytest.mark.skipif(shutil.which("mount") is None or os.geteuid() != 0, reason="needs to mount a small disk")
@pytest.mark.slow
def test_a_full_disk_is_named_and_what_was_there_before_is_intact(base, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("cannot mount")
    try:
        run = disk / "run"
        shutil.copytree(base["packed"], run)
        before = fedforget("evaluate", run, "--json").stdout
        (disk / "filler").write_bytes(b"x" * os.statvfs(disk).f_bfree * os.statvfs(disk).f_frsize)
        for name in ("train", "forget"):
            done = fedforget(*[part.format(run=run) for part in COMMANDS[name]])
            assert done.returncode == 1, done.stderr
            assert NAMED.search(done.stderr), done.stderr
        (disk / "filler").unlink()
        fedforget("forget", run, "--abandon")
        assert fedforget("evaluate", run, "--json").stdout == before
    finally:
        subprocess.run(["umount", disk], check=True)
