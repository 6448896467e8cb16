"""RunConfig: it survives its ``config.toml``, differences are named, and bad files are refused with a reason."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.errors import ConfigError, MissingComponentError, RunError
from fedforget.models import IALS, MF, MODELS, NCF, LightGCN
from fedforget.protocol.attack import Attack
from fedforget.protocol.encoding import ENCODINGS
from fedforget.protocol.log import POLICIES, SELECTIONS, STORES, Log
from fedforget.protocol.sampler import SAMPLERS
from fedforget.protocol.training import LocalTraining
from fedforget.server.aggregation import AGGREGATIONS
from fedforget.server.config_file import FORMAT, read_config
from fedforget.server.optimiser import SGD, Adagrad, Adam
from fedforget.server.run_config import RunConfig, comparable, first_difference
from fedforget.server.server_config import ServerConfig
from tests.samplers import make_sampler

SIZES = st.integers(1, 300)
SHARES = st.floats(0, 1, exclude_min=True, exclude_max=True)
BASE = {"dim": SIZES, "init_std": SHARES, "negatives": SIZES, "loss": st.sampled_from(MF.losses)}
ANY_MODEL = (
    st.builds(MF, **BASE)
    | st.builds(LightGCN, **BASE)
    | st.builds(NCF, **BASE, hidden=st.tuples(SIZES, SIZES, SIZES))
    | st.builds(IALS, dim=SIZES, init_std=SHARES, alpha=SHARES, reg=SHARES)
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
USERS = st.integers(0, 2**63 - 1) | TEXT
OPTIMISERS = (
    st.builds(SGD, SHARES, SIZES, SHARES, momentum=SHARES)
    | st.builds(Adam, SHARES, SIZES, SHARES, beta1=SHARES, beta2=SHARES)
    | st.builds(Adagrad, SHARES)
)


def config_of(model, training, server, **others) -> RunConfig:
    """Settings that go together."""
    if model.closed_form:
        server = replace(server, aggregation="mean")
    training = replace(training, refit=training.refit and model.dot_product)
    return RunConfig(model=model, training=training, server=server, **others)


ANY = st.builds(
    config_of,
    model=ANY_MODEL,
    sampler=st.builds(make_sampler, st.sampled_from(list(SAMPLERS)), st.integers(1, 100) | SHARES, SHARES),
    training=st.builds(LocalTraining, SIZES, SIZES, SHARES, st.booleans()),
    server=st.builds(ServerConfig, SHARES, st.sampled_from(list(AGGREGATIONS)), SIZES, OPTIMISERS),
    seed=st.integers(0, 2**63 - 1),
    data=st.dictionaries(TEXT, VALUES, max_size=4),
    joins=st.dictionaries(USERS, st.integers(1, 500), max_size=4),
    log=st.builds(
        Log,
        st.sampled_from(list(ENCODINGS)),
        st.sampled_from(SELECTIONS),
        SHARES,
        st.integers(0, 10**9),
        st.sampled_from(POLICIES),
        st.sampled_from(STORES),
    ),
    attack=st.none() | st.builds(Attack, st.lists(USERS, min_size=1, max_size=3), SHARES),
    id=st.text("0123456789abcdef", min_size=16, max_size=16),
    trajectory=st.integers(1, 99),
)


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "config.toml"
    RunConfig(model=NCF(dim=8), data={"digest": "abc"}, joins={5: 3}).save(path)
    return path


@given(ANY)
def test_settings_survive_their_file(settings):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        settings.save(path)
        again = RunConfig.load(path)
        found = read_config(path)
    assert again == settings
    assert first_difference(found, settings.to_dict()) is None


def test_numbers_as_they_come_out_of_an_array_are_written_as_numbers(tmp_path):
    settings = RunConfig(model=MF(), seed=np.int64(3), joins={np.int64(5): np.int64(2)}, id="a")
    settings.save(tmp_path / "config.toml")
    assert RunConfig.load(tmp_path / "config.toml") == RunConfig(model=MF(), seed=3, joins={5: 2}, id="a")


@given(ANY, ANY)
def test_settings_without_a_difference_are_equal_and_the_other_way_round(one, other):
    assert (first_difference(one.to_dict(), other.to_dict()) is None) == (one.to_dict() == other.to_dict())
    assert first_difference(one.to_dict(), one.to_dict()) is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"seed": 4}, "seed is 0 there, 4 here"),
        ({"model": MF(dim=9)}, "model.dim is 8 there, 9 here"),
        ({"model": LightGCN(dim=8)}, "model.name is 'mf' there, 'lightgcn' here"),
        ({"sampler": make_sampler(R=10.5)}, "sampler.R is 75.0 there, 10.5 here"),
        ({"training": LocalTraining(lr=0.25)}, "training.lr is 0.001 there, 0.25 here"),
        ({"server": ServerConfig(aggregation="touched")}, "server.aggregation is 'mean' there, 'touched' here"),
        ({"data": {"digest": "abc"}}, "data.digest is None there, 'abc' here"),
        ({"joins": {5: 3}}, "joins is [] there, [{'user': 5, 'round': 3}] here"),
        ({"log": Log("int8")}, "log.encoding is 'lengths' there, 'int8' here"),
        ({"attack": Attack([5])}, "attack is None there, {'users': [5], 'gamma': 4.0} here"),
    ],
)
def test_the_first_difference_has_a_name_and_both_values(change, expected):
    settings = RunConfig(model=MF(dim=8))
    assert first_difference(settings.to_dict(), replace(settings, **change).to_dict()) == expected


def test_a_difference_in_a_table_that_only_one_side_has_is_found():
    assert first_difference({"a": {"b": 1}}, {}) == "a is {'b': 1} there, None here"
    assert first_difference({}, {"a": 2}) == "a is None there, 2 here"


def test_a_difference_deep_down_is_named_with_its_whole_path():
    old, new = ({"data": {"options": {"min_items": n}, "name": "steam"}} for n in (5, 6))
    assert first_difference(old, new) == "data.options.min_items is 5 there, 6 here"


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(ConfigError, match=f"seed is {seed}"):
        RunConfig(model=MF(), seed=seed)


def test_a_folder_without_a_config_is_no_run_folder(tmp_path):
    with pytest.raises(RunError, match=r"is not a run folder: it has no config\.toml(.|\n)*fedforget train"):
        read_config(tmp_path / "config.toml")


@pytest.mark.parametrize("content", [b"this is = = not toml", b"\xff\xfe\x00", b"seed = 1\nseed = 2", b"format = [1"])
def test_a_garbled_config_is_refused_by_name(config, content):
    config.write_bytes(content)
    with pytest.raises(RunError, match=r"config\.toml cannot be read"):
        RunConfig.load(config)


@pytest.mark.parametrize(
    ("content", "found"), [("format = 1", "1"), ("format = 2", "2"), ("", "None"), ("format = 'one'", "'one'")]
)
def test_a_config_of_another_format_is_refused_with_both_numbers(config, content, found):
    config.write_text(content)
    with pytest.raises(RunError, match=rf"config\.toml has format {found}; .* reads format {FORMAT}"):
        RunConfig.load(config)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("seed = 0\n", ""),
        ("seed = 0\n", 'seed = "0"\n'),
        ("id = ", "was_id = "),
        ("trajectory = 1\n", ""),
        ("[log]", "[logs]"),
        ("[sampler]", "[samplers]"),
        ("beta = 0.5", "gamma = 0.5"),
        ("[server]\n", "server = 3\n[other]\n"),
        ('name = "ncf"\n', ""),
        ("[model]\n", 'model = "ncf"\n[other]\n'),
        ("user = 5,", "user = [5],"),
        ("user = 5, ", ""),
        ("hidden = [", "hidden = [[1],"),
    ],
)
def test_a_config_with_a_part_missing_or_wrong_is_refused_and_not_half_understood(config, old, new):
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new, 1))
    with pytest.raises((RunError, ConfigError)):
        RunConfig.load(config)


def test_a_value_that_makes_no_sense_is_named(config):
    config.write_text(config.read_text().replace("beta = 0.5", "beta = 5.5"))
    with pytest.raises(ConfigError, match=r"beta is 5\.5"):
        RunConfig.load(config)


def test_a_model_that_is_not_built_in_must_be_registered(config, monkeypatch):
    monkeypatch.setattr(MODELS, "_known", dict(MODELS._known))

    class Own(MF):
        name = "own"

    RunConfig(model=Own(dim=3)).save(config)
    with pytest.raises(MissingComponentError, match=r"Unknown model 'own'(.|\n)*entry point group fedforget\.models"):
        RunConfig.load(config)
    MODELS.register(Own)
    assert RunConfig.load(config).model == Own(dim=3)


def test_a_config_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(RunError, match=r"Cannot write .*config\.toml"):
        RunConfig(model=MF()).save(tmp_path / "missing" / "config.toml")


def test_settings_left_out_of_a_table_have_their_defaults(config):
    values = read_config(config)
    del values["server"]["optimiser"], values["training"]["refit"]
    again = RunConfig.from_dict(values)
    assert again.server.optimiser == SGD()
    assert not again.training.refit


def test_id_trajectory_and_the_place_of_the_data_may_differ_between_visits_and_nothing_else(config):
    values = read_config(config)
    moved = {**values, "id": "ff", "trajectory": 7, "data": {**values["data"], "path": "elsewhere"}}
    assert first_difference(comparable(values), comparable(moved)) is None
    here, there = ({**values, "engine": "flower", "data": {"digest": digest}} for digest in ("abc", "abd"))
    assert first_difference(comparable(here), comparable(there)) == "data.digest is 'abc' there, 'abd' here"
    assert first_difference(comparable(values), comparable({**moved, "seed": 1})) == "seed is 0 there, 1 here"
