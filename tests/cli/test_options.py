"""The configuration of a run from a file and options."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedforget as ff
from fedforget.cli.options import run_config


def config(
    *assignments: str, file: str | None = None, model: str | None = None, path: Path | None = None
) -> ff.RunConfig:
    if file is not None and path is not None:
        path.write_text(file)
    return run_config(model, None, None, None if file is None else path, list(assignments))


def test_the_config_of_another_run_gives_its_settings_but_not_its_identity(tmp_path: Path) -> None:
    train = ff.synthetic(users=10, items=20, mean_items=5)
    old = ff.Federation(train, "mf", seed=4, path=tmp_path / "run")
    new = run_config(None, None, None, tmp_path / "run" / "config.toml", None)
    assert (new.model, new.seed, new.server) == (old.model, 4, old.config.server)
    assert new.id != old.config.id
    assert "digest" not in new.data


def test_a_model_that_is_named_again_keeps_the_settings_of_the_file(tmp_path: Path) -> None:
    file = '[model]\nname = "lightgcn"\ndim = 32\n'
    assert config(file=file, model="lightgcn", path=tmp_path / "a.toml").model.dim == 32
    assert config(file="[model]\ndim = 32\n", model="mf", path=tmp_path / "a.toml").model == ff.MF(dim=32)
    assert config(file=file, model="mf", path=tmp_path / "a.toml").model == ff.MF()


def test_settings_that_are_stored_only_when_they_are_set_can_be_named_too() -> None:
    server = config("secure=true", "minimum=4").server
    assert (server.secure, server.minimum) == (True, 4)


def test_a_component_that_is_named_again_keeps_its_settings() -> None:
    assert config("optimiser=sgd", model="lightgcn").server.optimiser == ff.SGD(lr=0.3, horizon=100)
    assert config("optimiser.lr=0.1", "optimiser=yogi", model="lightgcn").server.optimiser == ff.Yogi(lr=0.1)
    assert config("optimiser=adam", "optimiser.lr=0.1").server.optimiser.lr == 0.1


@pytest.mark.parametrize(
    ("assignments", "problem"),
    [
        (["refit=False"], r"training\.refit is 'False'"),
        (["epochs=1e1"], r"training\.epochs is 10\.0"),
        (["dim=3.5"], r"dim is 3\.5"),
        (["epoch=10"], r"Unknown setting 'epoch'(.|\n)*Did you mean training\.epochs"),
        (["training.epoch=10"], r"Unknown setting 'training\.epoch'(.|\n)*training\.epochs"),
        (["epochs=10", "epochs.foo=3"], r"training\.epochs is \{'foo': 3\}|epochs is 10, not a table"),
        (["optimiser.speed=3"], r"does not take 'speed'"),
        (["seed=true"], r"seed is True"),
    ],
)
def test_bad_settings_are_named(assignments: list[str], problem: str) -> None:
    with pytest.raises(ff.ConfigError, match=problem):
        config(*assignments, model="lightgcn")


def test_a_model_that_is_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ff.ConfigError):
        config(file="model = 3\n", path=tmp_path / "a.toml")


def test_names_are_enough_from_python() -> None:
    train = ff.synthetic(users=10, items=20, mean_items=5)
    fed = ff.Federation(train, "lightgcn", sampler="user", server={"fraction": 0.5}, training={"epochs": 2})
    assert (fed.config.sampler, fed.config.training) == (ff.UserSampler(), ff.LocalTraining(epochs=2))
    with pytest.raises(ff.ConfigError, match="Unknown setting 'epochs'"):
        ff.Federation(train, fed.config, epochs=3)
