"""``fedforget bench unlearn`` prints the promised JSON, and a table for people."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedforget as ff
from fedforget.experiments.recovery import RecoverySettings, bench_unlearn
from fedforget.experiments.variants import VARIANTS
from tests.cli.conftest import Shell

KEYS = {"seconds", "speedup", "communication_rounds", "sampled", "full", "log"}


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    small = ff.synthetic(users=40, items=60, mean_items=10)
    monkeypatch.setattr("fedforget.cli.bench.load", lambda *_, **__: small)
    return Shell(monkeypatch, capsys)


def test_the_promised_shape(shell: Shell) -> None:
    result = shell.json("bench", "unlearn", "--quick", "--rounds", 3)
    assert set(result["models"]) == {"lightgcn"}
    methods = result["models"]["lightgcn"]["methods"]
    fru = {"fru-all", "fru-server", "fru-device", "fru-logged"}
    assert set(methods) == fru | {"retrain", "retrain-condensed", "fedremove", "continue", "attacked"}
    for row in methods.values():
        assert set(row) == KEYS
        assert set(row["sampled"]) == {"hr", "ndcg"}
        assert set(row["full"]) == {"hr", "ndcg", "recall"}
    assert methods["attacked"]["speedup"] is None
    assert methods["retrain"]["speedup"] == 1
    rounds = {name: row["communication_rounds"] for name, row in methods.items()}
    assert rounds["attacked"] == 0
    assert rounds["retrain"] == rounds["fru-server"] == 3
    assert rounds["retrain-condensed"] == 1
    assert rounds["fru-device"] == rounds["fru-logged"] == 2
    assert result["settings"]["rounds"] == 3
    assert result["machine"]["cores"] >= 1
    assert "lightgcn: Retrain" in shell.errors


def test_people_get_a_table_of_what_they_chose(shell: Shell) -> None:
    shown = shell("bench", "unlearn", "--models", "mf", "--rounds", 2, "--methods", "fru-device,retrain")
    assert "mf on ml-100k, 2 rounds" in shown
    assert "FRU, device" in shown
    assert "FedRemove" not in shown


def test_several_models_and_whole_updates(tmp_path: Path) -> None:
    data = ff.synthetic(users=30, items=40, mean_items=8)
    result = bench_unlearn(
        data,
        ["mf", "ncf"],
        RecoverySettings(2, training=ff.LocalTraining(epochs=1)),
        variants=["fedremove", "attacked"],
        work=tmp_path,
    )
    assert list(result["models"]) == ["mf", "ncf"]
    assert all(set(row["methods"]) == {"fedremove", "attacked"} for row in result["models"].values())
    assert all(row["methods"]["fedremove"]["speedup"] is None for row in result["models"].values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--models", "lightgnc"], "Did you mean 'lightgcn'?"),
        (["--methods", "fru"], "Unknown method 'fru'"),
        (["--methods", ","], f"Choose from {', '.join(VARIANTS)[:20]}"),
        (["--malicious", "1.5"], "share of malicious users is 1.5"),
        (["--gamma", "0"], "gamma is 0"),
        (["--rounds", "0"], "rounds is 0"),
        (["--repeats", "0"], "repeats is 0"),
        (["--work", "nowhere"], "work folder nowhere does not exist"),
    ],
)
def test_errors_are_named(shell: Shell, arguments: list[str], said: str) -> None:
    assert shell("bench", "unlearn", "--quick", "--methods", "continue", *arguments, fails=1) == ""
    assert said in shell.errors
