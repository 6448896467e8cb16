"""``fedforget quickstart`` without a network: a table, a report, and a federation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedforget as ff
from fedforget.experiments.variants import VARIANTS
from tests.cli.conftest import Shell

SMALL = {"users": 50, "items": 70, "mean_items": 14.0}


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A command line that cannot reach MovieLens, with little synthetic data."""

    def load(name: str, **options: object) -> ff.Interactions:
        if name == "ml-100k":
            raise ff.DataError("ml-100k is out of reach.", "")
        return ff.load(name, **options)

    monkeypatch.setattr("fedforget.cli.quickstart.load", load)
    monkeypatch.setattr("fedforget.cli.quickstart.SYNTHETIC", SMALL)
    monkeypatch.setattr("fedforget.experiments.forgetting.demonstration.DATA", {**SMALL, "seed": 0})
    few = {"worlds": 8, "rounds": 3, "leavers": 0.1, "seed": 0}
    monkeypatch.setattr("fedforget.experiments.forgetting.demonstration.SETTINGS", few)
    return Shell(monkeypatch, capsys)


def test_it_runs_from_training_to_the_report(offline: Shell, tmp_path: Path) -> None:
    out = tmp_path / "quick"
    result = offline.json("quickstart", "--out", out, "--rounds", 6)
    assert "using synthetic data" in offline.errors
    assert result["setting"]["data"] == "synthetic"
    assert result["setting"]["malicious_users"] == 10
    assert list(result["methods"]) == list(VARIANTS)
    assert list(result["ials"]) == ["attacked", "retrain", "retrain-condensed"]
    assert set(result["curves"]) == {"attacked", "retrain", "fru-device", "fru-logged"}
    assert {path.name for path in out.iterdir()} == {"report.html", "result.json", "run"}
    report = (out / "report.html").read_text()
    assert report.count("<svg") == 5
    memory = result["audit"]["methods"]
    assert list(memory) == ["none", "continue", "fru", "retrain"]
    assert all(len(one["took_part"]) == len(one["absent"]) == 8 * 5 for one in memory.values())
    assert len({tuple(one["took_part"]) for one in memory.values()}) == 4
    assert not re.search(r"https?://", report)
    assert all(f"{variant.label}</td>" in report for variant in VARIANTS.values())
    assert "Fed-iALS, Retrain</td>" in report

    run = result["run"]
    evaluated = offline.json("evaluate", run)
    assert evaluated["full"] == result["methods"]["fru-device"]["full"]
    assert evaluated["users"] == 40
    remaining = ff.Federation.open(run).train.user_ids.tolist()[0]
    assert len(offline.json("recommend", run, "--user", remaining, "-k", 3)["items"]) == 3

    asked = offline.json("forget", run, "--users", remaining, "--dry-run")
    assert asked["estimate"]["rounds"] <= 6

    shown = offline("quickstart", "--out", out, "--rounds", 6)
    assert "earlier run" in offline.errors
    assert all(variant.label in shown for variant in VARIANTS.values())
    assert "Most popular" in shown
    assert f"fedforget recommend {run} --user {remaining}" in shown.replace("\n", "")
    assert offline.json("quickstart", "--out", out, "--rounds", 6) == result

    offline("quickstart", "--out", out, "--rounds", 7, fails=1)
    assert "a quickstart of 6 rounds on synthetic, not 7" in offline.errors


def test_an_interrupted_run_resumes(offline: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fedforget.cli.quickstart.Recovery.compare", stop)
        offline("quickstart", "--out", tmp_path / "quick", "--rounds", 3, fails=130)
    assert (tmp_path / "quick" / "work" / "lightgcn" / "before").is_dir()
    assert offline.json("quickstart", "--out", tmp_path / "quick", "--rounds", 3)["setting"]["rounds"] == 3
    assert not (tmp_path / "quick" / "work").exists()


def test_a_folder_with_something_else_is_left_alone(offline: Shell, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    offline("quickstart", "--out", tmp_path, fails=1)
    assert "has other files in it" in offline.errors
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
