"""Small federations to forget users of, and what can be asked of them: shared by the tests of forgetting."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

import fedforget as ff
from fedforget.runtime.randomness import UserId, user_key

ROUNDS = 8
DATA = ff.synthetic(users=40, items=60, mean_items=12, seed=2)
FLOAT = ff.Log("float32")


def build(path: Path | None = None, train: ff.Interactions = DATA, **changes: Any) -> ff.Federation:
    settings: dict[str, Any] = {
        "model": ff.MF(dim=8),
        "seed": 3,
        "training": ff.LocalTraining(epochs=3, batch=16, lr=0.01),
        "server": ff.ServerConfig(fraction=0.25),
    }
    return ff.Federation(train, path=path, **{**settings, **changes})


def trained(
    path: Path | None = None, train: ff.Interactions = DATA, rounds: int = ROUNDS, **changes: Any
) -> ff.Federation:
    return build(path, train, **changes).fit(rounds=rounds)


def first_in(fed: ff.Federation, round_: int, n: int = 1) -> list[UserId]:
    """Users who took part in a round for the first time."""
    new = [user for user in fed.cohort(round_) if fed.history.first_round_of([user]) == round_]
    assert len(new) >= n, f"only {len(new)} users took part in round {round_} for the first time"
    return new[:n]


def privates(fed: ff.Federation, users: Sequence[UserId] | None = None) -> dict[UserId, bytes]:
    users = fed.train.user_ids.tolist() if users is None else users
    return {user: fed.devices.private(user).tobytes() for user in users}


def assert_same_state(fed: ff.Federation, other: ff.Federation) -> None:
    """Bit for bit: the rounds, the public parameters after each that both still have, and all private parameters."""
    assert fed.rounds == other.rounds
    assert fed.public.digest == other.public.digest
    assert privates(fed) == privates(other)
    for round_ in set(fed.history.usable_rounds()) & set(other.history.usable_rounds()):
        assert fed.history.state(round_).checksum == other.history.state(round_).checksum
        assert fed.history.snapshot(round_).digest == other.history.snapshot(round_).digest
        assert fed.cohort(round_) == other.cohort(round_)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but the lock and what SQLite's readers leave: shared memory, an empty log."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock")
    found = {str(path.relative_to(folder)): path.read_bytes() for path in files if not path.name.endswith("-shm")}
    return {name: content for name, content in found.items() if content or not name.endswith("-wal")}


def distance(public: ff.GlobalParameters, reference: ff.GlobalParameters) -> float:
    """How far an item table is from another, relative to that one's length."""
    return float(np.linalg.norm(public.items - reference.items) / np.linalg.norm(reference.items))


def named(data: ff.Interactions = DATA) -> ff.Interactions:
    """The same interactions of users whose ids can be told from anything else in a file."""
    users, items = data.pairs()
    names = np.array([f"person-{user:02d}-{user_key(int(user)):016x}"[:18] for user in data.user_ids.tolist()])
    return ff.Interactions.from_pairs(names[users], data.item_ids[items]).with_items(data.item_ids)


class Traces:
    """What can be known of some users from the files of a run, gathered while it trains, and the search for it."""

    def __init__(self, users: Sequence[UserId]) -> None:
        self.users = list(users)
        self._found: dict[UserId, set[bytes]] = {user: set() for user in users}

    def gather(self, fed: ff.Federation) -> None:
        """Take in the private parameters and the log entries that these users have now."""
        for user in self.users:
            self._found[user].update(pieces(fed.devices.private(user).tobytes(), 4))
            key = np.array([user_key(user)], np.uint64)
            for entry in fed.devices.log.store.read(fed.rounds, key):
                self._found[user].update(pieces(entry[4:], 4))

    def of(self, user: UserId) -> set[bytes]:
        key = user_key(user)
        names = {str(user).encode(), f"{key:016x}".encode(), str(key).encode()} if isinstance(user, str) else set()
        return self._found[user] | names | {key.to_bytes(8, "little"), key.to_bytes(8, "big")}

    def left_in(self, folder: Path, user: UserId) -> set[tuple[str, bytes]]:
        """Where a search of every file, and of every file's name, finds something of a user."""
        wanted = self.of(user)
        found = set()
        for path in folder.rglob("*"):
            content = path.name.encode() + b"\n" + (path.read_bytes() if path.is_file() else b"")
            found |= {(str(path.relative_to(folder)), trace) for trace in wanted if trace in content}
        return found | {(name, b"") for name in cells(folder, user)}


def pieces(raw: bytes, step: int) -> list[bytes]:
    """The pieces of 16 bytes in which enough is going on that they are nobody else's by chance."""
    found = (raw[start : start + 16] for start in range(0, len(raw) - 15, step))
    return [piece for piece in found if len(set(piece)) >= 10]


def cells(folder: Path, user: UserId) -> list[str]:
    """The tables below a folder with a cell that is this user's id or names it, and text files that name it."""
    found = []
    for path in folder.rglob("*.sqlite"):
        with closing(sqlite3.connect(path)) as db:
            for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                for row in db.execute(f"SELECT * FROM {table}"):
                    if any(cell == user or (isinstance(cell, str) and str(user) in cell) for cell in row):
                        found.append(f"{path.relative_to(folder)}:{table}")
    texts = [path for path in folder.rglob("*") if path.suffix in (".toml", ".json", ".jsonl", ".part")]
    named_in = [path for path in texts if path.is_file() and str(user).encode() in path.read_bytes()]
    return found + [str(path.relative_to(folder)) for path in named_in]
