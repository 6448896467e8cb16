"""Loading by name or by path."""

from __future__ import annotations

import dataclasses

import platformdirs
import pytest
from interaction_pairs import pairs_of

from fedforget.data import CATALOGUE, NAMES, Summary, data_folder, load
from fedforget.data import synthetic as generate
from fedforget.errors import ConfigError, DataError

ML_100K = "1\t5\t3\t88\n2\t6\t4\t89\n"
INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + ML_100K
STEAM = "".join(
    f'{user},"Game {n}",{kind},1.0,0\n' for user in (7, 8) for n in range(5) for kind in ("purchase", "play")
)
FILES = [
    ("ml-100k", {"ml-100k/u.data": ML_100K}, (2, 2, 2)),
    ("ml-100k", {"ml-100k/ml-100k.inter": INTER}, (2, 2, 2)),
    ("ml-1m", {"ml-1m/ratings.dat": ML_100K.replace("\t", "::")}, (2, 2, 2)),
    ("steam-200k", {"steam-200k/steam-200k.csv": STEAM}, (2, 5, 10)),
    ("steam-200k", {"steam/steam-200k.csv": STEAM}, (2, 5, 10)),
    ("steam-200k", {"steam/train.txt": "0 1 2\n", "steam/test.txt": "0 5133\n"}, (1, 5134, 3)),
    ("steam-200k", {"steam-200k/train.txt": "0 1 2\n", "steam-200k/test.txt": "0 3\n"}, (1, 5134, 3)),
]


@pytest.fixture
def expect(monkeypatch):
    """Let a named set have other counts than the published one."""

    def counts(name: str, users: int, items: int, interactions: int) -> None:
        entry = CATALOGUE[name]
        change = {"users": users, "items": items, "interactions": interactions, "checksum": None}
        forms = tuple(dataclasses.replace(form, **change) for form in entry.forms)
        monkeypatch.setitem(CATALOGUE, name, dataclasses.replace(entry, forms=forms))

    return counts


@pytest.mark.parametrize(("name", "files", "counts"), FILES)
def test_a_named_set_is_found_in_its_forms(write, tmp_path, expect, name, files, counts):
    for file, content in files.items():
        write(file, content)
    expect(name, *counts)
    data = load(name, folder=tmp_path)
    assert (data.n_users, data.n_items, len(data)) == counts


@pytest.mark.parametrize(("name", "files", "counts"), FILES)
def test_other_data_does_not_pass_under_a_name(write, tmp_path, name, files, counts):
    for file, content in files.items():
        write(file, content)
    with pytest.raises(DataError, match=f"is not {name}: it has {counts[0]} users where the published set") as error:
        load(name, folder=tmp_path)
    assert "give its path instead of the name" in error.value.hint


def test_half_of_a_pair_of_files_is_not_the_set(write, tmp_path):
    write("steam/train.txt", "0 1 2\n")
    with pytest.raises(DataError, match="cannot be downloaded"):
        load("steam-200k", folder=tmp_path)


def test_the_folder_is_the_argument_else_the_variable_else_the_cache(tmp_path, own_folder, monkeypatch):
    assert data_folder(tmp_path) == tmp_path
    assert data_folder() == own_folder
    monkeypatch.delenv("FEDFORGET_DATA")
    assert str(data_folder()) == platformdirs.user_cache_dir("fedforget", False)


def test_a_set_that_is_missing_is_fetched_with_a_word_to_stderr(capsys):
    with pytest.raises(DataError, match=r"ml-1m\.zip cannot be reached"):
        load("ml-1m")
    said = capsys.readouterr()
    assert said.err == "Downloading https://files.grouplens.org/datasets/movielens/ml-1m.zip\n"
    assert said.out == ""


def test_a_path_is_read_with_its_options(write):
    path = write("plays.csv", "who,item\n1,5\n")
    assert pairs_of(load(path, user="who")) == {(1, 5)}
    assert pairs_of(load(str(path), user="who")) == {(1, 5)}
    with pytest.raises(DataError, match="There is no file"):
        load("no/such.csv")


def test_synthetic_takes_the_options_of_the_generator():
    assert load("synthetic", users=20, items=30, seed=4) == generate(users=20, items=30, seed=4)


def test_an_unknown_name_suggests_the_closest():
    with pytest.raises(ConfigError, match="Did you mean 'steam-200k'"):
        load("steam200k")
    with pytest.raises(ConfigError, match="ml-100k takes no option 'user'"):
        load("ml-100k", user="who")
    assert NAMES == ["ml-100k", "ml-1m", "steam-200k", "synthetic"]


def test_a_summary_of_known_data(write):
    figures = Summary.of(load(write("a.csv", "user,item\n1,5\n1,6\n1,6\n2,5\n")))
    assert (figures.users, figures.items, figures.interactions, figures.duplicates) == (2, 2, 3, 1)
    assert figures.density == 0.75
    assert (figures.items_per_user_min, figures.items_per_user_max) == (1, 2)
    assert figures.items_per_user_median == figures.items_per_user_mean == 1.5


@pytest.mark.real_data
def test_the_real_ml_100k(real_data):
    data = load("ml-100k", folder=real_data("ml-100k/u.data"))
    assert (data.n_users, data.n_items, len(data), data.duplicates) == (943, 1682, 100_000, 0)
    assert data.counts.min() == 20
    assert 242 in data.item_ids[data.items_of(data.user_index(196))]


@pytest.mark.real_data
def test_the_real_steam(real_data):
    folder = real_data("steam/train.txt")
    data = load("steam-200k", folder=folder)
    assert (data.n_users, data.n_items, len(data)) == (3753, 5134, 114_713)
    assert data.counts.min() == 5
    assert (data.n_items - len(set(data.indices.tolist()))) == 42
