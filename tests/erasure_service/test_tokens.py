"""Tokens: only the right secret of a valid token has a holder, and no file holds a secret."""

from __future__ import annotations

import hmac
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.erasure_service import tokens as module
from fedforget.erasure_service.state_file import open_state
from fedforget.erasure_service.tokens import SCHEMA, Holder, Role, TokenStore
from fedforget.errors import ConfigError
from fedforget.runtime.database import open_database
from tests.cli.conftest import Shell, shell

__all__ = ["shell"]
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


@pytest.fixture
def store() -> Iterator[TokenStore]:
    with closing(open_database(None, SCHEMA)) as db:
        yield TokenStore(db)


def test_a_token_has_its_holder(store: TokenStore) -> None:
    token = store.add("ticket-system", Role.REQUESTER, None, NOW)
    _, id_, secret = token.split("_")
    assert (len(id_), len(secret)) == (8, 43)
    assert store.check(token, NOW) == Holder(id_, "ticket-system", Role.REQUESTER, id_) == store.holder(id_, NOW)
    assert secret not in repr(store.all())


def test_two_tokens_differ_and_do_not_open_each_other(store: TokenStore) -> None:
    first, second = (store.add("same", Role.AUDITOR, None, NOW) for _ in range(2))
    mixed = "_".join((*first.split("_")[:2], second.split("_")[2]))
    assert first != second
    assert store.check(mixed, NOW) is None


def test_an_expired_or_revoked_token_is_refused(store: TokenStore) -> None:
    token = store.add("a", Role.OPERATOR, NOW + timedelta(hours=1), NOW)
    id_ = token.split("_")[1]
    assert store.check(token, NOW + timedelta(minutes=59)) is not None
    assert store.check(token, NOW + timedelta(hours=1)) is None
    assert store.holder(id_, NOW + timedelta(hours=1)) is None
    store.revoke(id_, NOW)
    store.revoke(id_, NOW + timedelta(days=1))
    assert store.check(token, NOW) is None
    assert store.holder(id_, NOW) is None
    assert store.all()[0].revoked == NOW


def test_a_token_that_replaces_another_has_its_holder(store: TokenStore) -> None:
    first = store.add("tickets", Role.REQUESTER, NOW + timedelta(hours=1), NOW).split("_")[1]
    later = NOW + timedelta(hours=2)
    second = store.add("tickets", Role.REQUESTER, None, later, replaces=first)
    third = store.add("tickets 2", Role.REQUESTER, None, later, replaces=second.split("_")[1])
    holders = [store.check(token, later) for token in (second, third)]
    assert [holder and holder.id for holder in holders] == [first, first]
    store.revoke(second.split("_")[1], later)
    assert store.check(second, later) is None
    assert store.check(third, later) == Holder(first, "tickets 2", Role.REQUESTER, third.split("_")[1])


def test_only_a_known_token_of_the_same_role_is_replaced(store: TokenStore) -> None:
    auditor = store.add("a", Role.AUDITOR, None, NOW).split("_")[1]
    with pytest.raises(ConfigError, match="has the role auditor, not operator"):
        store.add("a", Role.OPERATOR, None, NOW, replaces=auditor)
    with pytest.raises(ConfigError, match="'00000000'"):
        store.add("a", Role.OPERATOR, None, NOW, replaces="00000000")
    assert len(store.all()) == 1


def test_every_check_compares_also_without_such_a_token(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    compare = hmac.compare_digest

    def counted(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return compare(a, b)

    monkeypatch.setattr(module.hmac, "compare_digest", counted)
    token = store.add("a", Role.OPERATOR, None, NOW)
    for text in (token, token[:-1] + "!", "ff_00000000_" + "0" * 43, "", "ff__", "ü"):
        store.check(text, NOW)
    assert compared == [(32, 32)] * 6


@given(st.text() | st.from_regex(r"ff_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}", fullmatch=True))
def test_no_other_text_is_a_token(text: str) -> None:
    with closing(open_database(None, SCHEMA)) as db:
        store = TokenStore(db)
        store.add("a", Role.OPERATOR, None, NOW)
        assert store.check(text, NOW) is None


@given(
    st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=64),
    st.sampled_from(Role),
    st.none()
    | st.datetimes(datetime(2027, 1, 1), datetime(2100, 1, 1), timezones=st.just(timezone(timedelta(hours=5)))),
)
def test_records_round_trip(name: str, role: Role, expires: datetime | None) -> None:
    with closing(open_database(None, SCHEMA)) as db:
        store = TokenStore(db)
        store.add(name, role, expires, NOW)
        (record,) = store.all()
    assert (record.name, record.role, record.created, record.expires) == (name, role, NOW, expires)


@pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 65, "a\x1b[31m"])
def test_a_name_that_cannot_stand_in_a_log_is_refused(store: TokenStore, name: str) -> None:
    with pytest.raises(ConfigError, match="is not a name"):
        store.add(name, Role.OPERATOR, None, NOW)


def test_times_that_are_past_or_have_no_zone_are_refused(store: TokenStore) -> None:
    with pytest.raises(ConfigError, match="is past"):
        store.add("a", Role.OPERATOR, NOW, NOW)
    with pytest.raises(ConfigError, match="no time zone"):
        store.add("a", Role.OPERATOR, datetime(2027, 1, 1), NOW)
    with pytest.raises(ConfigError, match="'00000000'"):
        store.revoke("00000000")


def test_files_are_private_and_hold_no_secret(tmp_path: Path) -> None:
    with closing(open_state(tmp_path, SCHEMA)) as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
        secret = TokenStore(db).add("a", Role.OPERATOR).split("_")[2]
        files = [path for path in (tmp_path / "service").iterdir() if path.is_file()]
        assert all(secret.encode() not in path.read_bytes() for path in files)
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
        assert stat.S_IMODE((tmp_path / "service").stat().st_mode) == 0o700


def test_threads_share_a_store(tmp_path: Path) -> None:
    with closing(open_state(tmp_path, SCHEMA)) as db, ThreadPoolExecutor(8) as threads:
        store = TokenStore(db)
        tokens = list(threads.map(lambda number: store.add(str(number), Role.AUDITOR), range(20)))
        holders = threads.map(lambda token: store.check(token, datetime.now(UTC)), tokens * 50)
        assert [holder and holder.name for holder in holders] == [str(number) for number in range(20)] * 50


def test_another_process_adds_and_revokes_while_the_service_reads(tmp_path: Path, shell: Shell) -> None:
    (tmp_path / "config.toml").write_text("format = 4\n")
    with closing(open_state(tmp_path, SCHEMA)) as db:
        service = TokenStore(db)
        token = shell("token", "add", tmp_path, "--role", "auditor", "--name", "dpo", "--expires", "90d").strip()
        assert "cannot be shown again" in shell.errors
        found = service.check(token, datetime.now(UTC))
        assert found is not None
        assert found.role is Role.AUDITOR
        assert service.check(token, datetime.now(UTC) + timedelta(days=91)) is None
        (listed,) = shell.json("token", "list", tmp_path)
        assert listed["id"] == found.id  # type: ignore[index]
        assert listed["state"] == "valid"  # type: ignore[index]
        assert token.split("_")[2] not in str(listed)
        assert "dpo" in shell("token", "list", tmp_path)
        options = ("--role", "auditor", "--name", "dpo", "--replaces", found.id)
        successor = service.check(shell("token", "add", tmp_path, *options).strip(), datetime.now(UTC))
        assert successor is not None
        assert successor.id == found.id
        shell("token", "revoke", tmp_path, found.id)
        assert service.check(token, datetime.now(UTC)) is None
        assert "revoked" in shell("token", "list", tmp_path)


def test_commands_refuse_what_is_not_there(tmp_path: Path, shell: Shell) -> None:
    shell("token", "list", tmp_path, fails=1)
    assert "is not a run folder" in shell.errors
    assert not (tmp_path / "service").exists()
    (tmp_path / "config.toml").write_text("format = 4\n")
    shell("token", "revoke", tmp_path, "nothing1", fails=1)
    assert "'nothing1'" in shell.errors
    shell("token", "add", tmp_path, "--role", "auditor", "--name", "a", "--expires", "soon", fails=1)
    assert "'soon'" in shell.errors
    shell("token", "add", tmp_path, "--role", "root", "--name", "a", fails=2)


def test_access_needs_no_numeric_packages() -> None:
    names = "tokens durations rates middleware call_log call_recorder callbacks callback_sender sessions state_file"
    imports = "; ".join(f"import fedforget.erasure_service.{name}" for name in names.split())
    code = f"import sys; {imports}; print([name for name in ('torch', 'numpy', 'fastapi') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
