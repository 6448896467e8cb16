"""The page follows from the cells alone, and goes where its markers are."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fedforget.errors import ConfigError, RunError
from fedforget.reproduction import page
from fedforget.reproduction.cell import Treatment
from fedforget.reproduction.ledger import Ledger
from fedforget.reproduction.row import Row
from fedforget.reproduction.studies import STUDIES
from fedforget.reproduction.summary import Place
from tests.reproduction.made import GOOD, ML_GCN, ML_NCF, STEAM_NCF, everything, recovered, row, timed

DOCS = Path(__file__).parents[2] / "docs"
PAGE = f"# Results\n\nBefore.\n\n{page.BEGIN}\nold\n{page.END}\n\nAfter.\n"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return everything()


def part(text: str, title: str) -> str:
    """A subsection."""
    after = text.partition(f"### {title}\n")[2]
    return re.split(r"^### ", after, maxsplit=1, flags=re.MULTILINE)[0]


def test_every_study_has_its_part_with_table_figure_and_command(rows: list[Row]) -> None:
    text = page.section(rows)
    assert text.startswith("## Reproduction of the paper\n")
    for name, study in STUDIES.items():
        found = part(text, study.title)
        assert f"![{study.title}](reproduction/{name}.svg)" in found
        assert f"\nfedforget reproduce {name}" in found
        assert "\n| " in found


def test_the_page_says_where_it_comes_from(rows: list[Row]) -> None:
    text = page.section(rows)
    assert "[cells.csv](reproduction/cells.csv)" in text
    assert "seeds 0, 1, 2; 200 rounds; fedforget 0.0; python 3; made up; finished 2026-01-02" in text
    assert "If all checks hold" in text
    assert "The typical standard deviations, in points: HR 0.1" in text


def test_several_versions_and_days_are_all_named() -> None:
    one, other = recovered(ML_NCF, {"retrain": 0.6, "attacked": 0.5})
    later = replace(other, result=replace(other.result, version="0.1", finished="2026-02-03T00:00:00+00:00"))
    text = page.section([one, later])
    assert "fedforget 0.0 and 0.1" in text
    assert "finished 2026-01-02 to 2026-02-03" in text


def test_verdicts_are_in_the_page() -> None:
    good, bad = page.section(recovered(ML_NCF)), page.section(recovered(ML_NCF, {**GOOD, "fru-server": 0.5}))
    assert "FRU is at least as good as Retrain in every setting | **holds** | 2 of 2" in good
    assert "FRU is at least as good as Retrain in every setting | **does not hold here** | 0 of 2" in bad
    assert "Ours: FRU, device, is at least as good as Retrain in every setting | **holds**" in bad
    assert "The accuracy falls as λ grows | **not measured** | None of its cells is finished." in good


def test_the_same_rows_give_the_same_page(rows: list[Row]) -> None:
    assert page.section(rows) == page.section(list(rows))


def test_the_page_survives_the_ledger(tmp_path: Path) -> None:
    rows = [*recovered(ML_NCF, seeds={0: 0.0123456789, 1: 0.02}), *timed(ML_NCF), *timed(STEAM_NCF, seed=1)]
    ledger = Ledger(tmp_path / "cells.csv")
    ledger.add(rows)
    assert page.section(ledger.rows()) == page.section(rows)


def test_partial_ledgers_say_what_is_missing() -> None:
    missing = part(page.section([*recovered(ML_NCF), row(STEAM_NCF, "retrain", 0.6)]), "What was not measured")
    assert "- table-1: MovieLens-100k, Fed-NCF, 20%; MovieLens-100k, Fed-LightGCN; " in missing
    assert (
        "- table-1, Steam-200k, Fed-NCF, 10%: Attacked; Continue; FedRemove; Retrain, steps; FRU, w/o IUS;" in missing
    )
    assert "- speed: all of it." in missing
    assert "- alpha, MovieLens-100k, Fed-NCF, 10%: FRU, paper, α = 0.1, importance; " in missing
    assert "- table-1, 1 of 3 seeds: MovieLens-100k, Fed-NCF, 10%; Steam-200k, Fed-NCF, 10%." in missing


def test_a_study_without_cells_has_no_part() -> None:
    text = page.section(recovered(ML_NCF))
    assert part(text, STUDIES["alpha"].title) == ""
    assert "alpha.svg" not in text
    assert "fedforget reproduce alpha" not in text


def test_single_seeds_are_said_to_have_no_spread() -> None:
    assert "No cell has several seeds yet" in page.section(recovered(ML_NCF))


def test_nothing_missing_is_said_so() -> None:
    rows = everything()
    times = [one for one in rows if one.result.timing and one.cell.treatment == Treatment(one.cell.treatment.way)]
    third = [
        replace(one, cell=replace(one.cell, setting=replace(one.cell.setting, seed=2))) for one in times
        if one.cell.setting.seed == 1
    ]  # fmt: skip
    third = [replace(one, result=replace(one.result, settings=one.cell.fingerprint())) for one in third]
    assert "Nothing of the paper's evaluation is missing." in page.section(rows + third)


def test_old_settings_and_fewer_rounds_are_not_mixed_in() -> None:
    old = row(ML_NCF, "retrain", 0.9, seed=1, settings="another")
    short = row(Place("ml-100k", "ncf", 0.1, rounds=20), "retrain", 0.1)
    text = page.section([*recovered(ML_NCF), old, short])
    assert "- 1 results were measured under other settings than today's and are not shown." in text
    assert "- 1 results with fewer rounds are not shown." in text
    assert "| Retrain | 60.0 / 30.0 |" in text


@pytest.mark.parametrize("rows", [[], [row(ML_NCF, "retrain", 0.6, settings="another")]])
def test_a_page_needs_cells(rows: list[Row]) -> None:
    with pytest.raises(ConfigError, match="fedforget reproduce table-1"):
        page.section(rows)


def commands(rows: list[Row]) -> list[str]:
    return page.section(rows).split("```")[1].strip().splitlines()


def test_commands_name_what_was_chosen(rows: list[Row]) -> None:
    assert commands(rows) == [
        "fedforget reproduce table-1", "fedforget reproduce speed --seeds 2", "fedforget reproduce alpha",
        "fedforget reproduce beta", "fedforget reproduce lambda", "fedforget reproduce storage",
    ]  # fmt: skip
    quick = Place("ml-100k", "lightgcn", 0.2, rounds=20)
    options = "--datasets ml-100k --models lightgcn --malicious 0.2"
    assert commands(recovered(quick)) == [
        f"fedforget reproduce table-1 {options} --seeds 1 --rounds 20",
        f"fedforget reproduce storage {options} --rounds 20",
    ]


def test_data_sets_that_differ_have_commands_of_their_own() -> None:
    seeds = {seed: 0.001 * seed for seed in range(3)}
    found = commands(timed(ML_GCN, {"continue": 1.0}) + recovered(ML_NCF, {"retrain": 0.6}, seeds=seeds))
    assert found == [
        "fedforget reproduce table-1 --datasets ml-100k --malicious 0.1",
        "fedforget reproduce speed --datasets ml-100k --models lightgcn --malicious 0.1 --seeds 1",
    ]
    both = commands(recovered(ML_NCF, {"retrain": 0.6}, seeds=seeds) + recovered(STEAM_NCF, {"retrain": 0.6}))
    assert both == [
        "fedforget reproduce table-1 --datasets ml-100k --models ncf --malicious 0.1",
        "fedforget reproduce table-1 --datasets steam-200k --models ncf --malicious 0.1 --seeds 1",
    ]


def test_insert_replaces_only_what_stands_between_the_markers() -> None:
    once = page.insert(PAGE, "new\n")
    assert once == f"# Results\n\nBefore.\n\n{page.BEGIN}\nnew\n{page.END}\n\nAfter.\n"
    assert page.insert(once, "new\n") == once


@pytest.mark.parametrize("text", ["# No markers\n", f"{page.BEGIN}\nno end\n", f"{page.END}\n{page.BEGIN}\n"])
def test_missing_markers_are_named_with_what_to_do(text: str) -> None:
    with pytest.raises(RunError) as caught:
        page.insert(text, "new\n")
    assert "is not in it" in caught.value.problem
    assert page.BEGIN in caught.value.hint
    assert page.END in caught.value.hint


def test_write(tmp_path: Path) -> None:
    into, folder = tmp_path / "docs" / "results.md", tmp_path / "docs" / "reproduction"
    into.parent.mkdir()
    into.write_text(PAGE)
    rows = recovered(ML_NCF, {"retrain": 0.6})
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
        page.write(tmp_path / "out", recovered(ML_NCF), into)
    with pytest.raises(RunError, match="Cannot read"):
        page.write(tmp_path / "out", recovered(ML_NCF), tmp_path / "missing.md")
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
    assert page.leads(tmp_path / into, tmp_path / folder) == prefix


def test_the_published_section_is_that_of_the_published_cells() -> None:
    ledger = Ledger(DOCS / "reproduction" / "cells.csv")
    if not ledger.path.exists():
        pytest.skip("docs/reproduction/cells.csv does not exist yet: no cells are published")
    text = (DOCS / "results.md").read_text()
    assert page.insert(text, page.section(ledger.rows())) == text, "Run: fedforget reproduce page, with --into"
