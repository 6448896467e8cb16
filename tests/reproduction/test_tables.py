"""Tables that a person can check: differences by hand, the paper's figures beside ours."""

from __future__ import annotations

import pytest

from fedforget.reproduction import labels, tables
from fedforget.reproduction.cell import Treatment
from fedforget.reproduction.studies import selected
from fedforget.reproduction.summary import Place, Spread, Summary
from tests.reproduction.made import GOOD, ML_GCN, ML_NCF, STEAM_NCF, everything, recovered, row, timed

ML_NCF_20 = Place("ml-100k", "ncf", 0.2)


def cells(table: str, first: str, which: int = 0) -> list[str]:
    """The cells of the line, of those that begin so the one asked for."""
    lines = [line for line in table.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in lines[which].strip("|").split("|")][1:]


def test_markdown() -> None:
    assert tables.markdown(["a", "b"], [["1", "x|y"]]) == "| a | b |\n| --- | --- |\n| 1 | x\\|y |"


def test_every_table_has_as_many_cells_in_each_line() -> None:
    summary = Summary(everything())
    for make in (
        tables.accuracy_tables, tables.speed_tables, tables.alpha_tables, tables.beta_tables, tables.lambda_tables,
        tables.storage_table,
    ):  # fmt: skip
        for block in make(summary).split("\n\n"):
            if block.startswith("|"):
                assert len({line.count("|") for line in block.splitlines()}) == 1


def test_accuracies_stand_beside_the_papers() -> None:
    text = tables.accuracy_tables(Summary(recovered(ML_NCF) + recovered(ML_NCF_20, {**GOOD, "fru-server": 0.7})))
    assert (
        "| malicious | 10%, sampled | 10%, full | 10%, the paper | 20%, sampled | 20%, full | 20%, the paper |" in text
    )
    assert cells(text, "FRU, paper") == [
        "62.0 / 31.0", "52.0 / 21.0", "58.4 / 31.3", "70.0 / 35.0", "60.0 / 25.0", "60.3 / 32.4",
    ]  # fmt: skip
    assert cells(text, "FRU, device")[2] == "–"


def test_gaps_to_retrain_by_hand() -> None:
    """Ours: 62 - 60 and 31 - 30. The paper's: 58.43 - 57.24 and 31.26 - 31.33."""
    text = tables.accuracy_tables(Summary(recovered(ML_NCF)))
    assert cells(text, "FRU, paper", which=1) == ["+2.0 / +1.0", "+2.0 / +1.0", "+1.2 / −0.1"]
    assert cells(text, "FedRemove", which=1) == ["−15.0 / −7.5", "−15.0 / −7.5", "−6.2 / −7.2"]
    assert text.count("| Retrain |") == 1


def test_gaps_need_a_retrain() -> None:
    text = tables.accuracy_tables(Summary(recovered(ML_NCF, {"attacked": 0.5})))
    assert cells(text, "Attacked", which=1) == ["–", "–", "−1.9 / −1.2"]


def test_spread_over_seeds_and_single_seeds() -> None:
    rows = recovered(ML_NCF, {"retrain": 0.6}, seeds={0: -0.01, 1: 0.01}) + recovered(ML_NCF, {"attacked": 0.5})
    text = tables.accuracy_tables(Summary(rows))
    assert cells(text, "Retrain")[0] == "60.0 ± 1.4 / 30.0 ± 0.7"
    assert cells(text, "Attacked")[0] == "50.0 / 25.0"


def test_a_way_that_is_missing_at_one_share_has_a_dash_there() -> None:
    text = tables.accuracy_tables(Summary(recovered(ML_NCF) + recovered(ML_NCF_20, {"retrain": 0.6})))
    assert cells(text, "FRU, device") == ["63.0 / 31.5", "53.0 / 21.5", "–", "–", "–", "–"]


def test_seconds_and_ratios() -> None:
    rows = timed(ML_NCF) + timed(ML_NCF, {"retrain": 100.0, "fru-device": 12.5}, seed=1)
    text = tables.speed_tables(Summary(rows))
    assert cells(text, "FRU, device") == ["11.2 ± 1.8 s (9.0 ± 1.4x)"]
    assert cells(text, "FedRemove") == ["5.0 s (20.0x)"]
    assert "Attacked" not in text


def test_alpha_shows_the_difference_and_what_is_missing() -> None:
    rows = [
        row(ML_NCF, selected(0.3, "importance"), 0.61), row(ML_NCF, selected(0.3, "random"), 0.59),
        row(ML_NCF, selected(0.5, "importance"), 0.62), row(ML_NCF, "retrain", 0.6),
    ]  # fmt: skip
    text = tables.alpha_tables(Summary(rows))
    assert cells(text, "0.3")[:3] == ["61.0 / 30.5", "59.0 / 29.5", "+2.0 / +1.0"]
    assert cells(text, "0.5")[:3] == ["62.0 / 31.0", "–", "–"]
    assert cells(text, "Retrain")[0] == "60.0 / 30.0"


def test_beta_has_a_column_for_each_sampler() -> None:
    plain = Place("ml-100k", "ncf", 0.0)
    text = tables.beta_tables(Summary([row(plain, "attacked", 0.6, sampler="user", beta=0.25)]))
    assert "| β | protocol | random | user | item | mixed |" in text
    assert cells(text, "0.25") == ["sampled", "–", "60.0 / 30.0", "–", "–"]


def test_lambda_shows_the_papers_accuracy_and_time() -> None:
    rows = [
        row(ML_NCF, "retrain", 0.6, seconds=100.0, timing="one"),
        row(ML_NCF, "fru-server", 0.62, seconds=20.0, timing="one"),
        row(ML_NCF, Treatment("fru-server", speedup=0.5), 0.61),
    ]
    text = tables.lambda_tables(Summary(rows))
    assert cells(text, "FRU, paper") == ["0.1", "62.0 / 31.0", "52.0 / 21.0", "20.0 s (5.0x)", "58.4", "396.9 s"]
    assert cells(text, "FRU, paper", 1) == ["0.5", "61.0 / 30.5", "51.0 / 20.5", "–", "56.1", "1675.5 s"]


def test_storage_counts_rows_and_shares() -> None:
    """45,000 bytes are 176 rows of 64 floats; the table has 400 kB."""
    rows = [
        row(STEAM_NCF, "fru-server", 0.6),
        row(STEAM_NCF, "fru-device", 0.6, log_rows_bytes=920.0, log_bytes=3600.0),
    ]
    text = tables.storage_table(Summary(rows))
    assert "45.0 kB (176 rows) | 45.0 kB | 5.0 kB | 60.0 kB | 11.2% | 15.0% | 17.5% (900 rows) |" in text
    assert "920 B (lengths) | – | 5.0 kB | 3.6 kB | 0.23% | 0.90% | – |" in text


def test_logs_are_shown_once_for_each_data_set_and_model() -> None:
    text = tables.storage_table(Summary(recovered(ML_NCF_20) + recovered(ML_NCF) + recovered(ML_GCN)))
    assert text.count("Fed-NCF, 10%") == text.count("Fed-LightGCN, 10%") == 3
    assert "20%" not in text


@pytest.mark.parametrize(("value", "shown"), [(1.25, "+1.2"), (-0.31, "−0.3"), (0.04, "0.0"), (-0.04, "0.0")])
def test_signs(value: float, shown: str) -> None:
    assert labels.signed(value) == shown


def test_figures_of_the_paper_are_rounded_as_in_print() -> None:
    assert labels.printed_of(25.15) == "25.2"
    assert labels.printed_of(55.34) == "55.3"


def test_units_come_last() -> None:
    assert labels.spread_of(Spread(2.0, 0.5, 2), 1.0, unit=" s") == "2.0 ± 0.5 s"
    assert labels.spread_of(Spread(2.0, None, 1), 1.0, unit="x") == "2.0x"
    assert labels.spread_of(None) == "–"
