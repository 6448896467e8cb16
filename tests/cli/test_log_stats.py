"""``fedforget log stats``: the figures are those of the store, and each stands beside the paper's."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedforget as ff
from fedforget.cli.main import app
from fedforget.device.log.stats import PLACES
from fedforget.experiments.measures import item_table_bytes, log_size
from tests.cli.conftest import Shell, train_arguments, write_table


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run with the default log, and one with the paper's in a database a device."""
    folder = tmp_path_factory.mktemp("runs")
    table = write_table(folder / "plays.csv")
    options: dict[str, list[object]] = {
        "lengths": [],
        "paper": ["--set", "encoding=float32", "--set", "selection=importance", "--set", "store=sqlite"],
    }
    for name, chosen in options.items():
        arguments = [
            *train_arguments(table, folder / name),
            "--rounds",
            3,
            "--set",
            "fraction=0.3",
            "--model",
            "ncf",
            "--json",
        ]
        app([str(part) for part in (*arguments, *chosen)], standalone_mode=False)
    return {name: folder / name for name in options}


@pytest.mark.parametrize("name", ["lengths", "paper"])
def test_the_figures_are_those_of_the_store(shell: Shell, runs: dict[str, Path], name: str) -> None:
    found = shell.json("log", "stats", runs[name], "--top", 40)
    fed = ff.Federation.open(runs[name])
    heads = list(fed.devices.log.store.heads())
    copies = found["devices"] * found["parts"]["copy"]
    assert found["bytes_per_device"]["total"] == sum(int(sizes.sum()) for _, _, sizes in heads) + copies
    assert found["entries_per_device"]["total"] == sum(keys.size for _, keys, _ in heads)
    assert found["bytes_per_device"]["mean"] == pytest.approx(log_size(fed).total)
    assert sum(found["parts"].values()) == pytest.approx(found["bytes_per_device"]["mean"])
    assert list(found["parts"]) == PLACES
    assert found["item_table_bytes"] == item_table_bytes(fed)
    assert found["share_of_item_table"] == pytest.approx(log_size(fed).total / item_table_bytes(fed))
    assert sum(row["bytes"] for row in found["top"]) == found["bytes_per_device"]["total"]
    assert sum(row["entries"] for row in found["top"]) == found["entries_per_device"]["total"]
    assert found["top"][0]["bytes"] == found["bytes_per_device"]["max"]
    assert found["disk_bytes"] >= found["bytes_per_device"]["total"] - copies


def test_beside_it_stands_the_paper(shell: Shell, runs: dict[str, Path]) -> None:
    small, whole = (shell.json("log", "stats", runs[name]) for name in ("lengths", "paper"))
    assert small["paper"] == whole["paper"]
    assert small["bytes_per_device"]["mean"] < small["paper"]["rows"]["bytes"]
    fed = ff.Federation.open(runs["paper"])
    own = dict(zip(fed.train.user_ids.tolist(), fed.train.counts.tolist(), strict=True))
    asked = [user for round_ in (1, 2, 3) for user in fed.cohort(round_)]
    rows = 0.5 * (1 + 0.5 * fed.model.negatives) * sum(own[user] for user in asked) * fed.model.dim * 4
    dense = len(asked) * fed.model.dense_layout.size * 4
    assert whole["paper"]["rows"]["bytes"] == pytest.approx(rows / fed.train.n_users)
    assert whole["paper"]["with_dense"]["bytes"] == pytest.approx((rows + dense) / fed.train.n_users)
    assert whole["parts"]["dense"] == pytest.approx(dense / fed.train.n_users)


def test_people_get_tables(shell: Shell, runs: dict[str, Path]) -> None:
    shown = shell("log", "stats", runs["paper"], "--top", 3)
    assert "50% of the rows by importance" in shown
    assert "other tensors (MLP)" in shown
    assert "of the item table" in shown
    assert "The largest logs" in shown
    assert "every row" in shell("log", "stats", runs["lengths"])


def test_the_log_is_as_train_was_told(shell: Shell, tmp_path: Path) -> None:
    arguments = train_arguments(write_table(tmp_path / "plays.csv"), tmp_path / "run")
    options = [
        "--set",
        "encoding=int8",
        "--set",
        "selection=random",
        "--set",
        "log.alpha=0.25",
        "--set",
        "store=sqlite",
    ]
    full = ["--set", "quota=2000", "--set", "when_full=stop"]
    shell.json(*arguments, "--rounds", 2, "--set", "fraction=0.5", "--model", "mf", *options, *full)
    assert ff.Federation.open(tmp_path / "run").config.log == ff.Log("int8", "random", 0.25, 2000, "stop", "sqlite")
    found = shell.json("log", "stats", tmp_path / "run")
    assert found["log"] == {"encoding": "int8", "selection": "random", "alpha": 0.25, "quota": 2000}


def test_a_full_log_is_told(shell: Shell, tmp_path: Path) -> None:
    arguments = train_arguments(write_table(tmp_path / "plays.csv"), tmp_path / "run")
    shell.json(*arguments, "--rounds", 1, "--model", "mf", "--set", "quota=1", "--set", "when_full=stop")
    assert shell.json("log", "stats", tmp_path / "run")["times_full"] == 4
    assert "4 times a device's log was full" in shell("log", "stats", tmp_path / "run") + shell.errors


def test_before_the_first_round_there_is_no_entry(shell: Shell, tmp_path: Path) -> None:
    shell.json(*train_arguments(write_table(tmp_path / "plays.csv"), tmp_path / "run"), "--rounds", 0)
    assert shell.json("log", "stats", tmp_path / "run")["entries_per_device"]["total"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["log", "stats", "nowhere"], "no config.toml"),
        (["log", "stats", "nowhere", "--top", "-1"], "top is -1"),
        (["train", "synthetic", "--out", "x", "--set", "encoding=int9"], "Did you mean 'int8'?"),
        (["train", "synthetic", "--out", "x", "--set", "selection=al"], "Did you mean 'all'?"),
        (["train", "synthetic", "--out", "x", "--set", "when_full=newest"], "Unknown when_full 'newest'"),
        (["train", "synthetic", "--out", "x", "--set", "store=packd"], "Did you mean 'packed'?"),
        (["train", "synthetic", "--out", "x", "--set", "log.alpha=0"], "alpha is 0"),
        (["train", "synthetic", "--out", "x", "--set", "quota=-1"], "quota is -1"),
        (["train", "synthetic", "--out", "x", "--malicious", "1"], "share of malicious users is 1"),
        (["train", "synthetic", "--out", "x", "--malicious", "0.1", "--gamma", "0"], "gamma is 0"),
    ],
)
def test_errors(shell: Shell, arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shell(*arguments, fails=1) == ""
    assert said in shell.errors
    assert not (tmp_path / "x").exists()
