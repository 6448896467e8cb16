"""Every study asks for the cells of the paper, and shares them with the others where they are the same."""

from __future__ import annotations

from itertools import product

import pytest

import fedforget as ff
from fedforget.reproduction.cell import Cell, Setting, Treatment
from fedforget.reproduction.studies import ALPHAS, BOTH, LAMBDAS, PRESETS, STUDIES, Choices, chosen_studies

PAPER = PRESETS["paper"]


def cells(study: str, choices: Choices = PAPER) -> set[Cell]:
    listed = STUDIES[study].cells(choices)
    assert len(set(listed)) == len(listed), "a cell is listed twice"
    return set(listed)


def test_table_1_has_every_way_in_all_eight_columns() -> None:
    found = cells("table-1")
    assert len(found) == 8 * 3 * 9
    columns = {(c.setting.dataset, c.setting.model, c.setting.malicious) for c in found}
    assert columns == set(product(("ml-100k", "steam-200k"), ("lightgcn", "ncf"), (0.1, 0.2)))
    assert cells("speed") == found
    assert [name for name, study in STUDIES.items() if study.timed] == ["speed", "lambda"]


def test_the_sweeps_are_on_movielens_with_10_percent_unless_chosen_otherwise() -> None:
    for study in ("alpha", "lambda"):
        assert {(c.setting.dataset, c.setting.malicious) for c in cells(study)} == {("ml-100k", 0.1)}
        chosen = cells(study, Choices(datasets=BOTH[1:], malicious=[0.2]))
        assert {(c.setting.dataset, c.setting.malicious) for c in chosen} == {("steam-200k", 0.2)}


def test_the_sweeps_share_cells_with_table_1() -> None:
    one = Choices(models=["ncf"], seeds=[0])
    shared = {c.treatment for c in cells("alpha", one) & cells("table-1", one)}
    assert shared == {Treatment("retrain"), Treatment("fru-server"), Treatment("fru-all")}
    shared = {c.treatment for c in cells("lambda", one) & cells("table-1", one)}
    assert shared == {Treatment(way) for way in ("retrain", "fru-server", "fru-device", "fru-logged")}
    assert Cell(Setting("ml-100k", "ncf", 0.1, 0), Treatment("fru-server", 0.3, "random")) in cells("alpha", one)
    assert cells("storage", one) <= cells("table-1", one)


def test_the_sweeps_resolve_to_what_they_say() -> None:
    one = Choices(models=["lightgcn"], seeds=[0])
    logs = [c.treatment.resolve().log for c in cells("alpha", one) if c.treatment.way != "retrain"]
    kept = {(log.selection, log.share) for log in logs}
    assert kept == {*product(("importance", "random"), ALPHAS[:-1]), ("all", 1.0)}
    speeds = [c.treatment.resolve().method for c in cells("lambda", one) if c.treatment.way == "fru-device"]
    assert {method.speedup for method in speeds if isinstance(method, ff.FRU)} == set(LAMBDAS)


def test_beta_tries_every_sampler_without_an_attack() -> None:
    found = cells("beta", Choices(models=["lightgcn"], seeds=[0]))
    samplers = {(c.setting.sampler, c.setting.beta) for c in found}
    assert samplers == set(product(("random", "user", "item", "mixed"), (0.25, 0.5, 1.0)))
    assert {(c.setting.malicious, c.treatment.way) for c in found} == {(0.0, "attacked")}


def test_keys_tell_cells_apart() -> None:
    everything = set().union(*(cells(name) for name in STUDIES))
    assert len({(c.setting.key, c.treatment.key) for c in everything}) == len(everything)


def test_quick_is_small_and_unknown_names_are_refused() -> None:
    assert len({c.setting for c in cells("table-1", PRESETS["quick"])}) == 1
    assert list(chosen_studies("all")) == list(STUDIES)
    with pytest.raises(ff.ConfigError, match="Did you mean 'lambda'"):
        chosen_studies("lamda")
