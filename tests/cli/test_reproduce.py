"""``fedforget reproduce`` runs what is missing and writes the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedforget.experiments import page
from tests.cli.conftest import Shell
from tests.experiments.made import small_file


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return small_file(tmp_path / "plays.csv")


def test_a_study_a_second_look_and_the_page(shell: Shell, data: Path, tmp_path: Path) -> None:
    out, into = tmp_path / "out", tmp_path / "results.md"
    into.write_text(f"# Mine\n\n{page.BEGIN}\n{page.END}\n\nThe end.\n")
    choice = ["--datasets", data, "--models", "mf", "--malicious", 0.2, "--seeds", 1, "--rounds", 2, "--out", out]
    printed = shell("reproduce", "storage", *choice)
    assert "3 finished cells" in printed
    assert "3 of 3 cells" in shell.errors
    cells = (out / "cells.csv").read_bytes()
    assert (out / "storage.svg").exists()
    assert (out / "storage.png").exists()
    assert not (out / "speed.svg").exists()
    result = shell.json("reproduce", "storage", *choice)
    assert (out / "cells.csv").read_bytes() == cells, "what was done was done again"
    assert {cell["way"] for cell in result["cells"]} == {"fru-all", "fru-server", "fru-device"}
    assert json.loads(json.dumps(result))["page"] == str(out / "page.md")
    shell("reproduce", "page", "--out", out, "--into", into)
    text = into.read_text()
    assert text.startswith("# Mine")
    assert text.endswith("The end.\n")
    assert "(out/storage.svg)" in text


@pytest.mark.parametrize(
    ("arguments", "problem", "step"),
    [
        (["tabel-1"], "Unknown study 'tabel-1'", "Did you mean 'table-1'"),
        (["table-1", "--preset", "papre"], "Unknown preset 'papre'", "Did you mean 'paper'"),
        (["table-1", "--datasets", "ml-100"], "Unknown data set 'ml-100'", "Did you mean 'ml-100k'"),
        (["table-1", "--models", "lightgnc"], "Unknown model 'lightgnc'", "Did you mean 'lightgcn'"),
        (["table-1", "--malicious", "10%"], "malicious is '10%'", "such as 0.1,0.2"),
        (["table-1", "--malicious", "0.1,1.5"], "malicious is '0.1,1.5'", "such as 0.1,0.2"),
        (["table-1", "--seeds", "0"], "seeds is 0", "at least 1"),
        (["table-1", "--rounds", "0"], "rounds is 0", "at least 1"),
        (["table-1", "--workers", "0"], "workers is 0", "at least 1"),
        (["page"], "has no finished cell", "fedforget reproduce table-1"),
    ],
)
def test_errors_name_the_value_and_the_next_step(
    shell: Shell, tmp_path: Path, arguments: list[str], problem: str, step: str
) -> None:
    shell("reproduce", *arguments, "--out", tmp_path / "out", fails=1)
    told = " ".join(shell.errors.split())
    assert problem in told
    assert step in told
    assert not (tmp_path / "out").exists()
