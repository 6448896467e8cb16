"""The page follows from the results alone, and goes where its markers are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fedforget.errors import ConfigError, RunError
from fedforget.experiments import page
from fedforget.experiments.experiment import Experiment
from fedforget.experiments.results import Results
from fedforget.experiments.studies import STUDIES, with_alpha
from fedforget.experiments.summary import study_rows
from tests.experiments.made import (
    GOOD,
    ML_GCN,
    ML_NCF,
    STEAM_NCF,
    Place,
    Row,
    as_frame,
    everything,
    recovered,
    result,
    row,
    summary_of,
    timed,
    with_seed,
)

ML_NCF_20 = Place("ml-100k", "ncf", 0.2)
DOCS = Path(__file__).parents[2] / "docs"
PAGE = f"# Results\n\nBefore.\n\n{page.BEGIN}\nold\n{page.END}\n\nAfter.\n"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return everything()


def part(text: str, title: str) -> str:
    """A subsection."""
    after = text.partition(f"### {title}\n")[2]
    return re.split(r"^### ", after, maxsplit=1, flags=re.MULTILINE)[0]


def section(rows: list[Row]) -> str:
    return page.section(as_frame(rows))


def table(study: str, rows: list[Row]) -> pl.DataFrame:
    return page.study_table(study, study_rows(summary_of(rows), study))


def cells(study: str, rows: list[Row], *columns: str, **where: Any) -> list[Any]:
    """The cells of the row that has these values."""
    found = table(study, rows).filter(**where)
    assert found.height == 1
    return [found[name][0] if name in found.columns else None for name in columns]


def test_every_study_has_its_part_with_table_and_plot(rows: list[Row]) -> None:
    text = section(rows)
    for name, study in STUDIES.items():
        found = part(text, study.title)
        assert f"![{study.title}](reproduction/{name}.svg)" in found
        assert "\n| " in found


def test_the_page_says_where_the_results_come_from() -> None:
    one, other = recovered(ML_NCF, {"retrain": 0.6, "attacked": 0.5})
    later = other | {"version": "0.1", "finished": "2026-02-03T00:00:00+00:00"}
    text = part(section([one, later]), "Finished experiments")
    assert "| 0.0 | python 3 | made up | 1 | 0 | 0 | 200 | 2026-01-02 to 2026-01-02 |" in text
    assert "| 0.1 | python 3 | made up | 1 | 0 | 0 | 200 | 2026-02-03 to 2026-02-03 |" in text


def test_finished_experiments_are_counted(rows: list[Row]) -> None:
    text = part(section([*recovered(ML_NCF), row(STEAM_NCF, "retrain", 0.6)]), "Finished experiments")
    assert "| table-1 | 216 | 10 |" in text
    assert "| speed | 216 | 0 |" in text
    assert "| alpha | 72 | 3 |" in text
    assert "| storage | 12 | 3 |" in text
    third = [with_seed(one, 2) for one in rows if one["timing"] == "run1"]
    whole = part(section(rows + third), "Finished experiments")
    counts = re.findall(r"^\| [a-z0-9-]+ \| (\d+) \| (\d+) \|$", whole, re.MULTILINE)
    assert len(counts) == len(STUDIES)
    assert all(wanted == finished for wanted, finished in counts)


def test_verdicts_are_in_the_page() -> None:
    good, bad = section(recovered(ML_NCF)), section(recovered(ML_NCF, {**GOOD, "fru-server": 0.5}))
    assert "FRU is at least as good as Retrain in every setting | paper | **holds** | 2/2" in good
    assert "FRU is at least as good as Retrain in every setting | paper | **does not hold** | 0/2" in bad
    assert "FRU, device, is at least as good as Retrain in every setting | ours | **holds**" in bad
    assert "The accuracy falls as λ grows | paper | **not measured** |" in good


def test_the_page_survives_the_file(tmp_path: Path) -> None:
    rows = [*recovered(ML_NCF, seeds={0: 0.0123456789, 1: 0.02}), *timed(ML_NCF), *timed(STEAM_NCF, seed=1)]
    results = Results(tmp_path / "cells.csv")
    results.append(rows)
    assert page.section(results.frame()) == section(rows)


def test_a_study_without_results_has_no_part() -> None:
    text = section(recovered(ML_NCF))
    assert part(text, STUDIES["alpha"].title) == ""
    assert "alpha.svg" not in text


def test_old_settings_and_fewer_rounds_are_not_mixed_in() -> None:
    old = row(ML_NCF, "retrain", 0.9, seed=1, settings="another")
    short = row(Place("ml-100k", "ncf", 0.1, rounds=20), "retrain", 0.1)
    text = section([*recovered(ML_NCF), old, short])
    assert "| MovieLens-100k, Fed-NCF, 10% | Retrain | 60.0 / 30.0 |" in text


def test_markdown() -> None:
    frame = pl.DataFrame({"a": ["1", None], "b": ["x|y", "z"]})
    assert page.markdown(frame) == "| a | b |\n| --- | --- |\n| 1 | x\\|y |\n| – | z |"


def test_accuracies_stand_beside_the_papers() -> None:
    rows = recovered(ML_NCF) + recovered(ML_NCF_20, {**GOOD, "fru-server": 0.7})
    columns = ["sampled", "full", "the paper"]
    low = cells("table-1", rows, *columns, setting="MovieLens-100k, Fed-NCF, 10%", variant="FRU, paper")
    high = cells("table-1", rows, *columns, setting="MovieLens-100k, Fed-NCF, 20%", variant="FRU, paper")
    assert [*low, *high] == ["62.0 / 31.0", "52.0 / 21.0", "58.4 / 31.3", "70.0 / 35.0", "60.0 / 25.0", "60.3 / 32.4"]
    assert cells("table-1", recovered(ML_NCF), "the paper", variant="FRU, device") == [None]


def test_differences_from_retrain_by_hand() -> None:
    """Ours: 62 - 60 and 31 - 30. The paper's: 58.43 - 57.24 and 31.26 - 31.33."""
    rows, columns = recovered(ML_NCF), ["sampled − Retrain", "full − Retrain", "the paper − Retrain"]
    assert cells("table-1", rows, *columns, variant="FRU, paper") == ["+2.0 / +1.0", "+2.0 / +1.0", "+1.2 / −0.1"]
    fedremove = cells("table-1", rows, *columns, variant="FedRemove")
    assert fedremove == ["−15.0 / −7.5", "−15.0 / −7.5", "−6.2 / −7.2"]
    assert cells("table-1", rows, *columns, variant="Retrain") == [None, None, None]


def test_differences_need_a_retrain() -> None:
    found = cells("table-1", recovered(ML_NCF, {"attacked": 0.5}), "sampled", "sampled − Retrain", variant="Attacked")
    assert found == ["50.0 / 25.0", None]


def test_spread_over_seeds_and_single_seeds() -> None:
    rows = recovered(ML_NCF, {"retrain": 0.6}, seeds={0: -0.01, 1: 0.01}) + recovered(ML_NCF, {"attacked": 0.5})
    assert cells("table-1", rows, "sampled", variant="Retrain") == ["60.0 ± 1.4 / 30.0 ± 0.7"]
    assert cells("table-1", rows, "sampled", variant="Attacked") == ["50.0 / 25.0"]


def test_variants_are_in_their_order() -> None:
    rows = recovered(ML_NCF, {"retrain": 0.6, "attacked": 0.5, "fru-device": 0.6, "continue": 0.5})
    assert table("table-1", rows)["variant"].to_list() == ["Attacked", "Continue", "Retrain", "FRU, device"]


def test_seconds_and_ratios() -> None:
    rows = timed(ML_NCF) + timed(ML_NCF, {"retrain": 100.0, "fru-device": 12.5}, seed=1)
    assert cells("speed", rows, "seconds", "speed-up", variant="FRU, device") == ["11.2 ± 1.8 s", "9.0 ± 1.4x"]
    assert cells("speed", rows, "seconds", "speed-up", variant="FedRemove") == ["5.0 s", "20.0x"]
    assert "Attacked" not in table("speed", rows)["variant"].to_list()


def test_alpha_has_a_row_for_each_selection() -> None:
    place = ML_NCF.setting()
    rows = [
        result(Experiment(place, *with_alpha(0.3, "importance")), 0.61),
        result(Experiment(place, *with_alpha(0.3, "random")), 0.59),
        result(Experiment(place, *with_alpha(0.5, "importance")), 0.62),
        row(ML_NCF, "retrain", 0.6),
    ]
    found = table("alpha", rows).filter(pl.col("variant") != "Retrain").select("α", "selection", "sampled").rows()
    assert found == [
        (0.3, "importance", "61.0 / 30.5"),
        (0.3, "random", "59.0 / 29.5"),
        (0.5, "importance", "62.0 / 31.0"),
    ]
    assert cells("alpha", rows, "sampled", variant="Retrain") == ["60.0 / 30.0"]


def test_beta_has_a_row_for_each_sampler() -> None:
    plain = Place("ml-100k", "ncf", 0.0)
    rows = [row(plain, "attacked", 0.6, sampler="user", beta=0.25)]
    assert cells("beta", rows, "setting", "β", "sampled", sampler="user") == [
        "MovieLens-100k, Fed-NCF",
        0.25,
        "60.0 / 30.0",
    ]


def test_lambda_shows_the_papers_accuracy_and_time() -> None:
    rows = [
        row(ML_NCF, "retrain", 0.6, seconds=100.0, timing="one"),
        row(ML_NCF, "fru-server", 0.62, seconds=20.0, timing="one"),
        row(ML_NCF, "fru-server", 0.61, replay_fraction=0.5),
    ]
    columns = ["λ", "sampled", "full", "seconds", "speed-up", "the paper", "the paper's seconds"]
    first, second = table("lambda", rows).filter(variant="FRU, paper").select(columns).rows()
    assert first == (0.1, "62.0 / 31.0", "52.0 / 21.0", "20.0 s", "5.0x", "58.4", "396.9 s")
    assert second == (0.5, "61.0 / 30.5", "51.0 / 20.5", None, None, "56.1", "1675.5 s")


def test_storage_shows_sizes_and_shares() -> None:
    rows = [
        row(STEAM_NCF, "fru-server", 0.6),
        row(STEAM_NCF, "fru-device", 0.6, log_rows_bytes=920.0, log_bytes=3600.0),
    ]
    columns = ["item rows", "the paper's formula", "other tensors", "log", "item rows / item table", "log / item table"]
    server = cells("storage", rows, *columns, "the paper's log", variant="FRU, paper")
    assert server == ["45.0 kB", "45.0 kB", "5.0 kB", "60.0 kB", "11.2%", "15.0%", "17.5% / 900 rows"]
    device = cells("storage", rows, *columns, "the paper's log", variant="FRU, device")
    assert device == ["920 B", None, "5.0 kB", "3.6 kB", "0.23%", "0.90%", None]


def test_logs_are_shown_once_for_each_data_set_and_model() -> None:
    found = table("storage", recovered(ML_NCF_20) + recovered(ML_NCF) + recovered(ML_GCN))["setting"].to_list()
    assert found.count("MovieLens-100k, Fed-NCF, 10%") == found.count("MovieLens-100k, Fed-LightGCN, 10%") == 3
    assert len(found) == 6


@pytest.mark.parametrize(("value", "shown"), [(1.25, "+1.2"), (-0.31, "−0.3"), (0.04, "0.0"), (-0.04, "0.0")])
def test_signs(value: float, shown: str) -> None:
    assert page.format_difference(value) == shown


def test_figures_of_the_paper_are_rounded_as_in_print() -> None:
    """The paper prints an NDCG of 25.15 for this one."""
    assert cells("table-1", recovered(ML_NCF_20), "the paper", variant="Attacked") == ["49.0 / 25.2"]


def test_units_come_last() -> None:
    assert page.format_mean(2.0, 0.5, unit=" s") == "2.0 ± 0.5 s"
    assert page.format_mean(2.0, None, unit="x") == "2.0x"


@pytest.mark.parametrize("rows", [[], [row(ML_NCF, "retrain", 0.6, settings="another")]])
def test_a_page_needs_results(rows: list[Row]) -> None:
    with pytest.raises(ConfigError, match="fedforget reproduce table-1"):
        section(rows)


def test_insert_replaces_only_what_stands_between_the_markers() -> None:
    once = page.insert(PAGE, "new\n")
    assert once == f"# Results\n\nBefore.\n\n{page.BEGIN}\nnew\n{page.END}\n\nAfter.\n"
    assert page.insert(once, "new\n") == once


@pytest.mark.parametrize("text", ["# No markers\n", f"{page.BEGIN}\nno end\n", f"{page.END}\n{page.BEGIN}\n"])
def test_missing_markers_are_named_with_what_to_do(text: str) -> None:
    with pytest.raises(RunError) as caught:
        page.insert(text, "new\n")
    assert "is not in the page" in caught.value.problem
    assert page.BEGIN in caught.value.hint
    assert page.END in caught.value.hint


def test_write(tmp_path: Path) -> None:
    into, folder = tmp_path / "docs" / "results.md", tmp_path / "docs" / "reproduction"
    into.parent.mkdir()
    into.write_text(PAGE)
    rows = as_frame(recovered(ML_NCF, {"retrain": 0.6}))
    assert page.write(folder, rows, into) == folder / "page.md"
    assert sorted(path.name for path in folder.iterdir()) == ["page.md", "table-1.png", "table-1.svg"]
    assert into.read_text() == page.insert(PAGE, page.section(rows))
    assert (folder / "page.md").read_text() == page.section(rows, "")
    for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", into.read_text()):
        assert (into.parent / target).exists()
    for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", (folder / "page.md").read_text()):
        assert (folder / target).exists()


def test_nothing_is_written_if_the_page_has_no_place(tmp_path: Path) -> None:
    into = tmp_path / "results.md"
    into.write_text("# No markers\n")
    with pytest.raises(RunError):
        page.write(tmp_path / "out", as_frame(recovered(ML_NCF)), into)
    with pytest.raises(RunError, match="Cannot read"):
        page.write(tmp_path / "out", as_frame(recovered(ML_NCF)), tmp_path / "missing.md")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("into", "folder", "prefix"),
    [
        ("docs/results.md", "docs/reproduction", "reproduction/"),
        ("README.md", "docs/reproduction", "docs/reproduction/"),
        ("docs/results.md", "runs/x", "../runs/x/"),
        ("out/page.md", "out", ""),
    ],
)
def test_links_lead_from_the_page_to_the_folder(tmp_path: Path, into: str, folder: str, prefix: str) -> None:
    assert page.relative_prefix(tmp_path / into, tmp_path / folder) == prefix


def test_the_published_section_is_that_of_the_published_results() -> None:
    frame = Results(DOCS / "reproduction" / "cells.csv").frame()
    text = (DOCS / "results.md").read_text()
    assert page.insert(text, page.section(frame)) == text, "Run: fedforget reproduce page, with --into"
