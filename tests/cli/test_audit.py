"""``fedforget audit forgetting``: the command, its result for programs, and its mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedforget as ff
from fedforget.cli.main import app

SMALL = ["--worlds", "4", "--rounds", "4", "--leavers", "0.1", "--workers", "1", "--cases", "random", "--set", "dim=8"]


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    users, items = ff.synthetic(users=40, items=50, mean_items=10, seed=5).pairs()
    path = tmp_path_factory.mktemp("data") / "plays.csv"
    path.write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in zip(users, items, strict=True)))
    return path


def test_an_audit_from_the_shell(plays: Path, tmp_path: Path) -> None:
    command = ["audit", "forgetting", str(plays), "--methods", "continue", "--out", str(tmp_path / "a"), *SMALL]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result == json.loads((tmp_path / "a" / "audit.json").read_text())
    assert list(result["methods"]) == ["none", "continue", "retrain"]
    assert (result["worlds"], result["leavers"]) == (4, 0.1)
    again = CliRunner().invoke(app, command)  # nothing is trained again
    assert again.exit_code == 0, again.output
    assert "random users" in again.output
    assert "audit.html" in again.output


@pytest.mark.parametrize(
    ("options", "problem"),
    [(["--worlds", "7"], "worlds is 7"), (["--methods", "erase"], "erase"), (["--cases", "nobody"], "nobody")],
)
def test_mistakes_are_explained(plays: Path, tmp_path: Path, options: list[str], problem: str) -> None:
    command = ["audit", "forgetting", str(plays), "--out", str(tmp_path / "a"), *SMALL, *options]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, ff.FedForgetError)
    assert problem in done.exception.problem
    assert not (tmp_path / "a").exists()
