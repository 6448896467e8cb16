"""Ids are taken as they stand, and nobody is forgotten without being shown and confirmed."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedforget as ff
from fedforget.cli.ids import KnownIds, read_ids
from tests.cli.conftest import QUICK, Shell

ODD = ["ann", "bob", "jr", "bob, jr", "7", "a,b", "a", "b", "[x]"]


@pytest.mark.parametrize(
    ("values", "ids"),
    [
        (["ann"], ["ann"]),
        (["ann,bob"], ["ann", "bob"]),
        (["ann", "bob"], ["ann", "bob"]),
        (["bob, jr"], ["bob, jr"]),
        (['["bob, jr", "ann"]'], ["bob, jr", "ann"]),
        (['["a,b"]'], ["a,b"]),
        (['["a", "b"]'], ["a", "b"]),
        (["[x]"], ["[x]"]),
        (["7"], ["7"]),
        (["nobody"], ["nobody"]),
    ],
)
def test_ids_are_taken_as_they_stand(values, ids):
    assert KnownIds(ODD).parse_all(values) == ids


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["ann "], "no user 'ann ', but there is 'ann'"),
        (["ann, bob"], "no user ' bob', but there is 'bob'"),
        (["007"], "no user '007', but there is '7'"),
        (["a,b"], "'a,b' is one user, but could also mean 'a', 'b'"),
        (["ann,,bob"], "has an empty user id"),
        (["["], "is not JSON"),
        (['{"a": 1}'], "no user"),
        (["[[1]]"], "is not a list of user ids"),
    ],
)
def test_what_only_resembles_an_id_is_refused_with_both(values, shown):
    if values == ['{"a": 1}']:
        assert KnownIds(ODD).parse_all(values) == values
        return
    with pytest.raises(ff.ConfigError) as refused:
        KnownIds(ODD).parse_all(values)
    assert shown in refused.value.problem


def test_numbers_are_written_as_numbers():
    known = KnownIds([7, 70])
    assert known.parse_all(["7,70"]) == [7, 70]
    assert known.parse_all(["[7]"]) == [7]
    assert known.parse("8") == 8
    assert known.parse("x") == "x"
    for text in ("07", " 7", "7 ", "+7"):
        if text == "+7":
            assert known.parse(text) == text
            continue
        with pytest.raises(ff.ConfigError, match="but there is '7'"):
            known.parse(text)


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, unique=True))
def test_every_id_names_itself_and_a_json_list_names_all(ids):
    import json

    known = KnownIds(ids)
    assert [known.parse(id_) for id_ in ids] == ids
    assert known.parse_all([json.dumps(ids)]) == ids or json.dumps(ids) in ids


def test_files_of_ids(tmp_path: Path):
    (tmp_path / "lines").write_bytes(b"ann \r\nbob, jr\n\n  x\n")
    (tmp_path / "list.json").write_text('["bob, jr", 7]')
    (tmp_path / "table.csv").write_text('name,user\nx,"bob, jr"\ny,ann\n')
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert read_ids(tmp_path / "lines", "user") == ["ann ", "bob, jr", "  x"]
    assert read_ids(tmp_path / "list.json", "user") == ["bob, jr", "7"]
    assert read_ids(tmp_path / "table.csv", "user") == ["bob, jr", "ann"]
    with pytest.raises(ff.ConfigError, match="has no column 'user': a, b"):
        read_ids(tmp_path / "other.csv", "user")
    with pytest.raises(ff.ConfigError, match="cannot be read"):
        read_ids(tmp_path / "none", "user")


@pytest.fixture
def run(shell: Shell, tmp_path: Path) -> Path:
    names = ["ann", "bob", "jr", "bob, jr", "eve", "007", "dan"]
    pairs = [(name, item) for place, name in enumerate(names) for item in range(place, place + 6)]
    pl.DataFrame({"user": [u for u, _ in pairs], "item": [i for _, i in pairs]}).write_csv(tmp_path / "data.csv")
    shell("train", tmp_path / "data.csv", "--out", tmp_path / "run", "--model", "mf", "--rounds", 1, *QUICK)
    return tmp_path / "run"


def members(run: Path) -> set[object]:
    fed = ff.Federation.open(run)
    found = set(fed.members)
    fed.close()
    return found


def test_the_person_named_is_forgotten_and_nobody_else(shell: Shell, run: Path, tmp_path: Path):
    before = members(run)
    (tmp_path / "who").write_text("ann \n")
    shell("forget", run, "--yes", "--users-file", tmp_path / "who", fails=1)
    assert "no user 'ann ', but there is 'ann'" in shell.errors
    shell("forget", run, "--yes", "--users", "7", fails=1)
    assert "but there is '007'" in shell.errors
    assert members(run) == before
    shell("forget", run, "--yes", "--users", "bob, jr")
    assert members(run) == before - {"bob, jr"}
    shell("forget", run, "--yes", "--users", "jr", "--users", "007")
    assert members(run) == before - {"bob, jr", "jr", "007"}


def test_nobody_is_forgotten_unasked(shell: Shell, run: Path, monkeypatch: pytest.MonkeyPatch):
    before = members(run)
    shell("forget", run, "--users", "ann,eve", fails=1)
    assert "This forgets 2 users ('ann', 'eve') for good." in shell.errors
    assert "--yes" in shell.errors
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: (_ for _ in ()).throw(SystemExit(1)))
    shell("forget", run, "--users", "ann", fails=1)
    assert members(run) == before
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    shell("forget", run, "--users", "ann")
    assert members(run) == before - {"ann"}


def test_the_salt_is_shown_before_anything_can_fail(shell: Shell, run: Path, monkeypatch: pytest.MonkeyPatch):
    from fedforget.server.run import Run

    def fail(*_: object) -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(Run, "commit_erasure", fail)
    shell("forget", run, "--yes", "--users", "ann", fails=70)
    assert "salt " in shell.errors
