"""The paper's figures are all there, as printed."""

from __future__ import annotations

from collections import Counter

import pytest

from fedforget.experiments.ways import WAYS
from fedforget.reproduction import paper


def test_every_figure_of_the_paper_is_there_once() -> None:
    counts = Counter(one.study for one in paper.printed())
    assert counts == {"table-1": 2 * 2 * 2 * 5 * 2, "speed": 1, "lambda": 2 * 4 * 2, "storage": 2 * 2}
    places = Counter(
        (one.study, one.dataset, one.model, one.malicious, one.way, one.speedup, one.metric) for one in paper.printed()
    )
    assert set(places.values()) == {1}


@pytest.mark.parametrize(
    ("dataset", "model", "malicious", "way", "metric", "value"),
    [
        ("ml-100k", "ncf", 0.1, "attacked", "hr", 55.34),
        ("ml-100k", "ncf", 0.2, "fru-all", "ndcg", 32.77),
        ("ml-100k", "lightgcn", 0.2, "fru-server", "ndcg", 31.53),
        ("steam-200k", "ncf", 0.2, "fedremove", "hr", 49.30),
        ("steam-200k", "lightgcn", 0.1, "retrain", "ndcg", 53.85),
        ("steam-200k", "lightgcn", 0.2, "fru-server", "hr", 93.79),
    ],
)
def test_table_1(dataset: str, model: str, malicious: float, way: str, metric: str, value: float) -> None:
    found = paper.figure("table-1", metric, dataset=dataset, model=model, malicious=malicious, way=way)
    assert found == value


def test_lambda_speed_and_storage() -> None:
    ncf = {"dataset": "ml-100k", "model": "ncf"}
    assert paper.figure("lambda", "seconds", **ncf, malicious=0.1, speedup=0.75) == 2270.61
    assert paper.figure("lambda", "hr", **ncf, malicious=0.1, speedup=0.1) == 58.43
    assert paper.figure("speed", "ratio", speedup=0.1) == 7
    assert paper.figure("storage", "rows", dataset="steam-200k", model="ncf") == 900
    assert paper.figure("storage", "share", dataset="steam-200k", model="lightgcn") == 8.75


def test_the_storage_figures_follow_from_the_papers_formula() -> None:
    """b · B · α(1 + βn) · 30 rows of 5,134."""
    for model, negatives in {"ncf": 4, "lightgcn": 1}.items():
        rows = 0.1 * 200 * 0.5 * (1 + 0.5 * negatives) * 30
        assert paper.figure("storage", "rows", dataset="steam-200k", model=model) == rows
        share = paper.figure("storage", "share", dataset="steam-200k", model=model)
        assert share == pytest.approx(100 * rows / 5134, abs=0.05)


def test_fru_at_its_own_lambda_is_the_same_in_both_tables() -> None:
    for model in ("ncf", "lightgcn"):
        place = {"dataset": "ml-100k", "model": model}
        once = paper.figure("table-1", "hr", **place, malicious=0.1)
        assert once == paper.figure("lambda", "hr", **place, malicious=0.1, speedup=0.1)


def test_what_the_paper_does_not_print_is_none() -> None:
    assert paper.figure("table-1", "hr", dataset="ml-100k", model="ncf", malicious=0.1, way="fru-device") is None
    assert paper.figure("table-1", "hr", dataset="ml-1m", model="ncf", malicious=0.1) is None
    assert paper.figure("alpha", "hr", dataset="ml-100k", model="ncf", malicious=0.1) is None


def test_ways_have_our_names() -> None:
    assert {one.way for one in paper.printed()} <= set(WAYS)
