"""What the tests of commands share: a shell in this process, and a person's own small data."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import fedforget as ff
from fedforget.cli.main import run

QUICK = ["--set", "epochs=2", "--set", "dim=8", "--workers", "1"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A small CSV of a person's own data, with strings as ids."""
    return write_table(tmp_path / "plays.csv")


def write_table(path: Path, name: Callable[[int], object] = "u{}".format) -> Path:
    """Write such data; each user is called what ``name`` says."""
    users, items = ff.synthetic(users=40, items=60, mean_items=12).pairs()
    pl.DataFrame({"who": [name(u) for u in users], "what": [f"song {i}" for i in items]}).write_csv(path)
    return path


class Shell:
    """Runs the command line in this process and keeps what it printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: object, fails: int = 0) -> str:
        self._monkeypatch.setattr(sys, "argv", ["fedforget", *map(str, arguments)])
        code = 0
        try:
            run()
        except SystemExit as stop:
            code = int(stop.code or 0)
        printed = self._capsys.readouterr()
        self.errors = printed.err
        assert code == fails, printed.err
        return printed.out

    def json(self, *arguments: object) -> dict:  # type: ignore[type-arg]
        return json.loads(self(*arguments, "--json"))  # type: ignore[no-any-return]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


def train_arguments(table: Path, out: Path) -> list[object]:
    return ["train", table, "--out", out, "--user-column", "who", "--item-column", "what", *QUICK]
