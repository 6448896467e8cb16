"""NodeRegistry: the nodes of a federation on a network, their users, and open wipe orders.

``registry.sqlite`` in the run's folder holds

    node(key TEXT PRIMARY KEY, id TEXT UNIQUE)                     a node's public key, and its number on the network
    user(user PRIMARY KEY, key TEXT)                               the key of the node that a user is on
    held(user, key TEXT)                                           former nodes of users, which may still have data
    wipe(pseudonym TEXT PRIMARY KEY, salt TEXT, key TEXT, request TEXT, confirmed INTEGER)
        wipe orders: the salt of the pseudonym is stored only here, and removed when the order is confirmed
    removal(number INTEGER PRIMARY KEY, user, pseudonym TEXT, request TEXT, confirmed INTEGER)
        users who stay and whose forgotten items their devices must remove; without the user once it is confirmed, and
        with the pseudonym of a wipe order if the user is forgotten as a whole before
    items_request(user PRIMARY KEY, number INTEGER, since INTEGER, count INTEGER)
        requests to forget items that devices sent
    known_items(key TEXT PRIMARY KEY, added INTEGER)               the number of added items whose ids a node has
    sum_key(user PRIMARY KEY, public BLOB)                         the public keys of users' devices for secure sums
    readmitted(user PRIMARY KEY)                                   forgotten users who may take part again
    counter(name TEXT PRIMARY KEY, value INTEGER)                  the number of the last order that was sent
    table_seal(name TEXT PRIMARY KEY, digest TEXT)                 digests of tables (``runtime.table_seals``)

Known items have no digest: they change with every message, and devices send them again.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedforget.errors import ConfigError
from fedforget.protocol.notice import ItemsRequest
from fedforget.protocol.pseudonym import pseudonym
from fedforget.runtime.database import check_database, open_database, transaction
from fedforget.runtime.randomness import UserId
from fedforget.runtime.table_seals import SCHEMA as TABLE_SEALS
from fedforget.runtime.table_seals import check_seals, sealed

SCHEMA = (
    """
CREATE TABLE IF NOT EXISTS node (key TEXT PRIMARY KEY, id TEXT NOT NULL UNIQUE) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS user (user PRIMARY KEY, key TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS held (user NOT NULL, key TEXT NOT NULL, PRIMARY KEY (user, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS wipe (
    pseudonym TEXT PRIMARY KEY, salt TEXT NOT NULL, key TEXT NOT NULL, request TEXT NOT NULL,
    confirmed INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS removal (
    number INTEGER PRIMARY KEY, user, pseudonym TEXT, request TEXT NOT NULL, confirmed INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS items_request (
    user PRIMARY KEY, number INTEGER NOT NULL, since INTEGER NOT NULL, count INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS known_items (key TEXT PRIMARY KEY, added INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sum_key (user PRIMARY KEY, public BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS readmitted (user PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
    + TABLE_SEALS
)
NODES = "SELECT user, id FROM user JOIN node USING (key)"


@dataclass(frozen=True)
class WipeOrder:
    """A forgotten user whose data a node must wipe, named by a pseudonym."""

    pseudonym: str
    salt: str
    node: int
    request: str


class Wiped(NamedTuple):
    """Devices that have confirmed, all that must, and those that were given up."""

    confirmed: int
    total: int
    given_up: int


class NodeRegistry:
    """The nodes and users of one federation, in a file or, without a folder, in memory.

    Once a model was trained, the file must be there.
    """

    def __init__(self, folder: Path | None) -> None:
        path = None if folder is None else folder / "registry.sqlite"
        if folder is not None and path is not None:
            check_database(path, may_be_empty=not any(folder.glob("trajectory-*/snapshots/*.safetensors")))
        self._db = open_database(path, SCHEMA)
        if path is not None:
            check_seals(self._db, path, SCHEMA)

    def close(self) -> None:
        self._db.close()

    def register(self, key: str, node: int, users: Iterable[UserId], readmitted: Iterable[UserId] = ()) -> None:
        """Register users on a node, which is identified by its public key.

        ``readmitted`` are those of them who were forgotten before and may take part again.
        """
        key = bare_key(key)
        users = list(users)
        if len({type(user) for user in (*users, *self.users()[:1])}) > 1:
            raise ConfigError(
                f"Ids of two types: {', '.join(repr(user) for user in users[:5])}.",
                "In one federation all user ids are whole numbers, or all are strings.",
            )
        if not_wiped := self.leaving(users):
            raise ConfigError(
                f"User {not_wiped[0]!r} was forgotten, and its device has not confirmed the wipe yet.",
                "Wait until it has, or delete the user's file on the device, before the user joins again.",
            )
        for user in users:
            found = self._db.execute("SELECT key FROM user WHERE user = ?", (user,)).fetchone()
            if found is not None and found[0] != key:
                raise ConfigError(
                    f"User {user!r} is registered with another key, {_shortened(found[0])}.",
                    "A user has one key: release the user first, or use that key.",
                )
        with sealed(self._db, "node", "user", "readmitted"):
            self._db.execute("DELETE FROM node WHERE id = ?", (str(node),))
            self._db.execute("INSERT OR REPLACE INTO node VALUES (?, ?)", (key, str(node)))
            self._db.execute("DELETE FROM known_items WHERE key = ?", (key,))
            self._db.executemany("INSERT OR IGNORE INTO user VALUES (?, ?)", [(user, key) for user in users])
            self._db.executemany("INSERT OR IGNORE INTO readmitted VALUES (?)", [(user,) for user in readmitted])

    def leaving(self, users: Iterable[UserId]) -> list[UserId]:
        """Those of these users who were forgotten and whose device has not confirmed the wipe."""
        orders = self._db.execute("SELECT pseudonym, salt FROM wipe WHERE confirmed = 0").fetchall()
        return [user for user in users if any(pseudonym(user, salt) == name for name, salt in orders)]

    def release(self, users: Iterable[UserId]) -> None:
        """Remove users from their nodes, so that they can be registered on others.

        If such a user is forgotten later, the former node is told to wipe too.
        """
        users = list(users)
        with sealed(self._db, "user", "held", "sum_key"):
            former = "INSERT OR IGNORE INTO held SELECT user, key FROM user WHERE user = ?"
            self._db.executemany(former, [(user,) for user in users])
            self._db.executemany("DELETE FROM user WHERE user = ?", [(user,) for user in users])
            self._db.executemany("DELETE FROM sum_key WHERE user = ?", [(user,) for user in users])

    def users(self) -> list[UserId]:
        return [row[0] for row in self._db.execute("SELECT user FROM user")]

    def by_node(self) -> dict[int, list[UserId]]:
        users: dict[int, list[UserId]] = {}
        for user, node in self._db.execute(f"{NODES} ORDER BY user"):
            users.setdefault(int(node), []).append(user)
        return users

    def nodes_of(self, users: Sequence[UserId]) -> Mapping[UserId, int]:
        """The node of each of these users; users without one are left out."""
        rows = [self._db.execute(f"{NODES} WHERE user = ?", (user,)).fetchone() for user in users]
        return {row[0]: int(row[1]) for row in rows if row is not None}

    def next_number(self) -> int:
        """A number for an order, higher than all before, even if a backup was restored or the clock was set back."""
        with sealed(self._db, "counter"):
            row = self._db.execute("SELECT value FROM counter WHERE name = 'order'").fetchone()
            number = max(time.time_ns(), int(row[0]) + 1 if row else 0)
            self._db.execute("INSERT OR REPLACE INTO counter VALUES ('order', ?)", (number,))
        return number

    def sum_keys(self, users: Iterable[UserId]) -> dict[UserId, bytes]:
        """The public keys of users' devices for secure sums, as far as they are known."""
        query = "SELECT user, public FROM sum_key WHERE user IN (SELECT value FROM json_each(?))"
        return dict(self._db.execute(query, (json.dumps(list(users)),)))

    def set_sum_keys(self, keys: Mapping[UserId, bytes]) -> None:
        """Store public keys for secure sums."""
        with sealed(self._db, "sum_key"):
            self._db.executemany("INSERT OR REPLACE INTO sum_key VALUES (?, ?)", keys.items())

    def drop_sum_keys(self, users: Iterable[UserId]) -> None:
        """Remove keys that are not those of the users' devices any more; they are asked for again."""
        with sealed(self._db, "sum_key"):
            self._db.executemany("DELETE FROM sum_key WHERE user = ?", [(user,) for user in users])

    def readmitted(self) -> set[UserId]:
        """The users who were forgotten and may take part again."""
        return {row[0] for row in self._db.execute("SELECT user FROM readmitted")}

    def admitted(self, users: Iterable[UserId]) -> None:
        """Remove the mark of readmitted users once they are members."""
        with sealed(self._db, "readmitted"):
            self._db.executemany("DELETE FROM readmitted WHERE user = ?", [(user,) for user in users])

    def known_items(self, nodes: Iterable[int]) -> dict[int, int]:
        """The number of added items whose ids each node has."""
        query = "SELECT added FROM known_items JOIN node USING (key) WHERE id = ? AND typeof(added) = 'integer'"
        rows = {node: self._db.execute(query, (str(node),)).fetchone() for node in nodes}
        return {node: int(row[0]) if row else 0 for node, row in rows.items()}

    def set_known_items(self, node: int, added: int) -> None:
        """Store the number of added items whose ids a node has."""
        put = "INSERT OR REPLACE INTO known_items SELECT key, ? FROM node WHERE id = ?"
        with transaction(self._db):
            self._db.execute(put, (added, str(node)))

    def ask(self, requests: Iterable[ItemsRequest]) -> None:
        """Store requests to forget items that devices sent; a later one of a user replaces the one before."""
        later = "SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM items_request WHERE user = ?1 AND number > ?2)"
        rows = [(request.user, request.number, request.since, request.count) for request in requests]
        with sealed(self._db, "items_request"):
            self._db.executemany(f"INSERT OR REPLACE INTO items_request {later}", rows)

    def items_requests(self) -> list[ItemsRequest]:
        """The requests of users to forget items."""
        rows = self._db.execute("SELECT user, number, since, count FROM items_request ORDER BY number").fetchall()
        return [ItemsRequest(*row) for row in rows]

    def drop_requests(self, requests: Iterable[ItemsRequest]) -> None:
        """Remove requests to forget items. A device whose request is not carried out asks again."""
        with sealed(self._db, "items_request"):
            done = [(request.user, request.number) for request in requests]
            self._db.executemany("DELETE FROM items_request WHERE user = ? AND number <= ?", done)

    def add_removals(self, users: Iterable[UserId], request: str) -> None:
        """Store that the devices of users who stay must remove the items that a request forgot."""
        if self._db.execute("SELECT 1 FROM removal WHERE request = ?", (request,)).fetchone() is None:
            with sealed(self._db, "removal"):
                rows = [(user, request) for user in users]
                self._db.executemany("INSERT INTO removal (user, request, confirmed) VALUES (?, ?, 0)", rows)

    def open_removals(self) -> list[UserId]:
        """The users whose devices have not confirmed that forgotten items are removed."""
        return [row[0] for row in self._db.execute("SELECT DISTINCT user FROM removal WHERE user IS NOT NULL")]

    def confirm_removals(self, users: Iterable[UserId]) -> None:
        """Store that the devices of these users have removed forgotten items."""
        with sealed(self._db, "removal"):
            done = "UPDATE removal SET user = NULL, confirmed = 1 WHERE user = ?"
            self._db.executemany(done, [(user,) for user in users])

    def remove_users(self, users: Iterable[UserId], request: str) -> None:
        """Remove forgotten users, and add wipe orders for their nodes."""
        with sealed(
            self._db, "user", "held", "wipe", "removal", "items_request", "readmitted", "sum_key", scrubbed=True
        ):
            for user in users:
                self._db.execute("DELETE FROM items_request WHERE user = ?", (user,))
                self._db.execute("DELETE FROM sum_key WHERE user = ?", (user,))
                self._db.execute("DELETE FROM readmitted WHERE user = ?", (user,))
                holders = "SELECT key FROM user WHERE user = ?1 UNION SELECT key FROM held WHERE user = ?1"
                for (key,) in self._db.execute(holders, (user,)).fetchall():
                    salt = secrets.token_hex(16)
                    order = (pseudonym(user, salt), salt, key, request)
                    self._db.execute("INSERT INTO wipe VALUES (?, ?, ?, ?, 0)", order)
                    superseded = "UPDATE removal SET user = NULL, pseudonym = ? WHERE user = ?"
                    self._db.execute(superseded, (order[0], user))
                self._db.execute("DELETE FROM user WHERE user = ?", (user,))
                self._db.execute("DELETE FROM held WHERE user = ?", (user,))

    def wipe_orders(self) -> list[WipeOrder]:
        """The wipe orders that were not confirmed."""
        rows = self._db.execute(
            "SELECT pseudonym, salt, id, request FROM wipe JOIN node USING (key) WHERE confirmed = 0"
        )
        return [WipeOrder(name, salt, int(node), request) for name, salt, node, request in rows.fetchall()]

    def confirm(self, orders: Iterable[WipeOrder]) -> None:
        """Mark orders as carried out, and remove nodes that have no users and no orders."""
        done = "UPDATE wipe SET pseudonym = hex(randomblob(16)), salt = '', key = '', confirmed = 1 WHERE pseudonym = ?"
        with sealed(self._db, "wipe", "removal", "node", scrubbed=True):
            self._db.executemany(done, [(order.pseudonym,) for order in orders])
            self._db.executemany(
                "UPDATE removal SET pseudonym = NULL, confirmed = 1 WHERE pseudonym = ?",
                [(order.pseudonym,) for order in orders],
            )
            used = "SELECT key FROM user UNION SELECT key FROM wipe UNION SELECT key FROM held"
            self._db.execute(f"DELETE FROM node WHERE key NOT IN ({used})")
            self._db.execute("DELETE FROM known_items WHERE key NOT IN (SELECT key FROM node)")

    def give_up(self, request: str) -> int:
        """Give up the orders of a request that were not confirmed, since the devices are lost; returns their number."""
        with sealed(self._db, "wipe", "removal", scrubbed=True):
            wipe = "UPDATE wipe SET pseudonym = hex(randomblob(16)), salt = '', key = '', confirmed = -1"
            lost = self._db.execute(f"{wipe} WHERE request = ? AND confirmed = 0", (request,)).rowcount
            removal = "UPDATE removal SET user = NULL, pseudonym = NULL, confirmed = -1"
            lost += self._db.execute(f"{removal} WHERE request = ? AND confirmed = 0", (request,)).rowcount
        return lost

    def wiped(self) -> dict[str, Wiped]:
        """How many of the devices that must remove something for a request have confirmed, or were given up."""
        both = "SELECT request, confirmed FROM wipe UNION ALL SELECT request, confirmed FROM removal"
        counts = "SUM(confirmed = 1), COUNT(*), SUM(confirmed = -1)"
        rows = self._db.execute(f"SELECT request, {counts} FROM ({both}) GROUP BY request").fetchall()
        return {request: Wiped(confirmed, total, lost) for request, confirmed, total, lost in rows}


def bare_key(key: str) -> str:
    """A public key in OpenSSH format, without its comment."""
    parts = key.split()
    if len(parts) < 2 or not parts[0].startswith(("ecdsa-", "ssh-")):
        raise ConfigError(f"{_shortened(key)} is not a public key.", "Give the content of the node's .pub file.")
    return " ".join(parts[:2])


def _shortened(key: str) -> str:
    return repr(key if len(key) <= 40 else f"{key[:20]}…{key[-16:]}")
