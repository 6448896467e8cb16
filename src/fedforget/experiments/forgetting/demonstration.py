"""A small audit on synthetic data, for the quickstart's report: it shows forgetting, and judges no method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedforget.data import load
from fedforget.experiments.forgetting.analysis import MEMBERSHIP, Found
from fedforget.experiments.forgetting.audit import audit
from fedforget.experiments.forgetting.cases import CASES
from fedforget.experiments.forgetting.methods import NONE, RETRAIN
from fedforget.experiments.forgetting.worlds import OnWorld

DATA: dict[str, Any] = {"users": 400, "items": 400, "mean_items": 30.0, "seed": 0}
SETTINGS: dict[str, Any] = {"worlds": 8, "rounds": 50, "leavers": 0.05, "seed": 0}
CASE, METHODS = "heavy", (NONE, "continue", "fru", RETRAIN)


def demonstration(folder: Path, on_world: OnWorld = lambda done, total: None) -> dict[str, Any]:
    """The scores of users who took part and of users who were never there, after each method, as plain values."""
    data = load("synthetic", **DATA)
    result = audit(data, "lightgcn", methods=METHODS, cases=(CASE,), out=folder, on_world=on_world, **SETTINGS)
    found = {name: _scores(one[MEMBERSHIP]) for name, one in result.headline.found.items()}
    return {"data": DATA, **SETTINGS, "leaving": CASES[CASE].label, "methods": found}


def _scores(found: Found) -> dict[str, Any]:
    scores = found.scores
    took_part, absent = (np.round(scores.value[part], 3).tolist() for part in (scores.inside, ~scores.inside))
    return {
        "auc": found.auc.value,
        "low": found.auc.low,
        "high": found.auc.high,
        "took_part": took_part,
        "absent": absent,
    }
