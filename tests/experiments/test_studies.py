"""Every study asks for the experiments of the paper, and shares them with the others where they are the same."""

from __future__ import annotations

from itertools import product

import pytest

import fedforget as ff
from fedforget.experiments.experiment import Experiment, Setting
from fedforget.experiments.studies import ALPHAS, BOTH, LAMBDAS, PRESETS, STUDIES, Choices, select_studies

PAPER = PRESETS["paper"]


def experiments(study: str, choices: Choices = PAPER) -> set[Experiment]:
    listed = STUDIES[study].experiments(choices)
    assert len(set(listed)) == len(listed), "an experiment is listed twice"
    return set(listed)


def test_table_1_has_every_variant_in_all_eight_columns() -> None:
    found = experiments("table-1")
    assert len(found) == 8 * 3 * 9
    columns = {(c.setting.dataset, c.setting.model, c.setting.malicious) for c in found}
    assert columns == set(product(("ml-100k", "steam-200k"), ("lightgcn", "ncf"), (0.1, 0.2)))
    assert experiments("speed") == found
    assert [name for name, study in STUDIES.items() if study.timed] == ["speed", "lambda"]


def test_the_sweeps_are_on_movielens_with_10_percent_unless_chosen_otherwise() -> None:
    for study in ("alpha", "lambda"):
        assert {(c.setting.dataset, c.setting.malicious) for c in experiments(study)} == {("ml-100k", 0.1)}
        chosen = experiments(study, Choices(datasets=BOTH[1:], malicious=[0.2]))
        assert {(c.setting.dataset, c.setting.malicious) for c in chosen} == {("steam-200k", 0.2)}


def test_the_sweeps_share_experiments_with_table_1() -> None:
    one = Choices(models=["ncf"], seeds=[0])
    shared = {c.key for c in experiments("alpha", one) & experiments("table-1", one)}
    assert shared == {"retrain", "fru-server", "fru-all"}
    shared = {c.key for c in experiments("lambda", one) & experiments("table-1", one)}
    assert shared == {"retrain", "fru-server", "fru-device", "fru-logged"}
    assert Experiment(Setting("ml-100k", "ncf", 0.1, 0), "fru-server", 0.3, "random") in experiments("alpha", one)
    assert experiments("storage", one) <= experiments("table-1", one)


def test_the_sweeps_resolve_to_what_they_say() -> None:
    one = Choices(models=["lightgcn"], seeds=[0])
    logs = [c.resolve().log for c in experiments("alpha", one) if c.variant != "retrain"]
    kept = {(log.selection, log.share) for log in logs}
    assert kept == {*product(("importance", "random"), ALPHAS[:-1]), ("all", 1.0)}
    speeds = [c.resolve().method for c in experiments("lambda", one) if c.variant == "fru-device"]
    assert {method.replay_fraction for method in speeds if isinstance(method, ff.FRU)} == set(LAMBDAS)


def test_beta_tries_every_sampler_without_an_attack() -> None:
    found = experiments("beta", Choices(models=["lightgcn"], seeds=[0]))
    samplers = {(c.setting.sampler, c.setting.beta) for c in found}
    assert samplers == set(product(("random", "user", "item", "mixed"), (0.25, 0.5, 1.0)))
    assert {(c.setting.malicious, c.variant) for c in found} == {(0.0, "attacked")}


def test_keys_tell_experiments_apart() -> None:
    everything = set().union(*(experiments(name) for name in STUDIES))
    assert len({(c.setting.key, c.key) for c in everything}) == len(everything)


def test_quick_is_small_and_unknown_names_are_refused() -> None:
    assert len({c.setting for c in experiments("table-1", PRESETS["quick"])}) == 1
    assert list(select_studies("all")) == list(STUDIES)
    with pytest.raises(ff.ConfigError, match="Did you mean 'lambda'"):
        select_studies("lamda")
