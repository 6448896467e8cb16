"""The search for traces: what is planted in any file and form is found, and other values are no false alarm."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from fedforget.runtime.randomness import user_key
from fedforget.server.parsed_file import ParsedFile
from fedforget.server.traces import PIECE, find_traces
from fedforget.server.wanted import Wanted

LONG, UMLAUT, SALT = "person-1", 'Jürgen "J" Ö', "00112233445566778899aabbccddeeff"
KEY = user_key(LONG)
#: A user whose key is a negative number in SQLite.
SIGNED = next(f"person-{n}" for n in range(2, 99) if user_key(f"person-{n}") >> 63)
NEGATIVE = user_key(SIGNED) - (1 << 64)


def found(folder: Path, *users: int | str, salts: tuple[str, ...] = (), known: tuple[int | str, ...] = ()) -> list[str]:
    return find_traces(folder, Wanted(users, salts, known)).found


def table(path: Path, *rows: tuple[object, ...], columns: str = "a, b") -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE t ({columns})")
        db.executemany(f"INSERT INTO t VALUES ({','.join('?' * len(rows[0]))})", rows)


TEXTS: dict[str, Callable[[str], bytes]] = {
    "left": lambda text: b"\0\1" * 50 + text.encode() + b"ok",
    "utf-16.bin": lambda text: b"\xff\x01\x02" + text.encode("utf-16-le"),
    "utf-16.txt": lambda text: f"it was {text}".encode("utf-16"),
    "escaped.json": lambda text: json.dumps({"note": f"of {text}"}).encode(),
    "escaped.log": lambda text: json.dumps(["of", text]).encode() + b"]",
    "utf-16.json": lambda text: json.dumps([text], ensure_ascii=False).encode("utf-16-be"),
    "latin-1.json": lambda text: json.dumps({"a": {text: 1}}, ensure_ascii=False).encode("latin-1"),
    "latin-1.bin": lambda text: b"\0\1\2" + text.encode("latin-1"),
    "nested.json": lambda text: json.dumps({"content": json.dumps({"x": [text]})}).encode(),
    "a.toml": lambda text: f"[[joins]]\nwho = {json.dumps(text, ensure_ascii=False)}\n".encode(),
    "a.csv": lambda text: ('user,item\n"' + text.replace('"', '""') + '",3\n').encode(),
    "a.jsonl": lambda text: json.dumps({"round": 1}).encode() + b"\n" + json.dumps({"by": text}).encode(),
    "cut.jsonl": lambda text: json.dumps({"round": 1}).encode() + b'\n{"by": ' + json.dumps(text).encode(),
    "a.safetensors": lambda text: save({"x": np.zeros(2)}, {"users": json.dumps([text])}),
    "note.safetensors": lambda text: save({"x": np.zeros(2)}, {"note": text}),
    "a.refused": lambda text: f"There is no user {text} in this federation.".encode(),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("user", [LONG, UMLAUT])
def test_an_id_is_found_in_every_kind_of_file(tmp_path: Path, name: str, user: str) -> None:
    (tmp_path / name).write_bytes(TEXTS[name](user))
    assert found(tmp_path, user) == [f"{name}: id"]
    (tmp_path / name).write_bytes(TEXTS[name]("somebody"))
    assert found(tmp_path, user) == []


@pytest.mark.parametrize("user", [LONG, "u1", 17, "17"])
@pytest.mark.parametrize("written", [str, lambda user: int(user) if str(user).isdecimal() else user])
def test_ids_are_found_as_numbers_and_as_text(tmp_path: Path, user: int | str, written: Callable[..., object]) -> None:
    value = written(user)
    plain = json.dumps(value)
    (tmp_path / "a.json").write_text(json.dumps({"users": [value]}))
    (tmp_path / "b.json").write_text(json.dumps([{"user": value, "round": 3}]))
    (tmp_path / "c.toml").write_text(f"[[joins]]\nuser = {plain}\nround = 3\n")
    (tmp_path / "d.safetensors").write_bytes(save({"x": np.zeros(2)}, {"users": f"[23, {plain}]"}))
    (tmp_path / "e.csv").write_text(f"user,item\n{value},3\n")
    (tmp_path / "f.refused").write_text(f"There is no user 'x1', {value!r} in this federation.")
    (tmp_path / "g.jsonl").write_text(json.dumps({"round": 1, "participants": [value]}))
    table(tmp_path / "h.sqlite", (1, value), columns="round, user")
    table(tmp_path / "i.sqlite", (1, f"[{plain}]"), columns="a, users TEXT")
    assert [line.partition(".")[0] for line in found(tmp_path, user)] == list("abcdefghi")


def test_numbers_that_are_no_users_are_no_false_alarm(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("rounds = 17\nseed = 17 # 17\n[[joins]]\nuser = 23\nround = 17\n")
    (tmp_path / "metrics.jsonl").write_text('{"round": 17, "users": 17, "k": 17.0, "bytes_per_user": 17}')
    (tmp_path / "items.json").write_text('[17, "17", "Room 17"]')
    (tmp_path / "invitation.json").write_text('{"items": ["17", 17], "seen": {"17": 3}}')
    (tmp_path / "a.safetensors").write_bytes(save({"x": np.full(17, 17)}, {"users": "[1, 170]", "items": "[17]"}))
    (tmp_path / "a.refused").write_text("Only 17 users would remain, in round 17 of user 170.")
    (tmp_path / "plays.csv").write_text("user,item\n1,17\n")
    (tmp_path / "000017.log").write_bytes(b"17\x0017")
    table(tmp_path / "h.sqlite", (17, 1, "17", 17), columns="round, user, value TEXT, users INTEGER")
    traces = find_traces(tmp_path, Wanted([17]))
    assert (traces.found, traces.unreadable, traces.files) == ([], [], 9)
    assert found(tmp_path, 23) == ["config.toml: id"]


def test_an_id_is_not_found_in_a_longer_one_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "left").write_bytes(b"\0person-12ok\0my-person-1")
    (tmp_path / "a.json").write_text('{"note": "person-12 and my-person-1"}')
    table(tmp_path / "h.sqlite", ("person-12", "ok"))
    (tmp_path / "large").write_bytes(b"\0" * (PIECE - 5) + b"person-12")
    assert found(tmp_path, LONG, known=("person-12", "my-person-1")) == []
    (tmp_path / "large").write_bytes(b"\0" * (PIECE - 5) + b"person-1")
    assert found(tmp_path, LONG, known=("person-12", "my-person-1")) == ["large: id"]


LISTS = {
    "a list": "user_100000,user_100001,",
    "colons": "user:user:",
    "spaces": "user " + " " * 1000,
    "entries": "users a,b,c,d,e,f,",
}


@pytest.mark.parametrize("piece", LISTS.values(), ids=LISTS)
def test_a_long_text_with_the_word_user_is_searched_in_time_that_grows_with_it(tmp_path: Path, piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    started = time.perf_counter()
    assert Wanted(["77"]).in_text(text) == set()
    if text.endswith(","):
        assert Wanted(["77"]).in_text(f"{text}77") == {"id"}
    assert time.perf_counter() - started < 10  # usually 1; 36 for 180 KB when each word began a search of its own


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("users 5, 6, 7", True),
        ("Users: [5, '6', 7]", True),
        ("users, 7", True),
        ("user_5,user_6,7", True),
        ("user a, user: 7", True),
        ("it was user 7.", True),
        ("user7", True),
        ("user 7.5", False),
        ("user_5,user_7", False),
        ("user 5, 77, 8", False),
        ("user 5; 7", False),
        ("7 users", False),
    ],
)
def test_short_ids_are_found_in_lists_after_the_word_user(text: str, there: bool) -> None:
    assert Wanted(["7"]).in_text(text) == ({"id"} if there else set())
    if there:
        assert Wanted(["#1"]).in_text(text.replace("7", "#1")) == {"id"}


FORMS = [
    KEY.to_bytes(8, "little"),
    KEY.to_bytes(8, "big"),
    f"{KEY:016x}".encode(),
    f"{KEY:016X}".encode("utf-16-le"),
    str(KEY).encode(),
    bytes.fromhex(SALT),
    SALT.encode(),
    b"00112233-4455-6677-8899-AABBCCDDEEFF",
    SALT.encode("utf-16-be"),
]


@pytest.mark.parametrize("form", FORMS)
def test_keys_and_salts_are_found_in_every_form(tmp_path: Path, form: bytes) -> None:
    kind = "key" if FORMS.index(form) < 5 else "salt"
    (tmp_path / "left").write_bytes(b"\0" * (PIECE - 3) + form)
    assert found(tmp_path, LONG, salts=(SALT,)) == [f"left: {kind}"]


@pytest.mark.parametrize("column", ["a", "id", "outcome"])
@pytest.mark.parametrize(
    "cell", [LONG, LONG.encode(), f"of {LONG} " + "x" * 9000, NEGATIVE, str(NEGATIVE), f"{KEY:016x}", SALT]
)
def test_every_column_of_every_table_is_searched(tmp_path: Path, column: str, cell: object) -> None:
    table(tmp_path / "h.sqlite", (1, cell), columns=f"round, {column}")
    assert len(found(tmp_path, LONG, SIGNED, salts=(SALT,))) == 1


def test_the_write_ahead_log_is_searched(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "h.sqlite")) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (user)")
        db.execute("INSERT INTO t VALUES (17)")
        db.execute("INSERT INTO t VALUES (?)", (LONG,))
        db.commit()
        assert found(tmp_path, 17) == ["h.sqlite: id"]
        assert found(tmp_path, LONG) == ["h.sqlite: id", "h.sqlite-wal: id"]


def test_names_of_files_and_folders_are_searched_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / f"{KEY:016x}").mkdir()
    (tmp_path / f"{KEY:016x}" / "notes").write_text(LONG)
    (tmp_path / "17.json").write_text("{}")
    assert found(tmp_path, LONG, 17) == ["…: key", "….json: id", "…/notes: id"]


def test_what_cannot_be_searched_is_reported_by_name(tmp_path: Path) -> None:
    (tmp_path / "damaged.sqlite").write_bytes(b"SQLite format 3\0" + b"\1" * 5000)
    (tmp_path / "damaged.safetensors").write_bytes(b"\xff" * 30)
    (tmp_path / "damaged.json").write_text('{"user": 17')
    (tmp_path / "link").symlink_to("/nowhere")
    (tmp_path / "elsewhere").symlink_to(tmp_path.parent, target_is_directory=True)
    traces = find_traces(tmp_path, Wanted([17]))
    named = sorted(line.partition(":")[0] for line in traces.unreadable)
    assert named == ["damaged.json", "damaged.safetensors", "damaged.sqlite", "elsewhere", "link"]
    assert traces.found == ["damaged.json: id"]


def test_a_file_that_may_not_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("a")

    def refuse(path: Path) -> ParsedFile:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(ParsedFile, "read", refuse)
    assert find_traces(tmp_path, Wanted([17])).unreadable == ["secret: Permission denied"]


def test_a_folder_that_may_not_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(top: Path, onerror: Callable[[OSError], None]) -> Iterator[object]:
        onerror(PermissionError(13, "Permission denied", str(top / LONG)))
        return iter(())

    monkeypatch.setattr("fedforget.server.traces.os.walk", refuse)
    assert find_traces(tmp_path, Wanted([LONG])).unreadable == ["…: Permission denied"]
