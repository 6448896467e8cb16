"""An audit of a small federation finds a planted user before Retrain and not after, continues, and shows the result."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedforget as ff
from fedforget.errors import ConfigError, RunError
from fedforget.experiments.forgetting.audit import Audit
from fedforget.experiments.forgetting.worlds import Worlds

DEFAULT = ff.configure(ff.LightGCN(dim=8), training=ff.LocalTraining(epochs=5, refit=True))
CONFIG = replace(DEFAULT, server=replace(DEFAULT.server, fraction=0.7))


def planted() -> ff.Interactions:
    """Users with common tastes, and two with twelve items each that hardly anyone else has."""
    users, items = ff.synthetic(users=60, items=60, mean_items=10, seed=2).pairs()
    rng = np.random.default_rng(0)
    others = rng.choice(60, 24, replace=False)
    own = np.repeat([1000, 1001], 12)
    rare = np.arange(100, 124)
    return ff.Interactions.from_pairs(np.concatenate([users, own, others]), np.concatenate([items, rare, rare]))


DATA = planted()


def small(out: Path | None = None, **changes: Any) -> Audit:
    settings: dict[str, Any] = {
        "methods": ["none", "fru", "retrain"],
        "worlds": 4,
        "cases": ["single", "malicious"],
        "rounds": 8,
        "workers": 1,
    }
    return ff.audit(DATA, CONFIG, out=out, **{**settings, **changes})


def test_a_planted_user_is_found_before_and_not_after() -> None:
    result = small(worlds=32, cases=["single"], rounds=12, methods=["none", "retrain"])
    ids = result.settings.ids(result.settings.suspects("single").users)
    assert ids == [1000, 1001]
    found = result.to_dict()["methods"]
    assert found["none"]["membership"]["auc"] > 0.95
    assert found["none"]["membership"]["low"] > 0.8
    assert found["none"]["snapshots"]["auc"] > 0.95
    for attack in ("membership", "snapshots"):
        retrain = found["retrain"][attack]
        assert retrain["low"] <= 0.5 <= retrain["high"]
    assert "still visible" in found["none"]["verdict"]
    assert "not distinguishable" in found["retrain"]["verdict"]


def test_an_audit_continues_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[str] = []
    train_one = Worlds.train_one
    progress: list[tuple[int, int]] = []

    def stop_after_three(self: Worlds, world: Any) -> None:
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append(world.name)
        train_one(self, world)

    monkeypatch.setattr(Worlds, "train_one", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        small(tmp_path / "a")
    assert not (tmp_path / "a" / "audit.json").exists()
    trained.append("")  # no longer stopped
    monkeypatch.setattr(
        Worlds, "train_one", lambda self, world: (trained.append(world.name), train_one(self, world))[1]
    )
    small(tmp_path / "a", on_world=lambda done, total: progress.append((done, total)))
    assert progress == [(done, 8) for done in range(3, 9)]
    assert len(set(trained)) == len(trained)
    small(tmp_path / "b", workers=2)
    for name in ("audit.json", "settings.json", *(f"worlds/{path.name}" for path in (tmp_path / "b/worlds").iterdir())):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    with pytest.raises(RunError, match="other settings"):
        small(tmp_path / "a", rounds=9)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    small(folder, methods=["continue", "fedremove"], cases=["random", "malicious"], leavers=0.1)
    return folder


def test_the_result_has_the_shape_that_programs_expect(finished: Path) -> None:
    result = json.loads((finished / "audit.json").read_text())
    assert list(result) == ["methods", "worlds", "leavers"]
    assert list(result["methods"]) == ["none", "continue", "fedremove", "retrain"]
    for name, method in result["methods"].items():
        assert set(method) == {"membership", "snapshots", "before_after", "distance", "verdict"}
        for attack in ("membership", "snapshots", "before_after"):
            if (name, attack) != ("none", "before_after"):
                assert set(method[attack]) == {"auc", "low", "high", "tpr_at_1_percent"}
                assert 0 <= method[attack]["low"] <= method[attack]["auc"] <= method[attack]["high"] <= 1
    assert result["methods"]["none"]["before_after"] is None
    distance = {name: method["distance"] for name, method in result["methods"].items()}
    assert distance["retrain"]["items"] < 1e-6
    assert distance["retrain"]["top_10_overlap"] == 1
    assert distance["none"]["poison"]["projection"] == pytest.approx(1)
    assert distance["none"]["items"] > 0
    assert set(distance["none"]["accuracy"]) == {"all", "few items", "many items", "like the leavers"}
    details = json.loads((finished / "details.json").read_text())
    rates = details["cases"]["random"]["methods"]["none"]["membership"]
    assert rates["smallest_rate"] == pytest.approx(1 / 12)
    assert details["settings"]["config"]["model"]["name"] == "lightgcn"


def test_the_page_is_one_file_with_every_plot(finished: Path) -> None:
    page = (finished / "audit.html").read_text()
    assert page.count("<svg") == page.count("</svg>") == 4
    assert not re.search(r'(src|href)="(?!#)', page)
    for text in ("random users", "fedremove", "before and after", "Retrain, other seed"):
        assert text in page


def test_settings_that_cannot_be_audited_are_refused() -> None:
    for changes in ({"worlds": 5}, {"worlds": 2}, {"cases": ["malicious"]}, {"cases": ["everybody"]}, {"rounds": 0}):
        with pytest.raises(ConfigError):
            small(**changes)
