"""History: what the server remembers of a run, so that it can be continued and, later, rolled back.

``history.sqlite`` holds

    meta(name TEXT PRIMARY KEY, value TEXT)                        format of the folder, lineage
    member(user PRIMARY KEY)                                       who is in the federation
    round(round INTEGER PRIMARY KEY, checksum TEXT, loss REAL, seconds REAL, training REAL, sent INTEGER,
          epochs INTEGER)                                          checksum: '' for a round inside a replay step
    participant(round INTEGER, user, outcome TEXT)                 outcome: 'ok' or why there was no update
    receipt(request TEXT PRIMARY KEY, receipt TEXT)                what erasures did, as JSON

and ``snapshots/NNNNNN.safetensors`` the public parameters and the optimiser's state after a round (000000: before the
first). A round exists once its row is committed; its snapshot is written before that, so a crash leaves at most a file
without a row. Rounds that were replayed together as one step have one state, after the last of them.
"""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedforget.errors import RunError
from fedforget.models import GlobalParameters, Layout
from fedforget.protocol.order import ORIGIN, Lineage
from fedforget.runtime.database import open_database, scrub
from fedforget.runtime.files import cannot_write, link_file, make_folder, write_file
from fedforget.runtime.randomness import UserId
from fedforget.server.state import ServerState

FORMAT = 2

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS member (user PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS round (
    round INTEGER PRIMARY KEY, checksum TEXT NOT NULL, loss REAL, seconds REAL NOT NULL, training REAL NOT NULL,
    sent INTEGER NOT NULL, epochs INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS participant (
    round INTEGER NOT NULL, user NOT NULL, outcome TEXT NOT NULL, PRIMARY KEY (round, user)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS participant_user ON participant (user, round);
CREATE TABLE IF NOT EXISTS receipt (request TEXT PRIMARY KEY, receipt TEXT NOT NULL);
"""


@dataclass(frozen=True)
class RoundRecord:
    """One finished round: who took part, the mean loss they report (None if nobody did), how long it took.

    ``training`` are the seconds of it that devices spent training, in so many ``epochs``; ``sent`` the bytes of the
    updates they sent.
    """

    round: int
    participants: Sequence[UserId]
    loss: float | None
    seconds: float
    failures: Mapping[UserId, str] = field(default_factory=dict)
    training: float = 0.0
    sent: int = 0
    epochs: int = 0


class History:
    """The rounds of one run, in a folder, or in memory when there is none.

    ``snapshot_every`` thins the snapshots: the latest is always kept, and every so-many-th before it.
    """

    def __init__(self, folder: Path | None, layout: Layout, snapshot_every: int = 1) -> None:
        self.folder = folder
        self.layout = layout
        self.snapshot_every = snapshot_every
        self._in_memory: dict[int, ServerState] = {}
        if folder is not None:
            make_folder(folder / "snapshots")
        self._db = _connect(folder)

    def close(self) -> None:
        """Let go of the files."""
        self._db.close()

    @property
    def last_round(self) -> int:
        """The last finished round; 0 before the first, -1 before the initial parameters are stored."""
        row = self._db.execute("SELECT MAX(round) FROM round").fetchone()
        return -1 if row[0] is None else int(row[0])

    def single_rounds(self) -> set[int]:
        """The rounds that were not replayed together with others."""
        ends = [0, *self.steps_after(0)]
        return {end for before, end in itertools.pairwise(ends) if end == before + 1}

    def commit(self, records: Sequence[RoundRecord], state: ServerState) -> None:
        """Make a round part of the history, or those of a replay step: right after the last one, with one state."""
        before = self.last_round
        for place, record in enumerate(records):
            if record.round != before + 1 + place:
                raise RunError(
                    f"Round {record.round} cannot follow round {before + place}.", "Rounds are committed in order."
                )
        last = records[-1].round
        self._store(last, state)
        rows = [
            (r.round, state.checksum if r.round == last else "", r.loss, r.seconds, r.training, r.sent, r.epochs)
            for r in records
        ]
        outcomes = [(record.round, user, "ok") for record in records for user in record.participants]
        outcomes += [(record.round, *failure) for record in records for failure in record.failures.items()]
        try:
            with self._db:
                self._db.executemany("INSERT INTO round VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
                self._db.executemany("INSERT INTO participant VALUES (?, ?, ?)", outcomes)
        except sqlite3.Error as error:
            raise self._unwritable(error) from error
        self._thin(before)

    def steps_after(self, round_: int) -> list[int]:
        """The last round of each step after a round: every round, except those that were replayed together."""
        query = "SELECT round FROM round WHERE round > ? AND checksum != '' ORDER BY round"
        return [int(row[0]) for row in self._db.execute(query, (round_,))]

    def last_active_round(self, until: int) -> int:
        """The last round up to this one in which anyone took part; 0 if there is none."""
        query = "SELECT COALESCE(MAX(round), 0) FROM participant WHERE outcome = 'ok' AND round <= ?"
        return int(self._db.execute(query, (until,)).fetchone()[0])

    def record(self, round_: int) -> RoundRecord:
        """What happened in a round."""
        query = "SELECT loss, seconds, training, sent, epochs FROM round WHERE round = ?"
        row = self._db.execute(query, (round_,)).fetchone()
        if row is None:
            raise RunError(f"Round {round_} is not in the history.", f"The last one is {self.last_round}.")
        outcomes = self._db.execute(
            "SELECT user, outcome FROM participant WHERE round = ? ORDER BY user", (round_,)
        ).fetchall()
        return RoundRecord(
            round_,
            [user for user, outcome in outcomes if outcome == "ok"],
            row[0],
            row[1],
            {user: outcome for user, outcome in outcomes if outcome != "ok"},
            *row[2:],
        )

    def last_rounds(self, users: Sequence[UserId], before: int) -> list[int]:
        """The last round before this one in which each of these users took part; 0 for none."""
        query = "SELECT COALESCE(MAX(round), 0) FROM participant WHERE outcome = 'ok' AND user = ? AND round < ?"
        return [int(self._db.execute(query, (user, before)).fetchone()[0]) for user in users]

    def first_round_of(self, users: Sequence[UserId]) -> int | None:
        """The first round in which any of these users took part; None if none ever did."""
        query = "SELECT MIN(round) FROM participant WHERE outcome = 'ok' AND user IN (SELECT value FROM json_each(?))"
        first = self._db.execute(query, (json.dumps(list(users)),)).fetchone()[0]
        return None if first is None else int(first)

    def admit(self, users: Sequence[UserId]) -> None:
        """Let these users be members too."""
        with self._db:
            self._db.executemany("INSERT OR IGNORE INTO member VALUES (?)", [(user,) for user in users])

    def enrol(self, users: Sequence[UserId]) -> None:
        """Let these users be the members, unless there are members already."""
        with self._db:
            if self._db.execute("SELECT 1 FROM member").fetchone() is None:
                self._db.executemany("INSERT INTO member VALUES (?)", [(user,) for user in users])

    def members(self) -> list[UserId]:
        """Who is in the federation."""
        return [row[0] for row in self._db.execute("SELECT user FROM member")]

    @staticmethod
    def members_in(folder: Path) -> list[UserId]:
        """Who is in the federation whose history is in a folder; nobody if there is none."""
        if not (folder / "history.sqlite").exists():
            return []
        db = open_database(folder / "history.sqlite", SCHEMA)
        try:
            return [row[0] for row in db.execute("SELECT user FROM member")]
        finally:
            db.close()

    def add_receipt(self, request: str, receipt: str) -> None:
        """Keep a receipt, as JSON, replacing one of the same request."""
        with self._db:
            put = "INSERT INTO receipt VALUES (?, ?) ON CONFLICT (request) DO UPDATE SET receipt = excluded.receipt"
            self._db.execute(put, (request, receipt))

    def receipts(self) -> list[str]:
        """Every receipt, as JSON, in the order of the erasures."""
        return [row[0] for row in self._db.execute("SELECT receipt FROM receipt ORDER BY rowid")]

    @property
    def lineage(self) -> Lineage:
        """The trajectories that led to this one, which is the last of them."""
        row = self._db.execute("SELECT value FROM meta WHERE name = 'lineage'").fetchone()
        return tuple((name, after) for name, after in json.loads(row[0])) if row else ORIGIN

    def branch(self, folder: Path | None, until: int, without: Sequence[UserId], name: str) -> History:
        """A new history, with a name, that begins as this one up to a round, with no trace of some users."""
        other = History(folder, self.layout, self.snapshot_every)
        self.copy_to(other, until, without)
        lineage = json.dumps([*self.lineage, (name, until)])
        with other._db:
            other._db.execute("INSERT OR REPLACE INTO meta VALUES ('lineage', ?)", (lineage,))
        return other

    def copy_to(self, other: History, until: int, without: Sequence[UserId] = ()) -> None:
        """Let an empty history begin as this one up to a round, with no trace of some users."""
        gone = set(without)
        other.enrol([user for user in self.members() if user not in gone])
        with other._db:
            for row in self._db.execute("SELECT * FROM round WHERE round <= ?", (until,)):
                other._db.execute("INSERT INTO round VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            for row in self._db.execute("SELECT * FROM participant WHERE round <= ?", (until,)):
                if row[1] not in gone:
                    other._db.execute("INSERT INTO participant VALUES (?, ?, ?)", row)
                else:  # the mean loss of a round is also of those who leave
                    other._db.execute("UPDATE round SET loss = NULL WHERE round = ?", row[:1])
            other._db.executemany("INSERT INTO receipt VALUES (?, ?)", self._db.execute("SELECT * FROM receipt"))
        for round_ in self.usable_rounds():
            if round_ <= until:
                self._hand_over(round_, other)

    def _hand_over(self, round_: int, other: History) -> None:
        if self.folder is None or other.folder is None:
            other._store(round_, self.state(round_))
        else:
            link_file(self._path(round_), other._path(round_))

    def snapshot(self, round_: int) -> GlobalParameters:
        """The public parameters after a round."""
        return self.state(round_).public

    def state(self, round_: int) -> ServerState:
        """The server's state after a round, checked against the checksum stored with it."""
        row = self._db.execute("SELECT checksum FROM round WHERE round = ?", (round_,)).fetchone()
        if row is None:
            raise RunError(f"Round {round_} is not in the history.", f"The last one is {self.last_round}.")
        if self.folder is None and round_ in self._in_memory:
            return self._in_memory[round_]
        if round_ not in self.usable_rounds():
            raise RunError(
                f"There is no snapshot of round {round_}.",
                f"Snapshots are thinned by snapshot_every, here {self.snapshot_every}, and rounds that were replayed "
                "in one step have one, after the last of them.",
            )
        path = self._path(round_)
        try:
            state = ServerState.from_file(path, self.layout)
        except Exception as error:  # safetensors raises its own type for a damaged file
            raise self._damaged(path, str(error)) from error
        if state.checksum != row[0]:
            raise self._damaged(path, "its content does not match the checksum in history.sqlite")
        return state

    def moved(self, first: int, last: int) -> float:
        """How far the item table moved from before one round to after another: the length of the difference.

        Where there is no snapshot of either, it is taken from the next ones around them, in proportion to the rounds.
        """
        usable = self.usable_rounds()
        start, before = self._readable([round_ for round_ in usable if round_ < first])
        end, after = self._readable([round_ for round_ in reversed(usable) if round_ >= last])
        return float(np.linalg.norm(after.items - before.items)) * (last - first + 1) / (end - start)

    def _readable(self, rounds: Sequence[int]) -> tuple[int, GlobalParameters]:
        """The first of these rounds whose snapshot is not damaged, and the public parameters in it."""
        for round_ in rounds[:-1]:
            with suppress(RunError):
                return round_, self.snapshot(round_)
        return rounds[-1], self.snapshot(rounds[-1])

    def drop_after(self, round_: int) -> None:
        """Drop every round after this one, and whatever files a crash left behind."""
        try:
            with self._db:
                self._db.execute("DELETE FROM participant WHERE round > ?", (round_,))
                self._db.execute("DELETE FROM round WHERE round > ?", (round_,))
            scrub(self._db)
        except sqlite3.Error as error:
            raise self._unwritable(error) from error
        if self.folder is None:
            self._in_memory = {kept: state for kept, state in self._in_memory.items() if kept <= round_}
            return
        wanted = {self._path(kept) for kept in [0, *self.steps_after(0)] if self._keeps(kept) or kept == round_}
        for path in (self.folder / "snapshots").iterdir():
            if path not in wanted:
                path.unlink()

    def usable_rounds(self) -> list[int]:
        """The rounds whose snapshot is there, latest first: where a damaged run can be taken up again."""
        query = "SELECT round FROM round WHERE checksum != '' ORDER BY round DESC"
        rounds = [int(row[0]) for row in self._db.execute(query)]
        if self.folder is None:
            return [round_ for round_ in rounds if round_ in self._in_memory]
        there = {entry.name for entry in os.scandir(self.folder / "snapshots")}
        return [round_ for round_ in rounds if _name(round_) in there]

    def _store(self, round_: int, state: ServerState) -> None:
        if self.folder is None:
            self._in_memory[round_] = state
        else:
            write_file(self._path(round_), state.to_bytes())

    def _keeps(self, round_: int) -> bool:
        """Whether the snapshot of a round stays: of every so-many-th round, or of the step that it is in."""
        before = self._db.execute("SELECT MAX(round) FROM round WHERE checksum != '' AND round < ?", (round_,))
        return round_ // self.snapshot_every > (before.fetchone()[0] or 0) // self.snapshot_every or round_ == 0

    def _thin(self, round_: int) -> None:
        if round_ > 0 and not self._keeps(round_):
            self._in_memory.pop(round_, None)
            if self.folder is not None:
                self._path(round_).unlink(missing_ok=True)

    def _path(self, round_: int) -> Path:
        assert self.folder is not None
        return self.folder / "snapshots" / _name(round_)

    def _unwritable(self, error: Exception) -> RunError:
        return cannot_write((self.folder or Path()) / "history.sqlite", error)

    def _damaged(self, path: Path, reason: str) -> RunError:
        return RunError(
            f"The snapshot {path} is damaged: {reason}.",
            "Remove that file and open the run again: it goes on from the snapshot before it.",
        )


def _name(round_: int) -> str:
    """What the snapshot of a round is called."""
    return f"{round_:06d}.safetensors"


def _connect(folder: Path | None) -> sqlite3.Connection:
    path = None if folder is None else folder / "history.sqlite"
    db = open_database(path, SCHEMA)
    with db:
        db.execute("INSERT OR IGNORE INTO meta VALUES ('format', ?)", (str(FORMAT),))
    found = db.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()[0]
    if found != str(FORMAT):
        raise RunError(
            f"{path} has format {found}; this version of fedforget reads format {FORMAT}.",
            "Use the version of fedforget that wrote it, or start a new run in another folder.",
        )
    return db
