"""Sessions end in time, at sign-out, and with the token that they began with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.erasure_service.sessions import Sessions
from fedforget.erasure_service.tokens import SCHEMA, Holder, Role, TokenStore
from fedforget.runtime.database import open_database

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


class Desk:
    """Sessions on a clock that the tests move, and a holder."""

    def __init__(self, tokens: TokenStore) -> None:
        self.now = NOW
        self.tokens = tokens
        self.sessions = Sessions(tokens, most=5, most_per_holder=3, clock=lambda: self.now)
        self.holder = self.new_holder(expires=NOW + timedelta(days=1))

    def new_holder(self, expires: datetime | None = None) -> Holder:
        holder = self.tokens.check(self.tokens.add("dpo", Role.OPERATOR, expires, NOW), NOW)
        assert holder is not None
        return holder


@pytest.fixture
def desk() -> Iterator[Desk]:
    with closing(open_database(None, SCHEMA)) as db:
        yield Desk(TokenStore(db))


def test_a_session_is_found_by_its_id_only(desk: Desk) -> None:
    session = desk.sessions.start(desk.holder)
    assert desk.sessions.find(session.id) == session
    assert session.holder == desk.holder
    assert len(session.id) >= 43
    assert session.id != session.csrf
    assert session.id not in repr(session)
    for other in ("", session.id[:-1], session.csrf, "\udc80"):
        assert desk.sessions.find(other) is None


def test_it_ends_when_idle_and_after_its_lifetime(desk: Desk) -> None:
    idle, used = desk.sessions.start(desk.holder), desk.sessions.start(desk.holder)
    for _ in range(12):
        assert desk.sessions.find(used.id) is not None
        desk.now += timedelta(minutes=59)
    assert desk.sessions.find(idle.id) is None
    assert desk.sessions.find(used.id) is not None
    desk.now = NOW + timedelta(hours=12)
    assert desk.sessions.find(used.id) is None
    desk.now = NOW
    assert desk.sessions.find(used.id) is None


def test_sign_out_ends_it(desk: Desk) -> None:
    session, other = desk.sessions.start(desk.holder), desk.sessions.start(desk.holder)
    desk.sessions.end(session.id)
    desk.sessions.end(session.id)
    assert desk.sessions.find(session.id) is None
    assert desk.sessions.find(other.id) is not None


def test_it_ends_with_its_token(desk: Desk) -> None:
    desk.sessions = Sessions(desk.tokens, lifetime=timedelta(days=9), idle=timedelta(days=9), clock=lambda: desk.now)
    revoked, expired = desk.new_holder(), desk.holder
    sessions = [desk.sessions.start(holder) for holder in (revoked, expired)]
    desk.tokens.revoke(revoked.id, NOW)
    assert desk.sessions.find(sessions[0].id) is None
    assert desk.sessions.find(sessions[1].id) is not None
    desk.now += timedelta(days=1)
    assert desk.sessions.find(sessions[1].id) is None
    assert len(desk.sessions) == 0


def test_a_session_of_a_token_that_replaces_another_ends_with_its_own(desk: Desk) -> None:
    token = desk.tokens.add("dpo", Role.OPERATOR, None, NOW, replaces=desk.holder.id)
    holder = desk.tokens.check(token, NOW)
    assert holder is not None
    session = desk.sessions.start(holder)
    desk.tokens.revoke(desk.holder.id, NOW)
    assert desk.sessions.find(session.id) is not None
    desk.tokens.revoke(holder.token, NOW)
    assert desk.sessions.find(session.id) is None


def test_the_number_is_bounded_and_one_holder_ends_only_own_sessions(desk: Desk) -> None:
    other = desk.sessions.start(desk.new_holder())
    own = [desk.sessions.start(desk.holder) for _ in range(4)]
    assert [desk.sessions.find(session.id) is not None for session in (other, *own)] == [True, False, True, True, True]
    for _ in range(4):
        desk.sessions.start(desk.new_holder())
    assert len(desk.sessions) == 5
    assert desk.sessions.find(other.id) is None


@given(st.text())
def test_only_the_session_s_csrf_token_matches(text: str) -> None:
    with closing(open_database(None, SCHEMA)) as db:
        desk = Desk(TokenStore(db))
        session, other = desk.sessions.start(desk.holder), desk.sessions.start(desk.holder)
    assert session.csrf_matches(session.csrf)
    assert not session.csrf_matches(other.csrf)
    assert session.csrf_matches(text) == (text == session.csrf)
