"""Presets: what they set, what they leave to the user, and that the default learns where the mean does not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import fedforget as ff
from fedforget.evaluation import evaluate
from fedforget.runtime.workers import Workers
from fedforget.server.presets import PRESETS, configure
from tests.cli.conftest import Shell
from tests.samplers import make_sampler

SPARSE = ff.synthetic(users=500, items=600, mean_items=9, tastes=8, seed=1)
TRAIN, TEST = SPARSE.split(0.2, seed=0)


@pytest.mark.parametrize("model", [ff.LightGCN(), ff.MF(), ff.NCF()], ids=lambda model: model.name)
def test_the_papers_recipe_is_the_papers(model: ff.Recommender) -> None:
    paper = configure(model, "paper")
    assert paper.model == type(model)(init_std=0.1)
    assert paper.sampler == make_sampler("mixed", 75.0, 0.5)
    assert paper.training == ff.LocalTraining(20, 64, 0.001, refit=False)
    assert paper.server == ff.ServerConfig(0.1, "mean", 1, ff.SGD(1.0))


def test_a_preset_leaves_what_the_model_sets_itself() -> None:
    assert configure(ff.MF(init_std=0.3, dim=8), "paper").model == ff.MF(init_std=0.3, dim=8)
    assert configure(ff.MF(init_std=0.3)).model == ff.MF(init_std=0.3)


def test_what_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ff.ConfigError, match=r"'papre'(.|\n)*mean 'paper'"):
        ff.Federation(TRAIN, ff.MF(dim=4), preset="papre")
    with pytest.raises(ff.ConfigError, match="no recipe for ials"):
        ff.Federation(TRAIN, preset="paper")


@dataclass(frozen=True)
class Shifted(ff.NCF):
    """A model from outside, with parts that the presets know nothing about."""

    name: ClassVar[str] = "shifted"


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_trains_a_model_from_outside(preset: str) -> None:
    fed = ff.Federation(TRAIN, Shifted(dim=4, hidden=(8, 8, 4)), preset=preset)
    assert not fed.config.training.refit
    before = fed.public
    assert not np.allclose(fed.fit(rounds=1).public.items, before.items)


def test_settings_that_are_given_take_the_place_of_the_presets() -> None:
    fed = ff.Federation(TRAIN, training=ff.LocalTraining(epochs=1, lr=0.5), server=ff.ServerConfig(0.5))
    assert fed.model == ff.IALS()
    assert fed.config.training.lr == 0.5
    assert fed.config.server == ff.ServerConfig(0.5)
    assert fed.config.sampler == make_sampler()


def accuracy_of_popularity() -> dict[str, float]:
    counts = np.bincount(TRAIN.indices, minlength=TRAIN.n_items).astype(np.float32)
    found = evaluate(lambda _: counts, TRAIN, TEST, ff.Ranking(), Workers(1))
    return {**{f"sampled {k}": v for k, v in found.sampled.items()}, **{f"full {k}": v for k, v in found.full.items()}}


@pytest.mark.parametrize("model", [ff.IALS(), ff.LightGCN(), ff.MF()], ids=lambda model: model.name)
def test_the_default_beats_popularity_on_sparse_data_in_every_metric(model: ff.Recommender) -> None:
    """Where users have seven items of 600 and the paper's mean learns nothing in as many rounds."""
    found = ff.Federation(TRAIN, model).fit(rounds=40).evaluate(TEST)
    popular = accuracy_of_popularity()
    for kind in ("sampled", "full"):
        for name, value in getattr(found, kind).items():
            assert value > 1.1 * popular[f"{kind} {name}"], (kind, name, value, popular)


def test_a_user_who_never_took_part_is_scored_with_a_fitted_vector() -> None:
    late = TRAIN.user_ids.tolist()[:250]
    found = {}
    for refit in (True, False):
        fed = ff.Federation(
            TRAIN, ff.MF(), joins=dict.fromkeys(late, 1000), training=ff.LocalTraining(refit=refit),
            server=configure(ff.MF()).server,
        ).fit(rounds=30)  # fmt: skip
        found[refit] = fed.evaluate(TEST).of(np.array(late)).full["ndcg"]
    assert found[True] > 3 * found[False]


def test_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ff.ConfigError, match=r"refit is set, but ncf(.|\n)*lightgcn"):
        ff.Federation(TRAIN, ff.NCF(), training=ff.LocalTraining(refit=True))
    with pytest.raises(ff.ConfigError, match=r"aggregation is 'root' for ials(.|\n)*'mean'"):
        ff.Federation(TRAIN, server=ff.ServerConfig(aggregation="root"))


class TestCommandLine:
    def test_options_change_the_recipe(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shell = Shell(monkeypatch, capsys)
        data = tmp_path / "plays.csv"
        pairs = zip(*np.nonzero(np.random.default_rng(0).random((20, 30)) < 0.3), strict=True)
        data.write_text("user,item\n" + "\n".join(f"u{user},i{item}" for user, item in pairs))

        def settings(name: str, *options: str) -> ff.Federation:
            shell("train", data, "--rounds", 1, "--out", tmp_path / name, *options)
            return ff.Federation.open(tmp_path / name)

        assert settings("a").model == ff.IALS()
        paper = settings("b", "--model", "mf", "--preset", "paper")
        assert paper.config.server == ff.ServerConfig()
        assert paper.model == ff.MF(init_std=0.1)
        mixed = settings(
            "c", "--model", "mf", "--set", "optimiser=adam", "--set", "optimiser.lr=0.2", "--set", "horizon=7",
            "--set", "refit=false", "--set", "epochs=3", "--set", "sampler=random", "--set", "fraction=0.5",
        ).config  # fmt: skip
        assert mixed.server == ff.ServerConfig(0.5, "root", optimiser=ff.Adam(lr=0.2, horizon=7))
        assert mixed.training == ff.LocalTraining(3, refit=False)
        assert mixed.sampler == make_sampler("random")
