"""``fedforget data``, called as a person or a program would."""

from __future__ import annotations

import json
import warnings

import pytest

from fedforget.data import CATALOGUE, Interactions, sources
from fedforget.errors import ConfigError, DataError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # typer 0.20 imports names that click 8.5 deprecates
    from typer.testing import CliRunner

    from fedforget.cli.data import app


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False, env={"COLUMNS": "100"})


def test_info_is_a_table_for_people(write):
    result = run("info", write("plays.csv", "user,item\n1,5\n1,6\n1,6\n2,5\n"))
    assert result.exit_code == 0
    for words in (("users", "2"), ("interactions", "3"), ("duplicates", "1"), ("density", "75.0000%")):
        assert any(all(word in line for word in words) for line in result.stdout.splitlines())


def test_info_is_json_for_programs(write):
    path = write("plays.txt", "game;who\n5;1\n6;1\n")
    result = run("info", path, "--json", "--user-column", "who", "--item-column", "game", "--separator", ";")
    shown = json.loads(result.stdout)
    data = Interactions.from_pairs([1, 1], [5, 6])
    assert (shown["users"], shown["items"], shown["interactions"]) == (1, 2, 2)
    assert shown["digest"] == data.digest


def test_info_takes_columns_by_place_and_an_escaped_tab(write):
    result = run(
        "info", write("a.log", "x\t5\t1\n"), "--json", "--user-column", 2, "--item-column", 1, "--separator", "\\t"
    )
    assert json.loads(result.stdout)["interactions"] == 1


def test_errors_reach_the_caller_as_they_are(tmp_path):
    with pytest.raises(DataError, match="There is no file"):
        run("info", tmp_path / "none.csv")
    with pytest.raises(ConfigError, match="Did you mean 'ml-100k'"):
        run("fetch", "ml-10k")


def test_list_tells_what_is_here(write, tmp_path):
    write("ml-100k/u.data", "1\t2\t3\t4\n")
    shown = json.loads(run("list", "--folder", tmp_path, "--json").stdout)
    assert {row["name"]: row["here"] for row in shown} == {
        "ml-100k": True,
        "ml-1m": False,
        "steam-200k": False,
        "synthetic": True,
    }
    assert "steam-200k" in run("list", "--folder", tmp_path).stdout


def test_fetch_prints_the_path_alone(tmp_path, monkeypatch, write):
    write("ml-1m/ratings.dat", "1::2::3::4\n")
    entry = CATALOGUE["ml-1m"]
    monkeypatch.setattr(type(entry), "open", lambda self, form, folder: None)
    result = run("fetch", "ml-1m", "--folder", tmp_path)
    assert result.stdout.strip() == str(tmp_path / "ml-1m" / "ratings.dat")


def test_fetch_with_force_asks_the_source(tmp_path, monkeypatch, write):
    write("ml-1m/ratings.dat", "1::2::3::4\n")
    asked = []

    def refuse(url, progress):
        asked.append(url)
        progress(10, 100)
        raise sources.SourceError("closed today")

    monkeypatch.setattr(sources, "download", refuse)
    with pytest.raises(DataError, match="closed today"):
        run("fetch", "ml-1m", "--folder", tmp_path, "--force")
    assert asked == ["https://files.grouplens.org/datasets/movielens/ml-1m.zip"]
