"""Files of one line a user, and the choice of a reader by the file's name."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interaction_pairs import pairs_of

from fedforget.data import Interactions, read
from fedforget.errors import DataError

PAIRS = st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 99)), min_size=1)


@given(PAIRS, PAIRS)
def test_lines_of_several_files_are_merged(tmp_path_factory, first, second):
    folder = tmp_path_factory.getbasetemp()
    for name, pairs in (("train.txt", first), ("test.txt", second)):
        rows = {user: [item for other, item in pairs if other == user] for user, _ in pairs}
        text = "".join(f"{user} {' '.join(map(str, items))}\n" for user, items in rows.items())
        (folder / name).write_text(text)
    data = Interactions.from_lines(folder / "train.txt", folder / "test.txt")
    assert pairs_of(data) == {*first, *second}
    assert data.duplicates == len(first) + len(second) - len({*first, *second})


def test_lines_may_be_blank_or_bare_and_end_anyhow(write):
    data = Interactions.from_lines(write("a.txt", "1 2  3\r\n\n4\n5\t6 \n"))
    assert pairs_of(data) == {(1, 2), (1, 3), (5, 6)}


def test_lines_with_a_known_number_of_items(write):
    path = write("a.txt", "0 2\n1 4\n")
    assert Interactions.from_lines(path, n_items=6).item_ids.tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(DataError, match="Item 4 is not in the list of 3 items"):
        Interactions.from_lines(path, n_items=3)


@pytest.mark.parametrize("word", ["x", "-1", "1.5", "²", str(2**63), "9" * 5000])
def test_a_word_that_is_no_item_number(write, word):
    path = write("a.txt", f"1 2\n3 {word}\n")
    with pytest.raises(DataError, match=f"Line 2 of .*a.txt: '{word}' is not a whole number"):
        Interactions.from_lines(path)


def test_lines_need_a_file_with_something_in_it(write):
    with pytest.raises(DataError, match="no file to read"):
        Interactions.from_lines()
    with pytest.raises(DataError, match="contains no interactions"):
        Interactions.from_lines(write("a.txt", "1\n2\n"))
    with pytest.raises(DataError, match="is empty"):
        Interactions.from_lines(write("b.txt", ""))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "user,item\n1,5\n2,6\n"),
        ("A.CSV", "user,item\n1,5\n2,6\n"),
        ("bare.csv", "1,5\n2,6\n"),
        ("quoted.csv", '"1","5"\n"2","6"\n'),
        ("a.tsv", "item\tuser\n5\t1\n6\t2\n"),
        ("u.data", "1\t5\t3\t88\n2\t6\t3\t88\n"),
        ("ratings.dat", "1::5::3::88\n2::6::3::88\n"),
        ("table.txt", "user\titem\n1\t5\n2\t6\n"),
        ("lines.txt", "1 5\n2 6\n"),
        ("a.inter", "user_id:token\titem_id:token\n1\t5\n2\t6\n"),
    ],
)
def test_the_ending_chooses_the_reader(write, name, content):
    assert pairs_of(read(write(name, content))) == {(1, 5), (2, 6)}


def test_parquet_and_steam_are_known_by_their_names(tmp_path, write):
    pl.DataFrame({"user": [1], "item": [5]}).write_parquet(tmp_path / "a.parquet")
    assert pairs_of(read(tmp_path / "a.parquet")) == {(1, 5)}
    steam = "".join(f"1,Game {n},purchase,1.0,0\n" for n in range(5))
    assert read(write("steam-200k.csv", steam)).counts.tolist() == [5]


def test_named_columns_and_separator_override_the_ending(write):
    path = write("a.txt", "game;who\n5;1\n")
    assert pairs_of(read(path, user="who", item="game", separator=";")) == {(1, 5)}
    assert pairs_of(read(write("b.log", "9,5,1\n"), user=2, item=1, separator=",")) == {(1, 5)}
    assert pairs_of(read(write("c.csv", "a,5\n"), user=0)) == {("a", 5)}
    assert pairs_of(read(write("d.csv", "who,item\n1,5\n"), user="who")) == {(1, 5)}


def test_an_unknown_ending_is_named(write):
    with pytest.raises(DataError, match=r"ends in '\.xlsx', which is not a known format") as error:
        read(write("a.xlsx", "x"))
    assert ".parquet" in error.value.hint


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.inter", "a.parquet", "a.data", "steam-200k.csv"])
def test_every_reader_names_a_missing_and_an_empty_file(tmp_path, write, name):
    with pytest.raises(DataError, match="There is no file"):
        read(tmp_path / "none" / name)
    with pytest.raises(DataError, match="is empty"):
        read(write(name, ""))
