"""The ledger keeps what is finished, through kills and from several processes at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedforget as ff
from fedforget.reproduction.cell import Cell, Setting, Treatment
from fedforget.reproduction.ledger import Ledger
from fedforget.reproduction.row import Result, Row

SETTING = Setting("ml-100k", "lightgcn", 0.2, 0)
CELL = Cell(SETTING, Treatment("fru-device"))


def result(cell: Cell = CELL, **changes: object) -> Result:
    values = {field.name: 0.5 if field.type == "float" else "x" for field in fields(Result)}
    return Result(**{**values, "timing": "", "settings": cell.fingerprint(), **changes})  # type: ignore[arg-type]


def row(treatment: Treatment = CELL.treatment, **changes: object) -> Row:
    cell = Cell(SETTING, treatment)
    return Row(cell, result(cell, **changes))


shares = st.floats(0, 1).map(lambda value: float(f"{value:.6g}"))


@given(shares, shares, st.integers(0, 99), st.sampled_from([None, 0.3]), st.sampled_from([None, "random"]))
def test_rows_come_back_as_they_were(hr: float, share: float, seed: int, alpha: float | None, how: str | None) -> None:
    cell = Cell(Setting("steam-200k", "ncf", share, seed), Treatment("fru-server", alpha, how))
    before = Row(cell, result(cell, sampled_hr=hr, machine='a "quoted", name'))
    assert Row.from_dict(before.to_dict()) == before


def test_the_latest_result_of_a_cell_counts_and_each_timed_run_stands_beside(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "deep" / "cells.csv")
    assert ledger.rows() == []
    ledger.add([row(seconds=1.0), row(Treatment("retrain"), seconds=2.0)])
    ledger.add([row(seconds=3.0)])
    ledger.add([row(seconds=4.0, timing="run"), row(seconds=5.0, timing="other")])
    found = [(r.cell.treatment.way, r.result.seconds, r.result.timing) for r in ledger.rows()]
    assert found == [
        ("fru-device", 3.0, ""),
        ("retrain", 2.0, ""),
        ("fru-device", 4.0, "run"),
        ("fru-device", 5.0, "other"),
    ]


def test_missing_are_cells_without_a_result_under_the_settings_of_today(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "cells.csv")
    cells = [Cell(SETTING, Treatment(way)) for way in ("retrain", "fru-device", "fru-server", "retrain")]
    assert ledger.missing(cells) == cells[:3]
    ledger.add([row(Treatment("retrain")), row(settings="of before"), row(Treatment("fru-server"), timing="run")])
    assert ledger.missing(cells) == [CELL]
    assert ledger.missing(cells, timed=True) == cells[:2]


def test_a_fingerprint_knows_every_setting_that_decides() -> None:
    prints = {
        Cell(setting, treatment).fingerprint()
        for setting in (SETTING, replace(SETTING, seed=1), replace(SETTING, beta=0.25), replace(SETTING, model="ncf"))
        for treatment in (
            Treatment("fru-server"),
            Treatment("fru-server", 0.3),
            Treatment("fru-server", 0.3, "random"),
            Treatment("fru-server", speedup=0.5),
            Treatment("retrain"),
        )
    }
    assert len(prints) == 4 * 5


def test_half_a_line_does_not_count_and_does_not_stay(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    Ledger(path).add([row(), row(Treatment("retrain"))])
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert [r.cell.treatment.way for r in Ledger(path).rows()] == ["fru-device"]
    Ledger(path).add([row(Treatment("retrain"))])
    assert path.read_bytes() == whole


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    Ledger(path).add([row(seconds=7.125)])
    path.write_text(path.read_text().replace("7.125", "soon"))
    with pytest.raises(ff.DataError, match="line 2: seconds is 'soon'"):
        Ledger(path).rows()
    path.write_text("dataset,model\nml-100k,ncf\n")
    with pytest.raises(ff.DataError, match="malicious is missing"):
        Ledger(path).rows()


def _add_some(path: Path, seed: int) -> None:
    for way in ("retrain", "fru-device", "fru-server", "continue"):
        cell = Cell(replace(SETTING, seed=seed), Treatment(way))
        Ledger(path).add([Row(cell, result(cell))])


def test_several_processes_add_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    writers = [multiprocessing.get_context("spawn").Process(target=_add_some, args=(path, seed)) for seed in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(Ledger(path).rows()) == 12
    assert path.read_text().count("dataset,") == 1


KILLED = """
from pathlib import Path
from tests.reproduction.test_ledger import row, Ledger, Treatment
while True:
    for way in ("retrain", "fru-device", "fru-server"):
        Ledger(Path({path!r})).add([row(Treatment(way))])
"""


def test_a_kill_at_any_time_leaves_a_ledger_that_can_be_read_and_added_to(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    process = subprocess.Popen([sys.executable, "-c", KILLED.format(path=str(path))], cwd=Path(__file__).parents[2])
    deadline = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size > 5000) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(Ledger(path).rows()) == 3
    Ledger(path).add([row(Treatment("continue"))])
    assert len(Ledger(path).rows()) == 4
