"""Settings from files and the command line are checked against the fields of their dataclass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from fedforget.errors import ConfigError
from fedforget.runtime.settings import build_from


@dataclass(frozen=True)
class Training:
    epochs: int = 20
    lr: float = 0.1
    refit: bool = False
    name: str = "adam"
    sizes: tuple[int, ...] = (1,)
    limit: float | None = None


def test_values_get_the_type_of_their_field():
    table = {"epochs": np.int64(3), "lr": 1, "refit": True, "name": "sgd", "sizes": [2, 3], "limit": None}
    built = build_from(Training, table, "training")
    assert built == Training(3, 1.0, True, "sgd", (2, 3), None)
    assert (type(built.lr), type(built.epochs)) == (float, int)
    assert build_from(Training, built, "training") is built
    assert build_from(Training, {"limit": 2}, "training").limit == 2.0


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"refit": "False"}, r"training\.refit is 'False'.\nGive true or false"),
        ({"epochs": 10.0}, r"training\.epochs is 10\.0.\nGive a whole number"),
        ({"epochs": "abc"}, r"training\.epochs is 'abc'.\nGive a whole number"),
        ({"epochs": True}, r"training\.epochs is True.\nGive a whole number"),
        ({"lr": "x"}, r"training\.lr is 'x'.\nGive a number"),
        ({"limit": "x"}, r"training\.limit is 'x'.\nGive a number"),
        ({"name": 3}, r"training\.name is 3.\nGive text"),
        ({"sizes": 3}, r"training\.sizes is 3.\nGive a list"),
        ({"epoch": 3}, r"Unknown setting 'training\.epoch'.\nDid you mean 'training\.epochs'"),
        (7, r"training is 7.\nGive a table of settings"),
    ],
)
def test_other_values_are_refused_by_name(table, problem):
    with pytest.raises(ConfigError, match=problem):
        build_from(Training, table, "training")
