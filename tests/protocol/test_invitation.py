"""The invitation: what a device reads is what the server wrote, or it is told what is wrong."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedforget as ff
from fedforget.errors import ConfigError, DataError, MissingComponentError, RunError
from fedforget.models import Recommender
from fedforget.protocol.encoding import ENCODINGS
from fedforget.protocol.invitation import FORMAT, NAME, Invitation, catalogue_digest
from fedforget.protocol.log import POLICIES, SELECTIONS, STORES
from fedforget.protocol.sampler import SAMPLERS
from fedforget.protocol.terms import Terms
from fedforget.server.run_config import RunConfig
from fedforget.server.service import create_federation
from tests.samplers import make_sampler

FEDERATION = "0123456789abcdef"
SONGS = ["song c", "song a", "song b", "song d"]
MODELS = [
    ff.MF(dim=4),
    ff.MF(dim=8, loss="bpr", negatives=3, init_std=0.05),
    ff.LightGCN(dim=8),
    ff.NCF(dim=8),
    ff.IALS(dim=8, alpha=2.0, reg=3.0),
]

shares = st.floats(0.01, 1.0)
ids = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=20),
    st.lists(st.text(st.characters(codec="utf-8")), unique=True, max_size=20),
)
samplers = st.builds(make_sampler, st.sampled_from(list(SAMPLERS)), shares.map(lambda share: 100 * share), shares)
logs = st.builds(
    ff.Log,
    st.sampled_from(list(ENCODINGS)),
    st.sampled_from(SELECTIONS),
    shares,
    st.integers(0, 2**40),
    st.sampled_from(POLICIES),
    st.sampled_from(STORES),
)
trainings = st.builds(ff.LocalTraining, st.integers(1, 100), st.integers(1, 1000), st.floats(1e-6, 0.9))


def terms_of(model: Recommender = MODELS[0], n_items: int = len(SONGS)) -> Terms:
    return Terms(federation=FEDERATION, n_items=n_items, model=model, seed=7)


@pytest.fixture
def path(tmp_path) -> Path:
    Invitation(terms_of(), SONGS).save(tmp_path / "invitation.json")
    return tmp_path / "invitation.json"


def change(path: Path, **changes: object) -> None:
    """Change an invitation, as another version might have written it."""
    values = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    path.write_text(json.dumps({name: value for name, value in values.items() if name != "check"}), encoding="utf-8")


# What goes through a file


@given(ids, st.sampled_from(MODELS), samplers, trainings, logs, st.integers(0, 2**63 - 1))
def test_an_invitation_comes_back_from_a_file_as_it_was(items, model, sampler, training, log, seed):
    terms = Terms(
        federation=FEDERATION, n_items=len(items), model=model, sampler=sampler, training=training, log=log, seed=seed
    )
    invitation = Invitation(terms, items)
    with tempfile.TemporaryDirectory() as folder:
        invitation.save(Path(folder) / "invitation.json")
        assert Invitation.load(Path(folder) / "invitation.json") == invitation


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.name}-{model.loss}")
def test_the_terms_of_every_model_come_back_from_the_text_on_the_device(model):
    back = Terms.from_dict(json.loads(terms_of(model).to_json()))
    assert back == terms_of(model)
    assert type(back.model) is type(model)
    assert back.model.dense_layout == model.dense_layout


def test_every_built_in_model_is_tried_here():
    assert {model.name for model in MODELS} == set(ff.models.MODELS)


def test_the_text_on_the_device_does_not_depend_on_the_order_of_settings():
    values = terms_of().to_dict()
    assert Terms.from_dict(dict(reversed(values.items()))).to_json() == terms_of().to_json()


def test_an_invitation_to_a_run_has_its_settings(tmp_path):
    shared = {
        "model": ff.MF(dim=4), "sampler": make_sampler("random"), "training": ff.LocalTraining(epochs=3),
        "log": ff.Log("float32"), "seed": 9,
    }  # fmt: skip
    config = RunConfig(**shared, engine="flower")
    invitation = create_federation(tmp_path / "run", config, SONGS)
    assert invitation.items == SONGS
    assert invitation.terms == Terms(federation=config.id, n_items=4, **shared)
    assert Invitation.load(tmp_path / "run" / NAME) == invitation


# A user's items as places in the catalogue


def places(invitation: Invitation, data: ff.Interactions, user: int | str) -> list[int]:
    return invitation.positions(data.item_ids_of(user))


def test_items_become_places_in_the_order_of_the_catalogue_not_of_the_users_data():
    invitation = Invitation(terms_of(), SONGS)
    data = ff.Interactions.from_pairs(["ann", "ann", "bob"], ["song a", "song d", "song c"])
    assert places(invitation, data, "ann") == [1, 3]
    assert places(invitation, data, "bob") == [0]


def test_a_user_joins_with_a_part_to_train_on_and_a_part_that_is_kept_back():
    data = ff.Interactions.from_pairs(np.repeat(["ann", "bob"], 4), SONGS * 2)
    train, test = data.split(0.25, seed=1)
    kept, held_out = (places(Invitation(terms_of(), SONGS), part, "bob") for part in (train, test))
    assert len(held_out) == 1
    assert sorted(kept + held_out) == [0, 1, 2, 3]


def test_an_unknown_item_is_refused_by_its_name():
    data = ff.Interactions.from_pairs(["ann", "ann"], ["song a", "song x"])
    with pytest.raises(DataError, match=r"Item 'song x' is not in the federation's catalogue of 4"):
        places(Invitation(terms_of(), SONGS), data, "ann")


def test_the_number_1_is_not_the_item_called_1():
    data = ff.Interactions.from_pairs([5], [1])
    assert places(Invitation(terms_of(n_items=2), [0, 1]), data, 5) == [1]
    with pytest.raises(DataError, match="Item 1 is not in the federation's catalogue"):
        places(Invitation(terms_of(n_items=2), ["0", "1"]), data, 5)


def test_a_catalogue_is_known_again_by_its_items_and_their_order():
    assert catalogue_digest(SONGS) == catalogue_digest(tuple(SONGS))
    others = [SONGS[::-1], SONGS[:-1], [*SONGS, "song e"], [0, 1], ["0", "1"], []]
    assert len({catalogue_digest(items) for items in [SONGS, *others]}) == 7


# What is wrong with a file


def test_a_missing_invitation_says_where_there_is_one(tmp_path):
    with pytest.raises(RunError, match=r"There is no invitation .*(.|\n)*RUN/invitation\.json"):
        Invitation.load(tmp_path / "invitation.json")


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"null", b"[]", b"{}", b'"text"', b"\xff\xfe\x00", b'{"items": []}', b'{"terms": {}}']
)
def test_a_damaged_file_is_named_with_what_to_do(path, damage):
    path.write_bytes(damage)
    with pytest.raises(RunError, match=r"(invitation\.json is not an invitation|cannot be read)(.|\n)*(new|again)"):
        Invitation.load(path)


def test_content_that_does_not_match_the_digest_is_refused(path):
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"epochs": ', '"epochs": 1'), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != text
    with pytest.raises(RunError, match=r"invitation\.json is not an invitation: its content does not match its digest"):
        Invitation.load(path)


def test_half_of_a_file_is_not_an_invitation(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(RunError, match="is not an invitation"):
        Invitation.load(path)


def test_a_folder_in_the_place_of_the_file_is_not_an_invitation(tmp_path):
    with pytest.raises(RunError, match="is not an invitation"):
        Invitation.load(tmp_path)


@pytest.mark.parametrize("items", [[], SONGS[:-1]])
def test_a_catalogue_of_another_length_than_the_model_is_refused_with_both_numbers(path, items):
    change(path, items=items)
    with pytest.raises(RunError, match=rf"has {len(items)} items, the federation started with 4"):
        Invitation.load(path)


@pytest.mark.parametrize("items", [4, None, {"a": 1, "b": 2, "c": 3, "d": 4}, "abcd", [1, 2, 3, None], [1, 2, 3, [4]]])
def test_items_that_are_no_list_of_ids_are_not_an_invitation(path, items):
    change(path, items=items)
    with pytest.raises(RunError):
        Invitation.load(path)


@pytest.mark.parametrize("other", [1, FORMAT + 1, None])
def test_an_invitation_of_another_format_is_refused(path, other):
    change(path, format=other)
    with pytest.raises(RunError, match=rf"format is {other}, not {FORMAT}"):
        Invitation.load(path)


@pytest.mark.parametrize("name", ["federation", "n_items", "model", "sampler", "training", "log", "seed"])
def test_terms_that_lack_something_are_not_understood(name):
    values = terms_of().to_dict()
    del values[name]
    with pytest.raises(RunError, match=rf"terms of the federation cannot be read: '{name}'"):
        Terms.from_dict(values)


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_items", "many"), ("n_items", None), ("model", []), ("training", 5), ("training", {"colour": "red"}),
     ("log", None), ("seed", "x"), ("seed", "7")],
)  # fmt: skip
def test_terms_that_make_no_sense_are_not_understood(name, value):
    with pytest.raises(RunError, match=r"cannot be read(.|\n)*same version of fedforget"):
        Terms.from_dict({**terms_of().to_dict(), name: value})


@pytest.mark.parametrize(("name", "value"), [("model", {"dim": 4}), ("sampler", {"colour": "red"})])
def test_a_component_without_a_name_is_not_taken_for_one_that_is_not_installed(name, value):
    with pytest.raises(ConfigError, match=f"A {name} has no name") as refused:
        Terms.from_dict({**terms_of().to_dict(), name: value})
    assert not isinstance(refused.value, MissingComponentError)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("model", {"name": "gpt"}, "gpt"),
        ("log", {"encoding": "int3"}, "int3"),
        ("sampler", {"name": "mixed", "beta": 2.0}, "beta"),
        ("sampler", {"name": "mixed", "colour": "red"}, "colour"),
    ],
)
def test_settings_that_this_version_does_not_have_are_named(name, value, word):
    with pytest.raises(ConfigError, match=word):
        Terms.from_dict({**terms_of().to_dict(), name: value})


def test_terms_differ_in_whatever_was_agreed():
    terms = terms_of()
    others = [
        replace(terms, federation="ff"), replace(terms, n_items=5), replace(terms, model=ff.MF(dim=8)),
        replace(terms, sampler=make_sampler("random")), replace(terms, training=ff.LocalTraining(epochs=1)),
        replace(terms, log=ff.Log("float32")), replace(terms, seed=8),
    ]  # fmt: skip
    assert terms not in others
    assert len({other.to_json() for other in [terms, *others]}) == 8
