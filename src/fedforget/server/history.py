"""History: the rounds of a run, so that it can be continued and rolled back.

``history.sqlite`` holds

    meta(name TEXT PRIMARY KEY, value TEXT)                        format of the folder, lineage
    member(user PRIMARY KEY, since INTEGER)                        users, and the round from which they may take part
    item(place INTEGER PRIMARY KEY, id, since INTEGER)             items added after the start (``server.catalogue``)
    addition(number INTEGER PRIMARY KEY, since INTEGER)            additions of users, items or interactions
    suppressed(hash TEXT PRIMARY KEY)                              keyed hashes of forgotten users
    erased(user PRIMARY KEY, number INTEGER)                       on a network: each member's last request to forget
                                                                   items that is carried out (``server.membership``)
    round(round INTEGER PRIMARY KEY, checksum TEXT, loss REAL, seconds REAL, training REAL, sent INTEGER,
          epochs INTEGER)                                          checksum of the snapshot: '' if there is none
    participant(round INTEGER, user, outcome TEXT)                 outcome: 'ok', or the reason for a missing update
    seal(round INTEGER PRIMARY KEY, digest TEXT)                   digests of rounds and their participants
    receipt(request TEXT PRIMARY KEY, receipt TEXT)                receipts of erasures, as JSON
    fallback(file TEXT, text TEXT, round INTEGER, users INTEGER)   see ``server.fallback_table``
    table_seal(name TEXT PRIMARY KEY, digest TEXT)                 digests of the other tables (``runtime.table_seals``)

Round 0 is the initial state. A round exists once its row is committed; its snapshot is written before that, so a crash
leaves at most a snapshot without a row. Rounds that were replayed in one step have one snapshot, after the last.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedforget.errors import RunError
from fedforget.models import GlobalParameters, Layout
from fedforget.protocol.device_config import DeviceConfig
from fedforget.protocol.order import ORIGIN, Lineage, Sizes
from fedforget.runtime.database import check_database, open_database, transaction
from fedforget.runtime.files import link_file
from fedforget.runtime.randomness import ItemId, UserId
from fedforget.runtime.table_seals import check_seals, sealed
from fedforget.server import catalogue, fallback_table, membership
from fedforget.server.catalogue import Catalogue, grown
from fedforget.server.fallback_table import FallbackTable
from fedforget.server.membership import Membership
from fedforget.server.snapshots import Snapshots
from fedforget.server.state import ServerState

FORMAT = 3

TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS round (
    round INTEGER PRIMARY KEY, checksum TEXT NOT NULL, loss REAL, seconds REAL NOT NULL, training REAL NOT NULL,
    sent INTEGER NOT NULL, epochs INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS participant (
    round INTEGER NOT NULL, user NOT NULL, outcome TEXT NOT NULL, PRIMARY KEY (round, user)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS participant_user ON participant (user, round);
CREATE TABLE IF NOT EXISTS seal (round INTEGER PRIMARY KEY, digest TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS receipt (request TEXT PRIMARY KEY, receipt TEXT NOT NULL);
"""
SCHEMA = TABLES + membership.SCHEMA + catalogue.SCHEMA + fallback_table.SCHEMA
#: The tables with a digest each; rounds have one each.
SEALED = ("meta", "member", "addition", "suppressed", "erased", "item", "receipt", "fallback")


@dataclass(frozen=True)
class RoundRecord:
    """One finished round: its participants, the mean loss they report (None if nobody did), and its duration.

    ``training`` is the part of ``seconds`` that devices trained, for ``epochs`` epochs; ``sent`` is the size of their
    updates in bytes.
    """

    round: int
    participants: Sequence[UserId]
    loss: float | None
    seconds: float
    failures: Mapping[UserId, str] = field(default_factory=dict)
    training: float = 0.0
    sent: int = 0
    epochs: int = 0


#: Called after every round.
OnRound = Callable[[RoundRecord], None]


class History:
    """The rounds and snapshots of one trajectory, in a folder, or in memory when there is none.

    The latest snapshot is always kept; of those before it, every ``snapshot_every``-th.
    """

    def __init__(self, folder: Path | None, layout: Layout, snapshot_every: int = 1) -> None:
        self.folder = folder
        self.snapshot_every = snapshot_every
        self._snapshots = Snapshots(folder, layout)
        self._newest_seen = -1
        self.path = (folder or Path()) / "history.sqlite"
        if folder is not None:
            check_database(self.path, may_be_empty=not any((folder / "snapshots").glob("*.safetensors")))
        self._db = open_database(None if folder is None else self.path, SCHEMA)
        self._db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        found = self._meta("format")
        if found != str(FORMAT) and (found or self._meta("hash_key")):
            raise RunError(
                f"{self.path} has format {found}; this version of fedforget reads format {FORMAT}.",
                "Use the version of fedforget that wrote it, or start a new run in another folder.",
            )
        if folder is not None:
            check_seals(self._db, self.path, SCHEMA)
        if self._meta("hash_key") is None:
            with sealed(self._db, "meta"):
                self._db.execute("INSERT OR IGNORE INTO meta VALUES ('format', ?)", (str(FORMAT),))
                self._db.execute("INSERT INTO meta VALUES ('hash_key', ?)", (secrets.token_hex(16),))
        self.membership = Membership(self._db)
        self.catalogue = Catalogue(self._db)
        self.fallbacks = FallbackTable(self._db)

    def close(self) -> None:
        self._db.close()

    @property
    def config_digest(self) -> str | None:
        """The digest of the run's configuration, so that a change of its file is noticed."""
        return self._meta("config")

    def set_config_digest(self, digest: str) -> None:
        with sealed(self._db, "meta"):
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('config', ?)", (digest,))

    @property
    def last_round(self) -> int:
        """The last finished round; 0 before the first, -1 before the initial parameters are stored."""
        row = self._db.execute("SELECT MAX(round) FROM round").fetchone()
        self._newest_seen = -1 if row[0] is None else int(row[0])
        return self._newest_seen

    def single_rounds(self) -> set[int]:
        """The rounds that were not replayed together with others."""
        return {end for before, end in itertools.pairwise(self.steps_after(-1)) if end == before + 1}

    def commit(self, records: Sequence[RoundRecord], state: ServerState) -> None:
        """Add the next round, or all rounds of a replay step, with the state after the last of them."""
        before = self.last_round
        for previous, record in enumerate(records, start=before):
            if record.round != previous + 1:
                raise RunError(
                    f"Round {record.round} cannot follow round {previous}.", "Rounds are committed in order."
                )
        last = records[-1].round
        self._snapshots.save(last, state)
        rows = [
            (r.round, state.checksum if r.round == last else "", r.loss, r.seconds, r.training, r.sent, r.epochs)
            for r in records
        ]
        outcomes = [(record.round, user, "ok") for record in records for user in record.participants]
        outcomes += [(record.round, *failure) for record in records for failure in record.failures.items()]
        with sealed(self._db, *(["meta"] if before < 0 else [])):
            self._db.executemany("INSERT INTO round VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            self._db.executemany("INSERT INTO participant VALUES (?, ?, ?)", outcomes)
            if self.folder is not None:
                self._seal([record.round for record in records])
            if before < 0:
                size = (str(state.public.items.shape[0]),)
                self._db.execute("INSERT OR REPLACE INTO meta VALUES ('items', ?)", size)
        self._newest_seen = last
        self._thin(before)

    def steps_after(self, round_: int) -> list[int]:
        """The last round of each step after a round: every round, except those replayed together with the next."""
        query = "SELECT round FROM round WHERE round > ? AND checksum != '' ORDER BY round"
        return [int(row[0]) for row in self._db.execute(query, (round_,))]

    def last_active_round(self, until: int) -> int:
        """The last round up to this one in which anyone took part; 0 if there is none."""
        query = "SELECT COALESCE(MAX(round), 0) FROM participant WHERE outcome = 'ok' AND round <= ?"
        return int(self._db.execute(query, (until,)).fetchone()[0])

    def record(self, round_: int) -> RoundRecord:
        loss, seconds, *rest = self._row(round_, "loss, seconds, training, sent, epochs")
        outcomes = self._outcomes(round_)
        sealed = self._db.execute("SELECT digest FROM seal WHERE round = ?", (round_,)).fetchone()
        if sealed is not None and sealed[0] != self._digest(round_, outcomes):
            raise RunError(f"{self.path} is damaged: round {round_} does not match its digest.", "Restore it.")
        participants = [user for user, outcome in outcomes if outcome == "ok"]
        failures = {user: outcome for user, outcome in outcomes if outcome != "ok"}
        return RoundRecord(round_, participants, loss, seconds, failures, *rest)

    def _outcomes(self, round_: int) -> list[tuple[UserId, str]]:
        query = "SELECT user, outcome FROM participant WHERE round = ? ORDER BY user"
        return self._db.execute(query, (round_,)).fetchall()

    def _digest(self, round_: int, outcomes: Sequence[tuple[UserId, str]]) -> str:
        """A digest of what a replay of a round depends on; outcomes are in the order of users."""
        checksum, epochs = self._row(round_, "checksum, epochs")
        content = json.dumps([round_, checksum, epochs, outcomes])
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()

    def _seal(self, rounds: Iterable[int]) -> None:
        """Store the digests of rounds; the caller holds a transaction."""
        rows = [(round_, self._digest(round_, self._outcomes(round_))) for round_ in rounds]
        self._db.executemany("INSERT OR REPLACE INTO seal VALUES (?, ?)", rows)

    def last_rounds(self, users: Sequence[UserId], before: int) -> list[int]:
        """The last round before this one in which each of these users took part; 0 for none."""
        query = "SELECT COALESCE(MAX(round), 0) FROM participant WHERE outcome = 'ok' AND user = ? AND round < ?"
        return [int(self._db.execute(query, (user, before)).fetchone()[0]) for user in users]

    def active_rounds(self, until: int) -> list[int]:
        """The rounds up to this one in which anyone took part."""
        query = "SELECT DISTINCT round FROM participant WHERE outcome = 'ok' AND round <= ? ORDER BY round"
        return [row[0] for row in self._db.execute(query, (until,))]

    def took_part(self, until: int) -> list[UserId]:
        """The users who took part in any round up to this one."""
        query = "SELECT DISTINCT user FROM participant WHERE outcome = 'ok' AND round <= ?"
        return [row[0] for row in self._db.execute(query, (until,))]

    def first_round_of(self, users: Sequence[UserId]) -> int | None:
        """The first round in which any of these users took part; None if none ever did."""
        query = "SELECT MIN(round) FROM participant WHERE outcome = 'ok' AND user IN (SELECT value FROM json_each(?))"
        first = self._db.execute(query, (json.dumps(list(users)),)).fetchone()[0]
        return None if first is None else int(first)

    def first_round_since(self, user: UserId, round_: int) -> int | None:
        """The first round from this one on in which a user took part; None if there is none."""
        query = "SELECT MIN(round) FROM participant WHERE outcome = 'ok' AND user = ? AND round >= ?"
        first = self._db.execute(query, (user, round_)).fetchone()[0]
        return None if first is None else int(first)

    def extend(self, number: int, since: int, users: Sequence[UserId], items: Sequence[ItemId]) -> None:
        """Record an addition: new users and items count from a round on. Users are no longer suppressed."""
        with sealed(self._db, "member", "addition", "suppressed", "item"):
            self.membership.add(number, since, users)
            self.catalogue.extend(items, since)

    def size(self, round_: int) -> int:
        """The number of items that count in a round."""
        return self.base_size() + self.catalogue.added(round_)

    def sizes(self) -> Sizes:
        """The number of items from each of some rounds on."""
        base = self.base_size()
        return ((0, base), *((since, base + added) for since, added in self.catalogue.sizes()))

    def base_size(self) -> int:
        """The number of items at the start."""
        return int(self._meta("items") or 0)

    def grown(self, state: ServerState, round_: int, config: DeviceConfig) -> ServerState:
        """A state with a row for every item that counts in a round."""
        return grown(state, self.size(round_), self.base_size(), self.catalogue, config)

    @staticmethod
    def extensions(folder: Path) -> tuple[int, list[ItemId]]:
        """The number of additions and the added items, according to the history in a folder."""
        if not (folder / "history.sqlite").exists():
            return 0, []
        with closing(open_database(folder / "history.sqlite", SCHEMA)) as db:
            try:
                return Membership(db).additions(), Catalogue(db).ids()
            except sqlite3.Error as error:
                raise RunError(f"{folder / 'history.sqlite'} is damaged: {error}.", "Restore it.") from error

    @staticmethod
    def replayed(folder: Path) -> tuple[int, int]:
        """The round after which the replay in a folder began, and the last one that is done; another process writes it.

        0 and 0 if there is nothing to see yet.
        """
        path = folder / "history.sqlite"
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            (lineage,) = db.execute("SELECT value FROM meta WHERE name = 'lineage'").fetchone() or ("[[0, 0]]",)
            (last,) = db.execute("SELECT COALESCE(MAX(round), 0) FROM round").fetchone()
            start = int(json.loads(lineage)[-1][1])
            return start, max(int(last), start)
        return 0, 0

    def add_receipt(self, request: str, receipt: str) -> None:
        """Store a receipt, as JSON; it replaces an earlier one of the same request."""
        with sealed(self._db, "receipt"):
            put = "INSERT INTO receipt VALUES (?, ?) ON CONFLICT (request) DO UPDATE SET receipt = excluded.receipt"
            self._db.execute(put, (request, receipt))

    def receipts(self) -> dict[str, str]:
        """All receipts by request, as JSON, in the order of the erasures."""
        return dict(self._db.execute("SELECT request, receipt FROM receipt ORDER BY rowid"))

    @property
    def lineage(self) -> Lineage:
        """This trajectory and those before it, oldest first."""
        lineage = self._meta("lineage")
        return ORIGIN if lineage is None else tuple((name, after) for name, after in json.loads(lineage))

    def branch(self, folder: Path | None, until: int, without: Sequence[UserId], name: str) -> History:
        """A new history with the rounds of this one up to ``until``, without any entry of some users."""
        other = History(folder, self._snapshots.layout, self.snapshot_every)
        self.copy_to(other, until, without)
        lineage = json.dumps([*self.lineage, (name, until)])
        with sealed(other._db, "meta"):
            other._db.execute("INSERT OR REPLACE INTO meta VALUES ('lineage', ?)", (lineage,))
        return other

    def copy_to(self, other: History, until: int, without: Sequence[UserId] = ()) -> None:
        """Copy the rounds up to ``until`` into an empty history, without any entry of some users."""
        forgotten = set(without)
        with sealed(other._db, *SEALED):
            self.membership.copy_to(other._db, forgotten)
            kept = self._db.execute("SELECT name, value FROM meta WHERE name IN ('items', 'hash_key')")
            other._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", kept)
            other._db.executemany("INSERT INTO item VALUES (?, ?, ?)", self.catalogue.rows())
            for row in self._db.execute("SELECT * FROM round WHERE round <= ?", (until,)):
                other._db.execute("INSERT INTO round VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            changed = set()
            for row in self._db.execute("SELECT * FROM participant WHERE round <= ?", (until,)):
                if row[1] not in forgotten:
                    other._db.execute("INSERT INTO participant VALUES (?, ?, ?)", row)
                else:  # the mean loss of a round includes the losses of forgotten users
                    other._db.execute("UPDATE round SET loss = NULL WHERE round = ?", row[:1])
                    changed.add(row[0])
            seals = self._db.execute("SELECT round, digest FROM seal WHERE round <= ?", (until,)).fetchall()
            other._db.executemany("INSERT INTO seal VALUES (?, ?)", [row for row in seals if row[0] not in changed])
            other._seal(sorted(changed))
            other._db.executemany("INSERT INTO receipt VALUES (?, ?)", self._db.execute("SELECT * FROM receipt"))
            self.fallbacks.copy_to(other._db)
        for round_ in self.usable_rounds():
            if round_ > until:
                continue
            if self.folder is None or other.folder is None:
                other._snapshots.save(round_, self.state(round_))
            else:
                link_file(self._snapshots.path(round_), other._snapshots.path(round_))

    def snapshot(self, round_: int) -> GlobalParameters:
        """The public parameters after a round."""
        return self.state(round_).public

    def state(self, round_: int) -> ServerState:
        """The server's state after a round, checked against the checksum stored with it."""
        (checksum,) = self._row(round_, "checksum")
        if round_ not in self.usable_rounds():
            if round_ == self._newest_seen != self.last_round:
                reason = "Another process has trained on, and removed it."
                raise RunError(f"There is no snapshot of round {round_} any more. {reason}", "Open the run again.")
            raise RunError(
                f"There is no snapshot of round {round_}.",
                f"Every {self.snapshot_every}-th snapshot is kept (snapshot_every), and rounds that were replayed in "
                "one step have one, after the last of them.",
            )
        return self._snapshots.load(round_, checksum)

    def moved(self, first: int, last: int) -> float:
        """The distance that the item table moved from before round ``first`` to after round ``last``.

        Without a snapshot of either, it is interpolated from the nearest snapshots around them.
        """
        usable = self.usable_rounds()
        start, before = self._readable([round_ for round_ in usable if round_ < first])
        end, after = self._readable([round_ for round_ in reversed(usable) if round_ >= last])
        shared = min(len(before.items), len(after.items))  # items may have been added in between
        distance = float(np.linalg.norm(after.items[:shared] - before.items[:shared]))
        return distance * (last - first + 1) / (end - start)

    def _readable(self, rounds: Sequence[int]) -> tuple[int, GlobalParameters]:
        """The first of these rounds whose snapshot is not damaged, and its public parameters."""
        for round_ in rounds[:-1]:
            with suppress(RunError):
                return round_, self.snapshot(round_)
        return rounds[-1], self.snapshot(rounds[-1])

    def drop_after(self, round_: int) -> None:
        """Remove every round after this one, and files that a crash left behind."""
        with transaction(self._db, scrubbed=True):
            for table in ("participant", "round", "seal"):
                self._db.execute(f"DELETE FROM {table} WHERE round > ?", (round_,))
        self._snapshots.keep_only(end for end in self.steps_after(-1) if self._keeps(end) or end == round_)

    def missing_snapshots(self) -> list[Path]:
        """The files of snapshots that should be there and are not."""
        steps = self.steps_after(-1)
        kept = [end for before, end in itertools.pairwise([-1, *steps]) if self._kept(before, end)]
        expected, there = dict.fromkeys([*kept, *steps[-1:]]), set(self.usable_rounds())
        return [self._snapshots.path(round_) for round_ in expected if round_ not in there]

    def usable_rounds(self) -> list[int]:
        """The rounds that have a snapshot, latest first."""
        return self._snapshots.stored(reversed(self.steps_after(-1)))

    def _row(self, round_: int, columns: str) -> tuple[Any, ...]:
        row = self._db.execute(f"SELECT {columns} FROM round WHERE round = ?", (round_,)).fetchone()
        if row is None:
            raise RunError(f"Round {round_} is not in the history.", f"The last one is {self.last_round}.")
        return tuple(row)

    def _meta(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _keeps(self, round_: int) -> bool:
        """Whether the snapshot of a round is kept: if its step includes a multiple of ``snapshot_every``."""
        before = self._db.execute("SELECT MAX(round) FROM round WHERE checksum != '' AND round < ?", (round_,))
        return self._kept(before.fetchone()[0] or 0, round_)

    def _kept(self, before: int, end: int) -> bool:
        return end // self.snapshot_every > before // self.snapshot_every or end == 0

    def _thin(self, round_: int) -> None:
        if round_ > 0 and not self._keeps(round_):
            self._snapshots.remove(round_)
