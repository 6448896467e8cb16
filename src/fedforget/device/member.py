"""Member: a user of a federation on its own device, and the one file that holds everything about it."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError

from fedforget.device.log.sqlite import SqliteStore
from fedforget.device.log.user_files import DamagedError, UserFiles
from fedforget.device.pending import Pending
from fedforget.errors import ConfigError
from fedforget.protocol import reasons
from fedforget.protocol.order import ORIGIN, Lineage
from fedforget.protocol.terms import RefusedError, Terms
from fedforget.runtime.randomness import UserId, user_key

TRAIN, TEST = "train", "test"
#: The ending of files of removed users until they are deleted.
GONE = ".gone"


class Member:
    """A user's file: interactions, private parameters, update log, and trajectories."""

    def __init__(self, files: UserFiles, user: UserId) -> None:
        self.files = files
        self.user = user
        self.key = user_key(user)
        if not files.path(self.key).exists() or self._meta("user") != json.dumps(user):
            raise RefusedError(reasons.NOT_ENROLLED)

    @classmethod
    def enrol(cls, files: UserFiles, terms: Terms, user: UserId, train: ArrayLike, test: ArrayLike = ()) -> Member:
        """Create the file of a user who joins a federation, with its training and test items."""
        items = {part: np.unique(np.asarray(given, np.int64)) for part, given in ((TRAIN, train), (TEST, test))}
        _check(user, terms, items[TRAIN], items[TEST])
        key = user_key(user)
        if files.query(key, "SELECT 1 FROM interaction"):
            raise ConfigError(
                f"User {user!r} is enrolled on this device already.",
                f"Its file is {files.path(key)}; delete it to begin anew.",
            )
        meta = {"user": json.dumps(user), "terms": terms.to_json(), "order": "0"}
        lines = [(item, part) for part, wanted in items.items() for item in wanted.tolist()]
        files.change(
            key,
            [("INSERT OR REPLACE INTO meta VALUES (?, ?)", pair) for pair in meta.items()]
            + [("INSERT INTO interaction VALUES (?, ?)", line) for line in lines],
        )
        return cls(files, user)

    @cached_property
    def terms(self) -> Terms:
        """The terms that the user joined with."""
        return Terms.from_dict(json.loads(self._meta("terms")))

    def check(self) -> None:
        """Check the whole file for damage."""
        found = self.files.query(self.key, "PRAGMA quick_check")
        if found != [("ok",)]:
            raise DamagedError(self.files.path(self.key), found[0][0])

    def items(self, part: str) -> NDArray[np.int32]:
        """The user's training or test items, sorted."""
        lines = self.files.query(self.key, "SELECT item FROM interaction WHERE part = ? ORDER BY item", part)
        return np.array([item for (item,) in lines], np.int32)

    def accept(self, number: int) -> None:
        """Store the number of an order; refuse one that is older than the last."""
        if number < int(self._meta("order")):
            raise RefusedError(reasons.OUTDATED)
        self._set("order", str(number))

    def store(self, trajectory: str) -> SqliteStore:
        """This user's log on a trajectory."""
        return SqliteStore(self.files.folder, self.files.federation, trajectory, [self.key], self.files)

    def follow(self, lineage: Lineage, counted: int) -> int | None:
        """Move to the last trajectory of a lineage; if it is new here, the last round that is kept, else None.

        A device that has missed trajectories in between keeps the rounds that all of them kept, and none after the last
        round that ``counted``. A new trajectory counts once ``followed`` was called.
        """
        names = [name for name, _ in lineage]
        held = [name for name in self._held() if name in names]
        if not held:
            raise RefusedError(reasons.UNKNOWN_TRAJECTORY)
        newest = max(held, key=names.index)
        if newest == names[-1]:
            return None
        until = min(counted, *(after for _, after in lineage[names.index(newest) + 1 :]))
        self.store(names[-1]).begin_as(self.store(newest), until)
        return until

    def followed(self, trajectory: str) -> None:
        """Store that the user is on a new trajectory."""
        self._set("trajectories", json.dumps([*self._held(), trajectory]))

    def drop_all_but(self, trajectories: Sequence[str]) -> None:
        """Remove everything about other trajectories."""
        gone = [name for name in self._held() if name not in trajectories]
        if gone:
            kept = json.dumps(list(trajectories))
            others = "WHERE trajectory NOT IN (SELECT value FROM json_each(?))"
            statements = [(f"DELETE FROM {table} {others}", (kept,)) for table in ("entry", "private", "pending")]
            held = json.dumps([name for name in self._held() if name in trajectories])
            statements.append(("INSERT OR REPLACE INTO meta VALUES ('trajectories', ?)", (held,)))
            self.files.change(self.key, statements, scrubbed=True)

    def keep_pending(self, trajectory: str, round_: int, body: bytes) -> None:
        """Store a pending round."""
        self.files.change(self.key, [("INSERT OR REPLACE INTO pending VALUES (?, ?, ?)", (trajectory, round_, body))])

    def take_pending(self, trajectory: str, round_: int) -> Pending | None:
        """The pending round if it is this one; later ones are removed."""
        later = ("DELETE FROM pending WHERE trajectory = ? AND round > ?", (trajectory, round_))
        self.files.delete(self.key, [later])
        query = "SELECT body FROM pending WHERE trajectory = ? AND round = ?"
        found = self.files.query(self.key, query, trajectory, round_)
        try:
            return Pending.from_bytes(round_, self.key, found[0][0]) if found else None
        except (SafetensorError, KeyError) as error:
            raise DamagedError(self.files.path(self.key), error) from error

    def drop_pending(self, trajectory: str) -> None:
        """Remove the pending round."""
        self.files.delete(self.key, [("DELETE FROM pending WHERE trajectory = ?", (trajectory,))])

    def wipe(self) -> None:
        """Remove the file."""
        self.files.close()
        path = self.files.path(self.key)
        for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
            if file.exists():
                file.rename(file.with_name(f"{secrets.token_hex(8)}{GONE}"))
        sweep(path.parent)

    def _held(self) -> list[str]:
        found = self.files.query(self.key, "SELECT value FROM meta WHERE name = 'trajectories'")
        return list(json.loads(found[0][0])) if found else [ORIGIN[0][0]]

    def _meta(self, name: str) -> str:
        found = self.files.query(self.key, "SELECT value FROM meta WHERE name = ?", name)
        if not found:
            raise RefusedError(reasons.NOT_ENROLLED)
        return str(found[0][0])

    def _set(self, name: str, value: str) -> None:
        self.files.change(self.key, [("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))])


def _check(user: UserId, terms: Terms, train: NDArray[np.int64], test: NDArray[np.int64]) -> None:
    if not train.size:
        raise ConfigError(f"User {user!r} has no items to train on.", "Give at least one.")
    both = np.concatenate([train, test])
    if both.min() < 0 or both.max() >= terms.n_items:
        raise ConfigError(
            f"User {user!r} has item {both.min() if both.min() < 0 else both.max()}, but the catalogue has "
            f"{terms.n_items:,}.",
            "Items are positions in the federation's catalogue, from 0.",
        )
    if np.intersect1d(train, test).size:
        raise ConfigError(
            f"Item {np.intersect1d(train, test)[0]} of user {user!r} is in both the training and the test items.",
            "Give it once.",
        )


def user_of(files: UserFiles, key: int) -> UserId | None:
    """The user of a file; None if nobody is enrolled in it."""
    found = files.query(key, "SELECT value FROM meta WHERE name = 'user'")
    user: UserId | None = json.loads(found[0][0]) if found else None
    return user


def sweep(folder: Path) -> None:
    """Overwrite the files of removed users with zeros and delete them, also those that a killed process left.

    On disks that write in place nothing remains in their blocks.
    """
    for file in folder.glob(f"*{GONE}"):
        with file.open("r+b") as handle:
            handle.write(bytes(file.stat().st_size))
            handle.flush()
            os.fsync(handle.fileno())
        file.unlink()
