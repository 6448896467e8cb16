"""What the package promises on the real MovieLens-100k."""

from __future__ import annotations

import time

import numpy as np
import pytest

import fedforget as ff

pytestmark = [pytest.mark.real_data, pytest.mark.slow]


def test_lightgcn_reaches_its_accuracy_in_200_rounds(ml_100k: ff.Interactions) -> None:
    """On the mean of three seeds, since one seed's spread is about half a point."""
    results = []
    for seed in range(3):
        train, test = ml_100k.split(test=0.2, seed=seed)
        results.append(ff.Federation(train, ff.LightGCN(), seed=seed).fit(rounds=200).evaluate(test))
    assert np.mean([result.sampled["hr"] for result in results]) >= 0.70
    assert np.mean([result.full["hr"] for result in results]) >= 0.83


@pytest.mark.alone
def test_ncf_learns_and_its_evaluation_is_cheap(ml_100k: ff.Interactions) -> None:
    """Evaluation takes at most a twentieth of 200 rounds: compared with what 10 rounds take, times 20."""
    train, test = ml_100k.split(test=0.2, seed=0)
    fed = ff.Federation(train, ff.NCF(), seed=0)
    untrained = fed.evaluate(test)
    fed.fit(rounds=1)
    started = time.perf_counter()
    fed.fit(more=10)
    training = 20 * (time.perf_counter() - started)
    started = time.perf_counter()
    trained = fed.evaluate(test)
    assert time.perf_counter() - started < training / 20
    assert trained.sampled["hr"] > untrained.sampled["hr"] + 0.2
