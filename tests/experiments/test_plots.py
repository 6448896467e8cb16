"""Plots: one for each study that has results, the same bytes for the same rows, and readable labels."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from fedforget.experiments.plots import study_plots
from fedforget.experiments.studies import STUDIES
from fedforget.experiments.summary import ACTIVE
from fedforget.experiments.variants import VARIANTS
from tests.experiments.made import ML_NCF, Place, Row, everything, recovered, row, summary_of, timed

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def painted() -> dict[str, bytes]:
    return files(everything())


def files(rows: list[Row]) -> dict[str, bytes]:
    return dict(study_plots(summary_of(rows)))


def studies(rows: list[Row]) -> set[str]:
    return {name.partition(".")[0] for name in files(rows)}


def texts(svg: bytes) -> list[str]:
    return ["".join(text.itertext()).strip() for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_every_study_has_both_files(painted: dict[str, bytes]) -> None:
    assert set(painted) == {f"{study}.{kind}" for study in STUDIES for kind in ("svg", "png")}


def test_files_are_what_they_are_called(painted: dict[str, bytes]) -> None:
    for name, data in painted.items():
        if name.endswith("svg"):
            assert ElementTree.fromstring(data).tag == f"{SVG}svg"
        else:
            assert data.startswith(b"\x89PNG\r\n\x1a\n")


def test_they_are_the_same_the_next_time_and_have_no_date(painted: dict[str, bytes]) -> None:
    rows = [one for one in everything() if one["malicious"] == 0]
    first, again = (files(rows) for _ in range(2))
    assert first == again
    assert set(first) == {"beta.svg", "beta.png"}
    assert first["beta.svg"] == painted["beta.svg"]
    assert not any(re.search(rb"<dc:date>|Software|Matplotlib v", data) for data in painted.values())


def test_labels(painted: dict[str, bytes]) -> None:
    found = {name.removesuffix(".svg"): texts(data) for name, data in painted.items() if name.endswith("svg")}
    assert {variant.label for variant in VARIANTS.values()} <= set(found["table-1"])
    assert {"Steam-200k, Fed-LightGCN", "10% malicious users", "20% malicious users", "the paper"} <= set(
        found["table-1"]
    )
    assert {VARIANTS[way].label for way in ACTIVE} <= set(found["speed"])
    assert "Attacked" not in found["speed"]
    assert {"importance", "random", "Retrain"} <= set(found["alpha"])
    assert {"mixed", "random", "user", "item"} <= set(found["beta"])
    assert "Retrain" not in found["beta"]
    assert {"FRU, paper", "FRU, device", "FRU, logged", "times as fast as Retrain"} <= set(found["lambda"])
    assert {"FRU, w/o IUS", "everything", "item rows alone"} <= set(found["storage"])


def test_no_data_no_figure() -> None:
    assert files([]) == {}
    assert studies([row(ML_NCF, "retrain", 0.6)]) == {"table-1"}
    assert studies([row(Place("ml-100k", "mf", 0.0), "attacked", 0.6)]) == {"beta"}


def test_what_table_1_shares_with_other_studies_does_not_make_their_figures() -> None:
    assert studies(recovered(ML_NCF)) == {"table-1", "storage"}
    assert studies(timed(ML_NCF)) == {"table-1", "storage", "speed"}


def test_a_single_experiment_of_each_kind_can_be_drawn() -> None:
    rows = [
        row(Place("ml-1m", "mf", 0.3), "fru-device", 0.6, timing="a", seconds=3.0),
        row(Place("ml-1m", "mf", 0.3), "continue", 0.6, timing="a", seconds=2.0),
        row(ML_NCF, "fru-server", 0.6, alpha=0.3, selection="random"),
        row(ML_NCF, "fru-logged", 0.6, replay_fraction=0.5),
        row(Place("ml-100k", "ncf", 0.0), "attacked", 0.6, sampler="item"),
    ]
    found = files(rows)
    assert len(found) == 2 * len(STUDIES)
    assert "seconds (against Retrain)" in texts(found["speed.svg"])
    assert "3.0 s" in texts(found["speed.svg"])
    assert "MovieLens-1M, MF" in texts(found["table-1.svg"])
    assert "times as fast as Retrain" not in texts(found["lambda.svg"])


def test_matplotlib_is_loaded_only_to_draw() -> None:
    code = "import sys, fedforget.experiments.page; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
