"""What was used in place of something damaged is in the history of the run, by file and number of users."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import fedforget as ff
from fedforget.errors import RunWarning
from fedforget.runtime.randomness import user_key
from fedforget.server.history import History
from tests.cli.conftest import Shell, shell  # noqa: F401  (a fixture)
from tests.small_federations import Traces, first_in, named, trained

INSTEAD = "private parameters are damaged. Those in the update log are used instead, which may be rounded"


def spoil_slots(path: Path, users: list[object]) -> None:
    """Damage the newest private parameters of some users."""
    raw = bytearray(path.read_bytes())
    size = 8 + 2 * (8 + 4 + 4 * 8)
    for user in users:
        at = raw.index(user_key(user).to_bytes(8, "little"))  # type: ignore[arg-type]
        slots = np.frombuffer(
            bytes(raw[at : at + size]), np.dtype([("check", "<u8"), ("round", "<u4"), ("row", "32V")]), 2, 8
        )
        raw[at + 8 + 44 * int(slots["round"].argmax()) + 12] ^= 1
    path.write_bytes(raw)


@pytest.fixture
def spoilt(tmp_path: Path) -> Path:
    """A run in which the private parameters of two users are damaged."""
    fed = trained(tmp_path / "run", server=ff.ServerConfig(fraction=1.0))
    users = fed.members[:2]
    fed.close()
    spoil_slots(tmp_path / "run" / "trajectory-1" / "devices" / "private.bin", users)
    return tmp_path / "run"


def test_they_are_in_the_history_by_file_and_number_of_users(spoilt: Path, shell: Shell) -> None:  # noqa: F811
    with pytest.warns(RunWarning, match="private parameters of 2 users are damaged"):
        fed = ff.Federation.open(spoilt)
    (seen,) = fed.fallbacks()
    assert (seen.round, seen.file, seen.text, seen.users) == (8, "trajectory-1/devices/private.bin", INSTEAD, 2)
    assert fed.history.fallbacks.all() == []  # opening changes nothing
    fed.fit(more=1)
    assert fed.history.fallbacks.all() == [seen]
    fed.forget([fed.members[5]], ff.FRU())  # a new history, which goes on from the old one
    fed.close()
    fed = ff.Federation.open(spoilt)
    assert fed.fallbacks() == [seen]
    assert fed.copy().fallbacks() == [seen]
    fed.close()
    assert f"{seen.file}, at round 8: {INSTEAD} (2 users)" in shell("receipts", spoilt)
    (shown,) = shell.json("receipts", spoilt)["fallbacks"]
    assert shown == {"round": 8, "file": seen.file, "text": INSTEAD, "users": 2}


def test_they_are_stored_before_what_shows_them_is_repaired(spoilt: Path) -> None:
    with pytest.warns(RunWarning, match="damaged"):
        fed = ff.Federation.open(spoilt)

    def stop(record: object) -> None:
        raise KeyboardInterrupt

    (seen,) = fed.fallbacks()
    with pytest.raises(KeyboardInterrupt):
        fed.fit(more=1, on_round=stop)
    fed.close()
    with closing(sqlite3.connect(spoilt / "trajectory-1" / "history.sqlite")) as db:
        assert db.execute("SELECT users FROM fallback").fetchall() == [(seen.users,)]


def test_those_of_an_erasure_are_in_its_new_history(tmp_path: Path) -> None:
    fed = trained(tmp_path / "run")
    forgotten = first_in(fed, 2)
    path = tmp_path / "run" / "trajectory-1" / "devices" / "rounds" / "000005.log"
    asked = [user for user in fed.cohort(5) if user not in forgotten]
    path.write_bytes(b"nothing like it")
    with pytest.warns(RunWarning, match=r"000005\.log"):
        fed.forget(forgotten)
    fed.close()
    fed = ff.Federation.open(tmp_path / "run")
    (seen,) = fed.fallbacks()
    assert (seen.text, seen.users) == ("the update log of round 5 cannot be read and counts as missing", len(asked))
    fed.close()


@pytest.mark.filterwarnings("ignore::fedforget.errors.RunWarning")
def test_they_name_nobody_whose_file_is_damaged(tmp_path: Path) -> None:
    fed = trained(tmp_path / "run", named(), log=ff.Log(store="sqlite"))
    victims = first_in(fed, 1, 2)
    fed.close()
    for victim in victims:
        path = tmp_path / "run" / "trajectory-1" / "devices" / f"{user_key(victim):016x}.sqlite"
        path.write_bytes(b"no database at all " * 500)
    fed = ff.Federation.open(tmp_path / "run")
    fed.forget(victims)
    fed.fit(more=1)
    found = {each.text: each.users for each in fed.fallbacks()}
    assert found["files of users are damaged and left out"] == 2
    fed.close()
    assert [Traces(victims).left_in(tmp_path / "run", victim) for victim in victims] == [set(), set()]


def test_a_history_without_the_table_has_none_and_gets_it(tmp_path: Path) -> None:
    fed = trained(tmp_path / "run", rounds=1)
    fed.history._db.execute("DROP TABLE fallback")
    assert fed.fallbacks() == []
    layout = fed.model.dense_layout
    fed.close()
    history = History(tmp_path / "run" / "trajectory-1", layout)
    assert history.fallbacks.all() == []
    assert history._db.execute("SELECT COUNT(*) FROM fallback").fetchone() == (0,)
    history.close()
