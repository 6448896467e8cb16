"""An audit of a small federation finds a planted user before Retrain and not after, continues, and shows the result."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

import fedforget as ff
from fedforget.errors import ConfigError, RunError
from fedforget.experiments.forgetting.analysis import CaseResult
from fedforget.experiments.forgetting.audit import Audit
from fedforget.experiments.forgetting.comparison import poison_left
from fedforget.experiments.forgetting.worlds import Outcome, Worlds

DEFAULT = ff.configure(ff.LightGCN(dim=8), training=ff.LocalTraining(epochs=5, refit=True))
CONFIG = replace(DEFAULT, server=replace(DEFAULT.server, fraction=0.7))


def planted() -> ff.Interactions:
    """Users with common tastes, and two with sixteen items each that hardly anyone else has."""
    users, items = ff.synthetic(users=60, items=60, mean_items=10, seed=2).pairs()
    rng = np.random.default_rng(0)
    others = rng.choice(60, 32, replace=False)
    own = np.repeat([1000, 1001], 16)
    rare = np.arange(100, 132)
    return ff.Interactions.from_pairs(np.concatenate([users, own, others]), np.concatenate([items, rare, rare]))


DATA = planted()


def small(out: Path | None = None, **changes: Any) -> Audit:
    settings: dict[str, Any] = {
        "methods": ["none", "fru", "retrain"],
        "worlds": 8,
        "cases": ["single", "malicious"],
        "rounds": 6,
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
    assert found["retrain"]["kind"] == "like retrain"


def test_an_audit_continues_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {"cases": ["single"], "rounds": 3, "workers": 1}
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
        small(tmp_path / "a", **short)
    assert not (tmp_path / "a" / "audit.json").exists()
    trained.append("")  # no longer stopped
    monkeypatch.setattr(
        Worlds, "train_one", lambda self, world: (trained.append(world.name), train_one(self, world))[1]
    )
    small(tmp_path / "a", **short, on_world=lambda done, total: progress.append((done, total)))
    assert progress == [(done, 8) for done in range(3, 9)]
    assert len(set(trained)) == len(trained)
    small(tmp_path / "b", **{**short, "workers": 2})
    for name in ("audit.json", "settings.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    for path in (tmp_path / "b/worlds").iterdir():
        with safe_open(path, "numpy") as one, safe_open(tmp_path / "a/worlds" / path.name, "numpy") as other:
            assert one.metadata() == other.metadata()  # with the checksum of all arrays
    with pytest.raises(RunError, match="other settings"):
        small(tmp_path / "a", **{**short, "rounds": 4})


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
        attacks = ("membership", "snapshots", "before_after", "offline_rmia")
        assert set(method) == {*attacks, "smallest_rate", "distance", "case", "kind", "verdict"}
        for attack in attacks:
            if (name, attack) != ("none", "before_after"):
                assert set(method[attack]) == {"auc", "low", "high", "tpr_at_1_percent"}
                assert 0 <= method[attack]["low"] <= method[attack]["auc"] <= method[attack]["high"] <= 1
                assert method[attack]["tpr_at_1_percent"] is None  # 12 absent users in a fold cannot resolve 1%
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
    for changes in ({"worlds": 9}, {"worlds": 6}, {"cases": ["malicious"]}, {"cases": ["everybody"]}, {"rounds": 0}):
        with pytest.raises(ConfigError):
            small(**changes)


def test_worlds_that_are_damaged_or_of_another_audit_are_refused(tmp_path: Path) -> None:
    result = small(tmp_path / "a", cases=["single"], methods=["none", "retrain"], rounds=2)
    worlds = Worlds(tmp_path / "a", result.settings)
    first, second, _, fourth, *_ = sorted((tmp_path / "a/worlds").iterdir())
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    with pytest.raises(RunError, match="checksum differs"):
        small(tmp_path / "a", cases=["single"], methods=["none", "retrain"], rounds=2)
    first.write_bytes(second.read_bytes())
    with pytest.raises(RunError, match="another audit"):
        worlds.missing()
    fourth.write_bytes(b"")
    with pytest.raises(RunError, match="cannot be read"):
        worlds.load(result.settings.all_worlds[3])


def test_models_that_are_not_finite_are_no_pass_and_hold_up_no_other_method() -> None:
    """A method that breaks the model leaves nothing to see, which is no forgetting."""
    methods = ("none", "fru", "continue", "retrain")
    result = small(cases=["single"], methods=list(methods))
    whole = result.cases["single"]
    for outcome in result.outcomes["single"]:
        outcome.arrays["signals/fru"] = np.full_like(outcome.arrays["signals/fru"], np.nan)
    case = CaseResult("single", result.outcomes["single"], methods, 0)
    assert case.broken == {"none": 0, "fru": 8, "continue": 0, "retrain": 0}
    assert "not finite" in case.worst("fru")[1].text
    assert case.worst("fru")[1].kind == "undecided"
    for name in ("none", "continue", "retrain"):
        assert case.found[name]["membership"].auc == whole.found[name]["membership"].auc
        assert case.verdicts[name] == whole.verdicts[name]


def test_poison_is_what_differs_between_models_with_different_attackers() -> None:
    """All in the attacked model, a half where a half is left, none in Retrain, whatever else a method does to all."""
    outcomes = []
    rng = np.random.default_rng(1)
    for _ in range(4):
        common = rng.normal(size=(60, 5))
        for push in (rng.normal(size=(60, 5)), rng.normal(size=(60, 5))):
            clean = common + 0.05 * rng.normal(size=(60, 5))
            turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
            tables = {"none": clean + 0.3 * push, "half": 0.6 * (clean + 0.15 * push) @ turn, "retrain": clean}
            outcomes.append(Outcome({f"{name}/items": table for name, table in tables.items()}, {}))
    found = poison_left(outcomes, ("none", "half", "retrain"))
    assert found["none"]["projection"] == pytest.approx(1)
    assert found["half"]["projection"] == pytest.approx(0.6 * 0.5, abs=0.06)
    assert abs(found["retrain"]["projection"]) < 0.06
    assert 0 < found["retrain"]["chance"] < 0.3


def test_poison_of_an_audit_is_all_in_the_attacked_model() -> None:
    result = small(cases=["single", "malicious"], methods=["none", "retrain"], leavers=0.1)
    before, retrain = (result.distance("single", name)["poison"] for name in ("none", "retrain"))
    assert before["projection"] == pytest.approx(1)
    assert abs(retrain["projection"]) < 0.3
