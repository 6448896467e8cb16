"""Results survive kills and are written by several processes at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedforget as ff
from fedforget.experiments.experiment import Experiment, Setting
from fedforget.experiments.results import Results
from tests.experiments.made import Row, as_frame, result

SETTING = Setting("ml-100k", "lightgcn", 0.2, 0)
EXPERIMENT = Experiment(SETTING, "fru-device")
CELLS = Path(__file__).parents[2] / "docs" / "reproduction" / "cells.csv"


def row(variant: str = "fru-device", **changes: Any) -> Row:
    return result(Experiment(SETTING, variant), 0.5, **changes)


fractions = st.floats(0, 1).map(lambda value: float(f"{value:.6g}"))


@given(fractions, fractions, st.integers(0, 99), st.sampled_from([None, 0.3]), st.sampled_from([None, "random"]))
def test_rows_come_back_as_they_were(
    hr: float, share: float, seed: int, alpha: float | None, selection: str | None
) -> None:
    experiment = Experiment(Setting("steam-200k", "ncf", share, seed), "fru-server", alpha, selection)
    before = result(experiment, 0.5, sampled_hr=hr, machine='a "quoted", name')
    with tempfile.TemporaryDirectory() as folder:
        results = Results(Path(folder) / "cells.csv")
        results.append([before])
        assert results.frame().equals(as_frame([before]))
    assert Experiment.from_columns(before) == experiment


def test_the_latest_result_of_an_experiment_counts_and_each_timed_run_is_kept(tmp_path: Path) -> None:
    results = Results(tmp_path / "deep" / "cells.csv")
    assert results.frame().height == 0
    results.append([row(seconds=1.0), row("retrain", seconds=2.0)])
    results.append([row(seconds=3.0)])
    results.append([row(seconds=4.0, timing="run"), row(seconds=5.0, timing="other")])
    found = results.frame().select("way", "seconds", "timing").rows()
    assert found == [
        ("retrain", 2.0, ""),
        ("fru-device", 3.0, ""),
        ("fru-device", 4.0, "run"),
        ("fru-device", 5.0, "other"),
    ]


def test_missing_are_experiments_without_a_result_under_the_current_settings(tmp_path: Path) -> None:
    results = Results(tmp_path / "cells.csv")
    experiments = [Experiment(SETTING, way) for way in ("retrain", "fru-device", "fru-server", "retrain")]
    assert results.missing(experiments) == experiments[:3]
    results.append([row("retrain"), row(settings="of before"), row("fru-server", timing="run")])
    assert results.missing(experiments) == [EXPERIMENT]
    assert results.missing(experiments, timed=True) == experiments[:2]


def test_a_fingerprint_depends_on_every_setting_that_affects_the_result() -> None:
    settings = (SETTING, replace(SETTING, seed=1), replace(SETTING, beta=0.25), replace(SETTING, model="ncf"))
    prints = {
        experiment.fingerprint()
        for setting in settings
        for experiment in (
            Experiment(setting, "fru-server"),
            Experiment(setting, "fru-server", 0.3),
            Experiment(setting, "fru-server", 0.3, "random"),
            Experiment(setting, "fru-server", replay_fraction=0.5),
            Experiment(setting, "retrain"),
        )
    }
    assert len(prints) == 4 * 5


def test_the_published_results_can_be_read_and_their_fingerprints_match() -> None:
    frame = Results(CELLS).frame()
    matching = [Experiment.from_columns(row).fingerprint() == row["settings"] for row in frame.iter_rows(named=True)]
    assert (len(matching), sum(matching)) == (225, 207)


def test_half_a_line_does_not_count_and_does_not_stay(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    Results(path).append([row(), row("retrain")])
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert Results(path).frame()["way"].to_list() == ["fru-device"]
    Results(path).append([row("retrain")])
    assert path.read_bytes() == whole
    path.write_bytes(whole[:20])
    assert Results(path).frame().height == 0


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    Results(path).append([row(seconds=7.125)])
    path.write_text(path.read_text().replace("7.125", "soon"))
    with pytest.raises(ff.DataError, match="line 2: seconds is 'soon'"):
        Results(path).frame()
    path.write_text("dataset,model\nml-100k,ncf\n")
    with pytest.raises(ff.DataError, match="malicious is missing"):
        Results(path).frame()


def _append_some(path: Path, seed: int) -> None:
    for way in ("retrain", "fru-device", "fru-server", "continue"):
        Results(path).append([result(Experiment(replace(SETTING, seed=seed), way), 0.5)])


def test_several_processes_append_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_some, args=(path, seed)) for seed in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert Results(path).frame().height == 12
    assert path.read_text().count("dataset,") == 1


KILLED = """
from pathlib import Path
from tests.experiments.test_results import row, Results
while True:
    for way in ("retrain", "fru-device", "fru-server"):
        Results(Path({path!r})).append([row(way)])
"""


def test_a_kill_at_any_time_leaves_a_file_that_can_be_read_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    process = subprocess.Popen([sys.executable, "-c", KILLED.format(path=str(path))], cwd=Path(__file__).parents[2])
    deadline = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size > 5000) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert Results(path).frame().height == 3
    Results(path).append([row("continue")])
    assert Results(path).frame().height == 4
