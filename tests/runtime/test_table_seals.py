"""Digests of tables: changes are found, and a change of one row of a large table costs no digest of all."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fedforget.runtime import table_seals
from fedforget.runtime.database import open_database

SCHEMA = "CREATE TABLE IF NOT EXISTS thing (name TEXT PRIMARY KEY) WITHOUT ROWID;" + table_seals.SCHEMA


@pytest.fixture
def db(tmp_path: Path) -> sqlite3.Connection:
    return open_database(tmp_path / "things.sqlite", SCHEMA)


def add(db: sqlite3.Connection, first: int, last: int) -> None:
    with table_seals.sealed(db, "thing"):
        db.executemany("INSERT INTO thing VALUES (?)", [(f"{number:06}",) for number in range(first, last)])


def test_a_change_is_found(db):
    add(db, 0, 10)
    assert table_seals.changed_table(db) is None
    db.execute("UPDATE thing SET name = 'other' WHERE name = '000003'")
    assert table_seals.changed_table(db) == "thing"


def test_large_tables_are_not_digested(db, monkeypatch):
    monkeypatch.setattr(table_seals, "MOST_ROWS", 20)
    add(db, 0, 20)
    assert db.execute("SELECT name FROM table_seal").fetchall() == [("thing",)]
    digested: list[str] = []
    monkeypatch.setattr(table_seals, "_digest", lambda db, table: digested.append(table) or "")
    add(db, 20, 21)
    assert digested == []
    assert db.execute("SELECT name FROM table_seal").fetchall() == []
    assert table_seals.changed_table(db) is None
