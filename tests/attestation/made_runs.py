"""Run folders with receipts, made without training."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from fedforget.attestation import Person, ReceiptChain, SigningKey
from fedforget.models import Layout
from fedforget.protocol.pseudonym import pseudonym
from fedforget.runtime.files import make_folder, write_file
from fedforget.server.history import History
from fedforget.server.presets import configure
from fedforget.server.receipt import Receipt

SALT = "00112233445566778899aabbccddeeff"
ANNA, ANNAS_REQUEST = "anna@example.org", "9f8c1c1e-6f0b-4c55-8a55-0d9d4b6f7a01"
PAUL, PAULS_REQUEST = 17, "5b2f8a52-6a0e-4c39-9d7e-3c1f0a9be202"


def receipt(request: str = "a1", *, users: int = 1, wiped: int | None = None, partial: int = 0) -> Receipt:
    return Receipt(
        request=request,
        users=[pseudonym(user, SALT) for user in range(users)],
        partial={pseudonym("stays", SALT): partial} if partial else {},
        method={"name": "fru", "replay_fraction": 0.5},
        first_round=3,
        rounds_replayed=8,
        rounds_added=0,
        asked=40,
        answered=30,
        missing={"no response": 10},
        bytes_down=2_000_000,
        bytes_up=500_000,
        seconds=1.5,
        digest_before="a" * 64,
        digest_after="b" * 64,
        finished="2026-01-01T00:00:00+00:00",
        version="1.0",
        wiped=wiped,
    )


def make_run(folder: Path, *receipts: Receipt, engine: str = "flower") -> Path:
    """A run folder, by default of a network, with these receipts in its history and in ``receipts/``."""
    make_folder(folder)
    replace(configure(), id="f00dfeed", trajectory=2, engine=engine).save(folder / "config.toml")
    history = History(make_folder(folder / "trajectory-2"), Layout({}))
    history.close()
    for each in receipts:
        store(folder, each)
    return folder


def store(run: Path, each: Receipt) -> None:
    """Add a receipt to a run, or replace the one of the same request."""
    history = History(run / "trajectory-2", Layout({}))
    history.add_receipt(each.request, each.to_json())
    history.close()
    write_file(make_folder(run / "receipts") / f"{each.request}.json", each.to_json().encode())


def signed_run(folder: Path) -> Path:
    """A run with four entries: two receipts by the first key, one by the second, and new wipe counts of the second."""
    a, b, c = receipt("a1", users=2), receipt("b2", wiped=0), receipt("c3", partial=4)
    run = make_run(folder, a, b, c)
    key, chain = SigningKey.open(run), ReceiptChain(run)
    chain.append(a, [Person.of(ANNA, ANNAS_REQUEST), Person.of(PAUL, PAULS_REQUEST)], key, "f00dfeed")
    chain.append(b, [Person("0" * 32)], key, "f00dfeed")
    key = SigningKey.rotate(run)
    chain.append(c, [Person("1" * 32, 4)], key, "f00dfeed")
    done = replace(b, wiped=1, to_wipe=1)
    store(run, done)
    chain.append(done, [Person("0" * 32)], key, "f00dfeed")
    return run


def copied(run: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(run, target))


def edit_history(run: Path, request: str, text: str) -> None:
    """Change the stored JSON of a receipt in the history, past everything that guards it."""
    with closing(sqlite3.connect(run / "trajectory-2" / "history.sqlite")) as db, db:
        db.execute("UPDATE receipt SET receipt = ? WHERE request = ?", (text, request))


def in_history(run: Path) -> dict[str, str]:
    with closing(sqlite3.connect(run / "trajectory-2" / "history.sqlite")) as db:
        return dict(db.execute("SELECT request, receipt FROM receipt"))
