"""The examples do what they say."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import fedforget as ff
from fedforget.device.stacked_trainer import StackedTrainer
from fedforget.errors import MissingComponentError
from fedforget.models import MODELS

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def own_model() -> dict:  # type: ignore[type-arg]
    return runpy.run_path(str(EXAMPLES / "own_model.py"), run_name="example")


def test_a_model_of_ones_own_learns(own_model: dict, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[type-arg]
    result = own_model["main"](users=300, rounds=60)
    assert "after 60 rounds" in capsys.readouterr().out
    assert result.sampled["hr"] > 0.25  # chance is 0.1


def test_a_model_of_ones_own_resumes_and_equals_the_plain_loop(
    own_model: dict,  # type: ignore[type-arg]
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MODELS, "_known", dict(MODELS._known))  # opening with a model registers it
    data = ff.synthetic(users=40, items=60, mean_items=10)
    model = own_model["BiasedMF"](dim=8, strength=0.5)
    settings = {"training": ff.LocalTraining(epochs=2, batch=16)}
    fed = ff.Federation(data, model, path=tmp_path / "run", **settings).fit(rounds=2)
    assert isinstance(fed.devices._trainer, StackedTrainer)
    fed.close()
    with pytest.raises(MissingComponentError, match="Unknown model 'biased-mf'"):
        ff.Federation.open(tmp_path / "run", data)
    resumed = ff.Federation.open(tmp_path / "run", data, model=model).fit(rounds=3)
    plain = ff.Federation(data, model, compute=ff.Compute(trainer="plain"), **settings).fit(rounds=3)
    np.testing.assert_allclose(resumed.public.items, plain.public.items, rtol=0, atol=1e-5)
