"""``fedforget audit server``."""

from __future__ import annotations

import pytest

pytest.importorskip("shamirs", reason="secure aggregation is part of the extra fedforget[flower]")

from tests.cli.conftest import train_arguments


def test_a_data_file_and_a_run_folder(shell, table, tmp_path):
    columns = ["--user-column", "who", "--item-column", "what"]
    found = shell.json("audit", "server", table, *columns, "--rounds", 5, "--num-users", 40, "--model", "mf")
    assert found["data"] == str(table)
    assert set(found["plain"]["one_round"]) == {"order", "seed", "direction", "length", "sent"}
    assert set(found["secure"]) == {"one_round", "all_rounds", "sum", "erasure"}
    shell(*train_arguments(table, tmp_path / "run"))
    found = shell.json("audit", "server", tmp_path / "run", "--rounds", 3, "--num-users", 40)
    assert found["rounds"] == 3
    printed = shell("audit", "server", tmp_path / "run", "--rounds", 3, "--num-users", 40)
    assert "the direction of rows" in printed
    shell("audit", "server", table, *columns, "--rounds", 1, "--num-users", 0, fails=1)
    assert "None of the 0 users" in shell.errors
