"""The audit of the server: plain updates tell everything, masked ones nothing, sums a little."""

from __future__ import annotations

import pytest

import fedforget as ff
from fedforget.server.presets import configure

pytest.importorskip("shamirs", reason="secure aggregation is part of the extra fedforget[flower]")

from fedforget.experiments.audit_server import audit_server

DATA = ff.synthetic(users=60, items=150, mean_items=15, seed=0)


@pytest.fixture(scope="module", params=["lightgcn", "ials"])
def audit(request):
    config = configure(request.param, seed=0)
    return audit_server(DATA, config, rounds=12, num_users=40)


def test_masked_vectors_tell_nothing_and_plain_updates_everything(audit):
    for when in ("one_round", "all_rounds"):
        secure = audit["secure"][when]
        assert all(abs(found["auc"] - 0.5) < 0.1 for found in secure.values()), secure
    assert audit["plain"]["one_round"]["sent"]["auc"] > 0.9
    assert audit["plain"]["all_rounds"]["recurrence"]["auc"] > 0.9
    if audit["model"] == "lightgcn":
        assert audit["plain"]["one_round"]["direction"]["auc"] > 0.95
        assert audit["plain"]["one_round"]["order"]["auc"] == 0.5
        assert abs(audit["plain"]["one_round"]["seed"]["auc"] - 0.5) < 0.1
    else:  # only own items are sent, so there is nothing to tell apart
        assert audit["plain"]["one_round"]["direction"]["auc"] is None
        assert audit["plain"]["one_round"]["sent"] == {"auc": 1.0, "precision": 1.0}


def test_sums_tell_less_the_more_devices_are_in_them(audit):
    sums = audit["secure"]["sum"]
    assert sums["100"] is None  # there are 60 users
    assert sums["10"]["auc"] > sums["10"]["of_another_user"]["auc"]
    assert sums["10"]["auc"] < audit["plain"]["one_round"]["sent"]["auc"]
    assert sums["all_rounds"]["auc"] > sums["all_rounds"]["of_another_user"]["auc"]


def test_the_cover_hides_the_update_that_the_sums_around_an_erasure_differ_by(audit):
    erasure = audit["secure"]["erasure"]
    assert erasure["without_cover"] == audit["plain"]["one_round"]["sent"] or audit["model"] == "lightgcn"
    assert erasure["precision"] < erasure["without_cover"]["precision"] - 0.2
