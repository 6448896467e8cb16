"""Member: a user of a federation on its device, with one file that holds everything about the user."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError

from fedforget.device.log.sqlite import SqliteStore
from fedforget.device.log.user_files import DamagedError, Statement, UserFiles
from fedforget.device.pending import Pending
from fedforget.errors import ConfigError
from fedforget.protocol import reasons
from fedforget.protocol.notice import ItemsRequest
from fedforget.protocol.order import ORIGIN, Lineage
from fedforget.protocol.terms import RefusedError, Terms
from fedforget.runtime.randomness import UserId, secret_key, user_key

if TYPE_CHECKING:
    from fedforget.protocol.masking import KeyPair

TRAIN, TEST = "train", "test"
SET_META = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
UNWANTED = "SELECT item FROM unwanted WHERE number <= ?"
#: The tables with digests; the log has its own checksums.
SEALED = ("meta", "interaction", "unwanted")
ALL_REQUESTS = 2**63 - 1
#: The suffix of removed users' files until they are deleted.
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
    def enrol(
        cls,
        files: UserFiles,
        terms: Terms,
        user: UserId,
        train: ArrayLike,
        test: ArrayLike = (),
        n_items: int | None = None,
        secret: str | None = None,
    ) -> Member:
        """Create the file of a user who joins a federation, with its training and test items.

        ``n_items`` is the size of the catalogue, if items were added to it since the start. The user's random draws
        are keyed by a new ``secret``, hexadecimal digits that never leave the device.
        """
        items = {part: np.unique(np.asarray(given, np.int64)) for part, given in ((TRAIN, train), (TEST, test))}
        _check(user, n_items or terms.n_items, items[TRAIN], items[TEST])
        key = user_key(user)
        if files.query(key, "SELECT 1 FROM interaction"):
            raise ConfigError(
                f"User {user!r} is enrolled on this device already.",
                "Add interactions with `fedforget device add`. To start anew: `fedforget flower wipe`, then enrol.",
            )
        secret = secrets.token_hex(16) if secret is None else secret
        meta = {"user": json.dumps(user), "terms": terms.to_json(), "order": "0", "secret": secret}
        lines = [(item, part) for part, of_part in items.items() for item in of_part.tolist()]
        files.change(
            key,
            [(SET_META, pair) for pair in meta.items()]
            + [("INSERT INTO interaction VALUES (?, ?, 0)", line) for line in lines],
            seals=SEALED,
        )
        return cls(files, user)

    @cached_property
    def terms(self) -> Terms:
        """The terms that the user agreed to when joining."""
        return Terms.from_dict(json.loads(self._meta("terms")))

    @cached_property
    def draw_key(self) -> int:
        """The key of the user's random draws. Users who joined before devices had secrets have that of their id."""
        return secret_key(self.user, _meta(self.files, self.key, "secret") or "")

    @cached_property
    def key_pair(self) -> KeyPair:
        """The key pair for secure sums; made when it is first needed."""
        from fedforget.protocol.masking import KeyPair  # needs cryptography, which comes with fedforget[flower]

        stored = _meta(self.files, self.key, "sum_key")
        pair = KeyPair.new() if stored is None else KeyPair(bytes.fromhex(stored))
        if stored is None:
            self._set("sum_key", pair.private.hex())
        return pair

    def open_sums(self) -> dict[str, Any]:
        """The secure sums that the user contributed to, as ``device.secure_sums`` stores them."""
        return dict(json.loads(_meta(self.files, self.key, "sums") or "{}"))

    def keep_open_sums(self, sums: Mapping[str, Any]) -> None:
        """Store the secure sums that the user contributed to."""
        self._set("sums", json.dumps(sums))

    @property
    def newest_order(self) -> int:
        """The number of the newest order."""
        return int(self._meta("order"))

    def check(self) -> None:
        """Raise an error if the file is damaged."""
        self.files.check(self.key)

    def items(self, part: str, erased: int = 0) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The user's training or test items, sorted, and the rounds from which they count.

        Without those that the user asked to forget by its request number ``erased`` or before.
        """
        query = f"SELECT item, since FROM interaction WHERE part = ? AND item NOT IN ({UNWANTED}) ORDER BY item"
        lines = np.array(self.files.query(self.key, query, part, erased), np.int32).reshape(-1, 2)
        return lines[:, 0].copy(), lines[:, 1].copy()

    def add(self, items: Sequence[int]) -> int:
        """Add training items that count from the next round on; the number of new ones."""
        known = {item for (item,) in self.files.query(self.key, "SELECT item FROM interaction")}
        if unwanted := sorted(set(items).intersection(self.unwanted())):
            raise ConfigError(
                f"Item {unwanted[0]} of user {self.user!r} is about to be forgotten.", "Add it again when that is done."
            )
        new = sorted(set(items) - known)
        since = self.last_asked + 1
        lines: list[Statement] = [("INSERT INTO interaction VALUES (?, ?, ?)", (item, TRAIN, since)) for item in new]
        self.files.change(self.key, lines, seals=["interaction"])
        return len(new)

    def forget(self, items: Sequence[int]) -> int:
        """Remove items that were never trained on, and ask to forget the others; returns the number of the others.

        A user who has never been asked for a round here may have taken part on another device.
        """
        lines = self.files.query(self.key, "SELECT item, part, since FROM interaction")
        own = {item: (part, since) for item, part, since in lines}
        if missing := sorted(set(items) - set(own)):
            raise ConfigError(f"User {self.user!r} does not have item {missing[0]}.", "Name items that the user has.")
        trained = {item for item in items if own[item][0] == TRAIN and own[item][1] <= self.last_asked}
        unwanted = {*self.unwanted(), *items}
        first = self._number("first") or self.last_asked + 1
        if not any(part == TRAIN and since <= first for item, (part, since) in own.items() if item not in unwanted):
            raise ConfigError(
                f"User {self.user!r} would have no interactions left in a round that it took part in.",
                "Ask the operator to forget the user as a whole: fedforget forget RUN --users ID.",
            )
        number = self._number("request") + 1
        remove = [("DELETE FROM interaction WHERE item = ?", (item,)) for item in set(items) - trained]
        ask = [("INSERT OR IGNORE INTO unwanted VALUES (?, ?)", (item, number)) for item in sorted(trained)]
        self.files.change(self.key, [*remove, *ask, (SET_META, ("request", str(number)))], scrubbed=True, seals=SEALED)
        return len(trained)

    def learn_requests(self, number: int) -> None:
        """Take note of the number of a request that the server carried out and this device does not know.

        The user may have made it on another device. Requests that wait here get higher numbers.
        """
        known = self._number("request")
        if number > known:
            later = ("UPDATE unwanted SET number = number + ?", (number,))
            self.files.change(self.key, [later, (SET_META, ("request", str(number + known)))], seals=SEALED)

    def request(self, erased: int = 0) -> ItemsRequest | None:
        """The user's request to forget items, if there is one after the request number ``erased``."""
        query = """SELECT MAX(number), MIN(since), COUNT(*) FROM unwanted JOIN interaction USING (item)
        WHERE number > ?"""
        number, since, count = self.files.query(self.key, query, erased)[0]
        return ItemsRequest(self.user, number, max(since, 1), count) if count else None

    def unwanted(self, number: int = ALL_REQUESTS) -> list[int]:
        """The items that the user asked to forget, up to a request."""
        return [item for (item,) in self.files.query(self.key, UNWANTED, number)]

    def is_without(self, number: int, trajectory: str) -> bool:
        """Whether nothing is left of the unwanted items of a request and those before it, also not in old logs."""
        return self.trajectories() == [trajectory] and not self.unwanted(number)

    def erase(self, number: int) -> None:
        """Remove the unwanted items of a request and those before it."""
        if self.unwanted(number):
            remove = [f"DELETE FROM interaction WHERE item IN ({UNWANTED})", "DELETE FROM unwanted WHERE number <= ?"]
            self.files.change(self.key, [(statement, (number,)) for statement in remove], scrubbed=True, seals=SEALED)

    def accept(self, number: int, n_items: int) -> None:
        """Store the number of an order; refuse if it, or the size of the catalogue, is lower than before."""
        if number < self.newest_order:
            raise RefusedError(reasons.OUTDATED)
        if n_items < self.n_items:
            raise RefusedError(reasons.FEWER_ITEMS)
        self._set("order", str(number))

    def set_n_items(self, n_items: int) -> None:
        """Store the size of the catalogue, once a model of that size was received."""
        if n_items > self.n_items:
            self._set("items", str(n_items))

    @property
    def n_items(self) -> int:
        """The largest size of the catalogue that the user has seen."""
        return max(self._number("items"), self.terms.n_items)

    @property
    def last_asked(self) -> int:
        """The latest round that the user was asked for."""
        return self._number("round")

    def reached(self, first: int, last: int) -> None:
        """Store the first and the last round that the user was asked for: interactions added later count after it."""
        if last > self.last_asked:
            self._set("round", str(last))
        if not 0 < self._number("first") <= first:
            self._set("first", str(first))

    def store(self, trajectory: str) -> SqliteStore:
        """This user's log on a trajectory."""
        return SqliteStore(self.files.folder, self.files.federation, trajectory, [self.key], self.files)

    def follow(self, lineage: Lineage, counted: int) -> int | None:
        """Copy the log onto the last trajectory of a lineage; the last round copied, or None if it is not new.

        A device that has missed trajectories in between copies the rounds that all of them kept, and none after the
        last round that ``counted``. Call ``followed`` to complete the change.
        """
        names = [name for name, _ in lineage]
        stored = [name for name in self.trajectories() if name in names]
        if not stored:
            raise RefusedError(reasons.UNKNOWN_TRAJECTORY)
        newest = max(stored, key=names.index)
        if newest == names[-1]:
            return None
        until = min(counted, *(after for _, after in lineage[names.index(newest) + 1 :]))
        self.store(names[-1]).begin_as(self.store(newest), until)
        return until

    def followed(self, trajectory: str) -> None:
        """Store that the user is on a new trajectory."""
        self._set("trajectories", json.dumps([*self.trajectories(), trajectory]))

    def drop_all_but(self, trajectories: Sequence[str]) -> None:
        """Remove everything about other trajectories."""
        stored = self.trajectories()
        kept = [name for name in stored if name in trajectories]
        if len(kept) < len(stored):
            others = "trajectory NOT IN (SELECT value FROM json_each(?))"
            names = (json.dumps(list(trajectories)),)
            statements: list[Statement] = [
                (f"DELETE FROM {table} WHERE {others}", names) for table in ("entry", "private", "pending")
            ]
            statements.append((SET_META, ("trajectories", json.dumps(kept))))
            self.files.change(self.key, statements, scrubbed=True, seals=["meta"])

    def keep_pending(self, trajectory: str, round_: int, body: bytes) -> None:
        """Store a pending round."""
        self.files.change(self.key, [("INSERT OR REPLACE INTO pending VALUES (?, ?, ?)", (trajectory, round_, body))])

    def pending(self, trajectory: str, round_: int) -> Pending | None:
        """The pending round if it is this one; later ones are removed."""
        later = ("DELETE FROM pending WHERE trajectory = ? AND round > ?", (trajectory, round_))
        self.files.delete(self.key, [later])
        query = "SELECT body FROM pending WHERE trajectory = ? AND round = ?"
        found = self.files.query(self.key, query, trajectory, round_)
        try:
            return Pending.from_bytes(round_, self.key, found[0][0]) if found else None
        except (SafetensorError, KeyError, ValueError) as error:
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

    def trajectories(self) -> list[str]:
        """The trajectories in the file, oldest first."""
        found = _meta(self.files, self.key, "trajectories")
        return [ORIGIN[0][0]] if found is None else list(json.loads(found))

    def _meta(self, name: str) -> str:
        found = _meta(self.files, self.key, name)
        if found is None:
            raise RefusedError(reasons.NOT_ENROLLED)
        return found

    def _number(self, name: str) -> int:
        return int(_meta(self.files, self.key, name) or 0)

    def _set(self, name: str, value: str) -> None:
        self.files.change(self.key, [(SET_META, (name, value))], seals=["meta"])


def _meta(files: UserFiles, key: int, name: str) -> str | None:
    found = files.query(key, "SELECT value FROM meta WHERE name = ?", name)
    return str(found[0][0]) if found else None


def _check(user: UserId, n_items: int, train: NDArray[np.int64], test: NDArray[np.int64]) -> None:
    if not train.size:
        raise ConfigError(f"User {user!r} has no items to train on.", "Give at least one.")
    both = np.concatenate([train, test])
    outside = both[(both < 0) | (both >= n_items)]
    if outside.size:
        raise ConfigError(
            f"User {user!r} has item {outside[0]}, but the catalogue has {n_items:,} items.",
            "Items are positions in the federation's catalogue, from 0.",
        )
    repeated = np.intersect1d(train, test)
    if repeated.size:
        raise ConfigError(
            f"Item {repeated[0]} of user {user!r} is in both the training and the test items.", "Give it once."
        )


def user_of(files: UserFiles, key: int) -> UserId | None:
    """The user of a file; None if no user is enrolled in it. A file that is not that of its user is damaged."""
    found = _meta(files, key, "user")
    if found is None and not files.query(key, "SELECT 1 FROM interaction LIMIT 1"):
        return None
    try:
        user: UserId = json.loads(found or "")
        if user_key(user) != key:
            raise ValueError("it names another user")
    except (ValueError, TypeError) as error:
        raise DamagedError(files.path(key), error) from error
    return user


def sweep(folder: Path) -> None:
    """Overwrite the files of removed users with zeros and delete them, also those left by a killed process.

    On disks that write in place, nothing of them remains.
    """
    for file in folder.glob(f"*{GONE}"):
        with file.open("r+b") as handle:
            handle.write(bytes(file.stat().st_size))
            handle.flush()
            os.fsync(handle.fileno())
        file.unlink()
