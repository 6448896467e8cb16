"""Who leaves in which world, and how methods are named."""

from __future__ import annotations

import numpy as np
import pytest

import fedforget as ff
from fedforget.errors import ConfigError, DataError
from fedforget.experiments.forgetting.cases import ATTACKED, CASES, candidates, taking_part, world_seed
from fedforget.experiments.forgetting.methods import DEFAULT, audited_methods

DATA = ff.synthetic(users=60, items=80, mean_items=12, seed=1)


@pytest.mark.parametrize("case", list(CASES))
def test_in_a_pair_of_worlds_everyone_takes_part_once(case: str) -> None:
    users = candidates(case, DATA, 0.1, 0)
    assert users.size == (2 if case == "single" else 12)
    for pair in range(3):
        first, second = (taking_part(case, 2 * pair + side, DATA, users, 0) for side in (0, 1))
        assert np.array_equal(first, ~second)
        assert first.sum() == users.size // 2
    halves = {taking_part(case, number, DATA, users, 0).tobytes() for number in range(0, 24, 2)}
    assert len(halves) > 1
    assert len({world_seed(case, number, 0) for case in CASES for number in range(10)}) == 5 * len(CASES)
    assert all(world_seed(case, number, 0) == world_seed(case, number + 1, 0) for number in range(0, 10, 2))


def test_candidates_are_those_of_their_case() -> None:
    heavy = candidates("heavy", DATA, 0.1, 0)
    assert DATA.counts[heavy].min() >= np.sort(DATA.counts)[-12]
    popularity = np.bincount(DATA.indices, minlength=DATA.n_items)
    rarity = np.array([np.mean(1 / popularity[DATA.items_of(user)]) for user in range(60)])
    rare = candidates("rare", DATA, 0.1, 0)
    eligible = DATA.counts >= 4
    assert rarity[rare].min() >= np.sort(rarity[eligible])[-12]
    assert not np.array_equal(candidates("random", DATA, 0.1, 0), candidates("random", DATA, 0.1, 1))
    with pytest.raises(DataError, match="60 users"):
        candidates("random", DATA, 0.6, 0)
    assert "malicious" not in ATTACKED


def test_methods_by_name_with_settings() -> None:
    methods = audited_methods(DEFAULT, ff.LightGCN())
    assert list(methods) == list(DEFAULT)
    assert methods["none"].method is None
    assert methods["fru"].method == ff.FRU().for_model(ff.LightGCN())
    own = audited_methods(["fru:stride=5:replay=logged", "fru-paper"], ff.LightGCN())
    assert list(own) == ["none", "fru:stride=5:replay=logged", "fru-paper", "retrain"]
    assert own["fru:stride=5:replay=logged"].method == ff.FRU(stride=5, replay="logged")
    assert own["fru-paper"].log.whole_updates
    condensed = audited_methods(DEFAULT, ff.IALS())
    assert condensed["retrain-condensed"].method == ff.Retrain(steps=20)
    assert "fru" not in condensed
    for wrong in ("fruit", "none:stride=5", "fru:stride", "fru:steps=5"):
        with pytest.raises(ConfigError):
            audited_methods([wrong], ff.LightGCN())
