"""Readers of tables: CSV, TSV, Parquet, data frames, RecBole and the Steam table."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interaction_pairs import pairs_of

from fedforget.data import Interactions
from fedforget.errors import DataError, DataWarning

NUMBERS = st.integers(0, 2**63 - 1) | st.integers(0, 9)
#: Text that no reader can take for a number or for a gap.
NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=6).map("n{}".format)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1) | st.lists(st.tuples(NAMES, NAMES), min_size=1)


@given(PAIRS, st.sampled_from([(".csv", ","), (".tsv", "\t"), (".txt", "\t"), (".csv", ";")]))
def test_csv_gives_back_what_was_written(tmp_path_factory, pairs, form):
    ending, separator = form
    path = tmp_path_factory.getbasetemp() / f"pairs{ending}"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL)
        writer.writerows([("when", "item", "user"), *((0, item, user) for user, item in pairs)])
    data = Interactions.from_csv(path, separator=separator if separator == ";" else None)
    assert pairs_of(data) == set(pairs)
    assert data.duplicates == len(pairs) - len(set(pairs))


@given(PAIRS)
def test_parquet_gives_back_what_was_written(tmp_path_factory, pairs):
    path = tmp_path_factory.getbasetemp() / "pairs.parquet"
    pl.DataFrame(pairs, schema=["who", "what"], orient="row").write_parquet(path)
    data = Interactions.from_parquet(path, user="who", item="what")
    assert pairs_of(data) == set(pairs)
    assert data.duplicates == len(pairs) - len(set(pairs))


@given(PAIRS)
def test_frames_of_both_kinds_give_the_same(pairs):
    frame = pl.DataFrame(pairs, schema=["user", "item"], orient="row")
    data = Interactions.from_frame(frame)
    assert pairs_of(data) == set(pairs)
    assert Interactions.from_frame(pd.DataFrame(pairs, columns=["user", "item"])) == data
    assert Interactions.from_frame(frame.lazy()) == data


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1))
def test_recbole_gives_back_what_was_written(tmp_path_factory, pairs):
    path = tmp_path_factory.getbasetemp() / "pairs.inter"
    rows = [f"{user}\t{item}\t3\t881250949" for user, item in pairs]
    path.write_text("\n".join(["user_id:token\titem_id:token\trating:float\ttimestamp:float", *rows]) + "\n")
    with pytest.warns(DataWarning) as warned:
        assert pairs_of(Interactions.from_recbole(path)) == set(pairs)
    assert ["'rating' is not used" in str(warned[0].message), "'timestamp'" in str(warned[1].message)] == [True, True]


def test_a_title_may_hold_commas_quotes_and_line_ends(write):
    path = write("plays.csv", 'user,game\n7,"Warhammer, ""40,000""\nII"\n7,Dota 2\n')
    data = Interactions.from_csv(path, item="game")
    assert data.item_ids.tolist() == ["Dota 2", 'Warhammer, "40,000"\nII']


def test_columns_by_place_mean_no_header(write):
    data = Interactions.from_csv(write("u.data", "196\t242\t3\t1\n186\t302\t3\t2\n"), user=0, item=1)
    assert pairs_of(data) == {(196, 242), (186, 302)}


def test_a_separator_of_two_characters(write):
    data = Interactions.from_csv(write("ratings.dat", "1::1193::5::9\n2::661::3::9\n"), user=0, item=1)
    assert pairs_of(data) == {(1, 1193), (2, 661)}


@pytest.mark.parametrize(
    ("values", "ids"),
    [
        (["1", "2"], [1, 2]),
        (["2.0", "10.0"], [2, 10]),
        ([" 2", "10 "], [2, 10]),
        (["007", "7"], ["007", "7"]),
        (["1", "b"], ["1", "b"]),
        (["nan", "b"], ["b", "nan"]),
    ],
)
def test_text_becomes_numbers_only_as_a_whole(write, values, ids):
    path = write("a.csv", "user,item\n" + "".join(f"{value},1\n" for value in values))
    assert Interactions.from_csv(path).user_ids.tolist() == ids


def test_windows_line_ends_and_byte_order_mark(write):
    path = write("a.csv", b"\xef\xbb\xbfuser,item\r\n1,2\r\n3,4\r\n")
    assert pairs_of(Interactions.from_csv(path)) == {(1, 2), (3, 4)}


@pytest.mark.parametrize(
    ("content", "problem", "hint"),
    [
        ("", "is empty", "completely"),
        ("\n \n", "is empty", "completely"),
        ("user,item\n", "contains no interactions", "header"),
        ("who,item\n1,2\n", "has no column 'user'", "Its columns are 'who', 'item'"),
        ("user,item\n1,2\n,4\n", "Row 2 .*user id None is missing", "Drop or correct"),
        ("user,item\n1,2\nNaN,4\n", "Row 2 .*user id 'NaN' is missing", "Drop or correct"),
        ("user,item\na,2\n  ,4\n", "Row 2 .*user id '' is missing", "Drop or correct"),
        ("user,item\n1,2\n1,null\n", "Row 2 .*item id 'null' is missing", "Drop or correct"),
        ("user,item\n1,2\n-1,4\n", "Row 2 .*user id -1 is negative", "start at 0"),
        ("user,item\n1,2\n1,3.5\n", "Row 2 .*item id 3.5 is not a whole number", "right column"),
        (f"user,item\n1,2\n{2**63},4\n", f"Row 2 .*user id '{2**63}' does not fit 64 bits", "strings"),
        ("user,item,x\n1,2,3\n1,2,3,4\n", "Line 3 .* has 4 fields, the first line 3", "Correct the line"),
        ("user,item,x\n1,2,3\n1,2\n", "Line 3 .* has 2 fields, the first line 3", "Correct the line"),
        ('user,item\n1,"open\n2,3\n', "cannot be read as a table", "quotation marks"),
        (b"user,item\n1,caf\xe9\n", "Line 2 .* is not UTF-8 text .byte 0xe9", "iconv"),
        ("user,item\n1,2\n".encode("utf-16"), "Line 1 .* is not UTF-8 text", "UTF-8"),
    ],
)
def test_a_bad_csv_is_refused(write, content, problem, hint):
    path = write("plays.csv", content)
    with pytest.raises(DataError, match=problem) as error:
        Interactions.from_csv(path)
    assert str(path) in error.value.problem
    assert hint in error.value.hint


def test_a_missing_file_a_folder_and_one_that_cannot_be_read(tmp_path, write, monkeypatch):
    with pytest.raises(DataError, match=r"There is no file .*nowhere\.csv"):
        Interactions.from_csv(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match="is a folder"):
        Interactions.from_parquet(tmp_path)
    with pytest.raises(DataError, match="cannot be read: embedded null"):
        Interactions.from_csv("a\0b.csv")
    path = write("locked.csv", "user,item\n1,2\n")

    def refused(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(DataError, match=r"locked.csv cannot be read: Permission denied"):
        Interactions.from_csv(path)


@pytest.mark.parametrize("separator", ["", '"', "\n"])
def test_an_impossible_separator_is_named(write, separator):
    with pytest.raises(DataError, match="The separator of"):
        Interactions.from_csv(write("a.csv", "user,item\n1,2\n"), separator=separator)


def test_a_place_beyond_the_last_column(write):
    with pytest.raises(DataError, match="no column number 2") as error:
        Interactions.from_csv(write("a.csv", "1,2\n"), user=0, item=2)
    assert "It has 2" in error.value.hint


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.95])
def test_a_truncated_parquet_file(tmp_path, write, keep):
    pl.DataFrame({"user": range(500), "item": range(500)}).write_parquet(tmp_path / "whole.parquet")
    content = (tmp_path / "whole.parquet").read_bytes()
    with pytest.raises(DataError, match=r"is not a readable Parquet file|is empty"):
        Interactions.from_parquet(write("part.parquet", content[: int(keep * len(content))]))


def test_parquet_and_frames_name_a_missing_column(tmp_path):
    frame = pl.DataFrame({"user": [1], "game": [2]})
    frame.write_parquet(tmp_path / "a.parquet")
    for read in (
        lambda: Interactions.from_parquet(tmp_path / "a.parquet"),
        lambda: Interactions.from_frame(frame),
        lambda: Interactions.from_frame(pd.DataFrame({"user": [1], "game": [2]})),
    ):
        with pytest.raises(DataError, match="has no column 'item'") as error:
            read()
        assert "'user', 'game'" in error.value.hint


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (pl.DataFrame({"user": [1, None], "item": [1, 2]}), "Row 2 of the frame: user id None is missing"),
        (pd.DataFrame({"user": [1, None], "item": [1, 2]}), "Row 2 of the frame: user id nan"),
        (pd.DataFrame({"user": ["a", None], "item": [1, 2]}), "Row 2 of the frame: user id (nan|None)"),
        (pl.DataFrame({"user": [1.0, 2.5], "item": [1, 2]}), "Row 2 of the frame: user id 2.5 is not a whole"),
        (pl.DataFrame({"user": [1, -2], "item": [1, 2]}), "Row 2 of the frame: user id -2 is negative"),
        (
            pl.DataFrame({"user": [1, 2**90], "item": [1, 2]}, schema={"user": pl.Int128, "item": pl.Int64}),
            f"Row 2 of the frame: user id {2**90} does not fit 64 bits",
        ),
        (pl.DataFrame({"user": [[1], [2]], "item": [1, 2]}), "user ids of the frame are List"),
        ([(1, 2)], "the frame is a list"),
    ],
)
def test_a_bad_frame_is_refused(frame, problem):
    with pytest.raises(DataError, match=problem):
        Interactions.from_frame(frame)


def test_categories_are_names():
    frame = pl.DataFrame({"user": ["b", "a"], "item": [1, 2]}, schema_overrides={"user": pl.Categorical})
    assert Interactions.from_frame(frame).user_ids.tolist() == ["a", "b"]
    again = pd.DataFrame({"user": pd.Categorical(["b", "a"]), "item": [1, 2]})
    assert Interactions.from_frame(again).user_ids.tolist() == ["a", "b"]


def test_recbole_without_types_is_refused(write):
    with pytest.raises(DataError, match="column 'user_id' without a type"):
        Interactions.from_recbole(write("a.inter", "user_id\titem_id\n1\t2\n"))
    with pytest.raises(DataError, match="no column 'item_id'"):
        Interactions.from_recbole(write("b.inter", "user_id:token\tgame:token\n1\t2\n"))


STEAM_ROWS = [
    (user, f"Game, the {n}th", kind)
    for user, games in ((5, 6), (9, 5), (3, 4))
    for n in range(games)
    for kind in ("purchase", "play")
]


def test_steam_counts_a_game_once_and_drops_small_users(write):
    path = write("s.csv", "".join(f'{user},"{game}",{kind},1.0,0\n' for user, game, kind in STEAM_ROWS))
    data = Interactions.from_steam_csv(path)
    assert data.user_ids.tolist() == [5, 9]
    assert data.counts.tolist() == [6, 5]
    assert data.duplicates == 11
    assert "Game, the 0th" in data.item_ids.tolist()
    assert Interactions.from_steam_csv(path, min_items=4).n_users == 3
    with pytest.raises(DataError, match="no user with 7 games or more"):
        Interactions.from_steam_csv(path, min_items=7)


def test_another_table_is_not_steam(write):
    with pytest.raises(DataError, match="is not the Steam table"):
        Interactions.from_steam_csv(write("a.csv", "1,2,3,4,5\n"))
    with pytest.raises(DataError, match="is not the Steam table"):
        Interactions.from_steam_csv(write("b.csv", "user,item\n1,2\n"))


RATED = "user,item,rating,timestamp\n1,10,5,300\n1,11,3,100\n1,12,4,200\n2,10,1,50\n2,13,4,60\n"


@pytest.mark.parametrize("kind", ["csv", "parquet", "polars", "pandas", "recbole"])
def test_times_and_ratings_are_read_when_asked_for(tmp_path, kind):
    frame = pl.read_csv(RATED.encode())
    columns = {"time": "timestamp", "min_rating": 4}
    if kind == "csv":
        (tmp_path / "a.csv").write_text(RATED)
        data = Interactions.from_csv(tmp_path / "a.csv", **columns)
    elif kind == "parquet":
        frame.write_parquet(tmp_path / "a.parquet")
        data = Interactions.from_parquet(tmp_path / "a.parquet", **columns)
    elif kind == "recbole":
        head, *rows = RATED.replace(",", "\t").splitlines()
        head = "user_id:token\titem_id:token\trating:float\ttimestamp:float"
        (tmp_path / "a.inter").write_text("\n".join([head, *rows]) + "\n")
        data = Interactions.from_recbole(tmp_path / "a.inter", **columns)
    else:
        data = Interactions.from_frame(
            frame if kind == "polars" else pd.DataFrame(frame.to_dict(as_series=False)), **columns
        )
    assert pairs_of(data) == {(1, 10), (1, 12), (2, 13)}
    assert data.times.tolist() == [300, 200, 60]


def test_times_may_be_dates(write):
    path = write("a.csv", "user,item,when\n1,2,2024-01-01 00:00:10\n1,3,2024-01-01T00:00:00\n")
    times = Interactions.from_csv(path, time="when").times
    assert times[0] - times[1] == 10


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"time": "rating", "min_rating": 9}, "no rating of 9"),
        ({"time": "noted"}, "no column 'noted'"),
        ({"rating": "rating"}, "without min_rating"),
        ({"time": "item"}, "cannot be read, such as 'x'"),
        ({"min_rating": 3, "rating": "item"}, "Row 1 .*rating 'x' is not a number"),
    ],
)
def test_bad_times_and_ratings_are_refused(write, columns, problem):
    path = write("a.csv", "user,item,rating\n1,x,5\n1,y,3\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        with pytest.raises(DataError, match=problem):
            Interactions.from_csv(path, **columns)


def test_columns_that_are_used_are_not_warned_of(write):
    path = write("a.csv", RATED)
    with pytest.warns(DataWarning, match="'timestamp' is not used"):
        Interactions.from_csv(path, min_rating=1)
    Interactions.from_csv(path, min_rating=1, time="timestamp")
