"""The report stands by itself and shows every method."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import asdict, replace
from html.parser import HTMLParser
from typing import Any

import pytest

from fedforget.experiments import plots
from fedforget.experiments.measures import Accuracy, LogSize, Outcome
from fedforget.experiments.report import html_report
from fedforget.experiments.variants import VARIANTS

ACCURACY = Accuracy({"hr": 0.7, "ndcg": 0.44}, {"hr": 0.86, "ndcg": 0.31, "recall": 0.17})
SETTING = {
    "data": "<made & up>",
    "users": 50,
    "malicious": 0.2,
    "malicious_users": 10,
    "rounds": 4,
    "model": {"name": "lightgcn", "dim": 8},
    "item_table_bytes": 2000,
}

FOUND = {"auc": 0.875, "low": 0.8, "high": 0.95, "took_part": [0.5, 2.0, 30.0], "absent": [-1.0, 0.25]}


def made() -> dict[str, Any]:
    outcome = Outcome(
        2.0, 3.5, ACCURACY, LogSize(700.0, 400.0, 100.0, 500.0, 2000.0), curve=[(2, ACCURACY), (4, ACCURACY)]
    )
    outcomes = dict.fromkeys(VARIANTS, outcome)
    outcomes["attacked"] = replace(outcome, seconds=0.0, speedup=None)
    return {
        "setting": SETTING,
        "machine": {"cores": 2},
        "methods": {name: one.to_dict() for name, one in outcomes.items()},
        "most popular": asdict(ACCURACY),
        "ials": {},
        "curves": {name: one.curve_dicts() for name, one in outcomes.items() if name != "continue"},
        "audit": {
            "data": {"users": 400},
            "worlds": 8,
            "rounds": 50,
            "leaving": "heaviest users",
            "methods": dict.fromkeys(("none", "continue", "fru", "retrain"), FOUND),
        },
    }


class Page(HTMLParser):
    """Collects tags, what they would load, and ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data", "action") and value:
                self.loads.append(value)
            if name == "id" and value:
                self.ids.append(value)


def test_the_page_needs_nothing_but_itself() -> None:
    text = html_report(made(), ["fedforget evaluate runs/<x>"])
    page = Page(text)
    assert page.tags.count("svg") == 5
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert all(load.startswith("#") for load in page.loads)
    assert {load[1:] for load in page.loads} <= set(page.ids)
    assert not re.search(r"https?://|@import|url\((?!#)", text)


def test_every_method_has_a_row_and_a_sentence() -> None:
    text = html_report(made())
    rows = re.findall(r"<tr.*?</tr>", text)
    for variant in VARIANTS.values():
        assert sum(f"{variant.label}</td>" in row for row in rows) == 1
        assert variant.description.split(":")[0].replace("'", "&#x27;") in text
    assert "3.5x" in text
    assert "700 B" in text
    assert "35.0%" in text


def test_names_are_shown_as_they_are() -> None:
    text = html_report(made(), ["fedforget evaluate runs/<x>"])
    assert "&lt;made &amp; up&gt;" in text
    assert "runs/&lt;x&gt;" in text
    assert "<made" not in text


def test_fewer_methods_are_fine() -> None:
    some = {name: outcome for name, outcome in made()["methods"].items() if name in ("attacked", "continue")}
    assert (
        html_report({**made(), "methods": some, "curves": {"attacked": made()["curves"]["attacked"]}}).count("<svg")
        == 5
    )


def test_the_audit_shows_every_method_with_its_interval() -> None:
    text = html_report(made())
    for label in ("before the erasure", "after Continue", "after FRU", "after Retrain"):
        assert f"{label}: AUC 0.88" in text
        assert f"{label} 0.80–0.95" in text
    assert html_report({**made(), "audit": None}).count("<svg") == 4


def test_a_comparison_can_be_saved_as_json() -> None:
    again = json.loads(json.dumps(made()))
    assert again == made()
    assert html_report(again) == html_report(made())


@pytest.mark.parametrize(("size", "shown"), [(40, "40 B"), (2795, "2.8 kB"), (34e6, "34.0 MB")])
def test_sizes_are_readable(size: float, shown: str) -> None:
    assert plots.in_bytes(size) == shown


def test_matplotlib_is_loaded_only_to_draw() -> None:
    code = "import sys, fedforget.cli.main; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
