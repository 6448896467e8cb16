"""What a method's step returns: the state, and the accepted result of each round that it was asked for."""

from __future__ import annotations

from unittest.mock import patch

import pytest

import fedforget as ff
from tests.small_federations import FLOAT, first_in, trained


@pytest.mark.parametrize(
    "method",
    [ff.FRU(), ff.FRU(calibration="server"), ff.Retrain(), ff.Retrain(stride=3), ff.Retrain(steps=3), ff.FedRemove()],
    ids=str,
)
def test_a_step_returns_the_state_and_a_result_for_each_round_asked_for(method):
    fed = trained(log=FLOAT)
    real, seen = type(method).step, []

    def step(self, past):  # type: ignore[no-untyped-def]
        state, results = real(self, past)
        seen.append((past.asked, results))
        assert isinstance(state, ff.ServerState)
        return state, results

    with patch.object(type(method), "step", step):
        fed.forget(first_in(fed, 2), method)
    assert seen
    for asked, results in seen:
        assert asked
        assert set(results) == set(asked)
