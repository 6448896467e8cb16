"""Items of a run are whole numbers or text, and neither is taken for the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedforget.erasure_service.combined import combined
from fedforget.erasure_service.item_kind import ItemKind
from tests.erasure_service.test_subject_requests import made
from tests.small_federations import DATA, trained

TEXT = np.array([f"{place:02}" for place in range(DATA.n_items)])


@pytest.mark.parametrize(("ids", "kind"), [(DATA.item_ids, ItemKind.NUMBERS), (TEXT, ItemKind.TEXT)])
def test_the_kind_of_a_run(tmp_path, ids, kind):
    trained(tmp_path / "run", replace(DATA, item_ids=ids)).close()
    assert ItemKind.of_run(tmp_path / "run") is kind
    assert kind.names(ids.tolist()[:5])
    assert not kind.names([1, "1"])
    next(tmp_path.rglob("items.json")).unlink()
    assert ItemKind.of_run(tmp_path / "run") is None


def test_items_are_asked_for_as_they_were_named():
    erasure = combined([made("17", items=(50, "051", "50"))], {"name": "fru"})
    assert erasure.items_of == {17: [50, "051", "50"], "17": [50, "051", "50"]}
