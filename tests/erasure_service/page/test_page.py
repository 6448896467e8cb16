"""The page without a browser: who sees and may do what, forms, escaping, and what must hold for every page."""

from __future__ import annotations

import re
import uuid
from contextlib import contextmanager
from dataclasses import replace

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("jinja2")
pytest.importorskip("securesystemslib")

from starlette.testclient import TestClient

from fedforget.erasure_service.app import create_app
from fedforget.erasure_service.page.request_lists import RequestLists
from fedforget.erasure_service.page.visitors import cookie_name
from fedforget.erasure_service.settings import ServiceSettings
from fedforget.erasure_service.status import Progress
from fedforget.erasure_service.subject_requests import State, reference_of
from fedforget.erasure_service.tokens import Role
from tests.erasure_service.page.html_checks import Parsed, check
from tests.erasure_service.runs import REQUESTS, erasure_of, service_on

HTML = {"accept": "text/html"}
EVIL = "\"><script>alert(1)</script>'&{{7*7}}"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tmp_path_factory.mktemp("run") / "run"


@contextmanager
def page_of(run, **settings):
    service = service_on(run, **settings)
    stop = service.stop
    service.start = service.stop = lambda: None
    try:
        yield service
    finally:
        stop()


@pytest.fixture
def service(run):
    with page_of(run) as made:
        yield made


@pytest.fixture
def waiting(run):
    """A service in which requests wait for approval."""
    with page_of(run, approval=True) as made:
        yield made


class Browser:
    """A client that signs in and posts forms like a browser without JavaScript."""

    def __init__(self, service, role: Role | None = None, **options) -> None:
        self.client = TestClient(create_app(service), raise_server_exceptions=False, headers=HTML, **options)
        self.token = None if role is None else service.tokens.add(str(role), role)
        if self.token is not None:
            assert self.sign_in(self.token).status_code == 303

    def sign_in(self, token: str, **more: str):
        return self.client.post("/sign-in", data={"token": token, **more}, follow_redirects=False)

    def get(self, path: str):
        return self.client.get(path, follow_redirects=False)

    def page(self, path: str = "/"):
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return check(answer.text)

    def post(self, path: str, headers=None, **fields: str):
        given = {"csrf": self.page().field("csrf"), **fields}
        return self.client.post(path, data=given, headers=headers, follow_redirects=False)

    def ask(self, user: str = "17", regulation: str = "gdpr") -> str:
        """Ask for an erasure; returns the id of the request."""
        answer = self.post("/requests", user=user, regulation=regulation)
        assert answer.status_code == 303, answer.text
        return answer.headers["location"].removeprefix("/requests/")


def test_without_a_session_every_page_leads_to_the_form_to_sign_in(service):
    browser = Browser(service)
    for path in ("/", "/requests", "/receipts", "/receipts/1", f"/requests/{'a' * 16}"):
        answer = browser.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/sign-in?next={path}")
    check(browser.get("/sign-in").text)
    assert browser.get("/fragments/overview").status_code == 401
    assert browser.client.post("/batches", data={}).status_code == 401


def test_the_cookie_of_a_session_is_kept_from_scripts_and_other_sites(service):
    answer = Browser(service).sign_in(service.tokens.add("operator", Role.OPERATOR))
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie


@pytest.mark.parametrize("settings", [{"tls_cert": "a", "tls_key": "b"}, {"behind_proxy": True}])
def test_with_tls_the_cookie_is_bound_to_this_host(run, settings):
    with page_of(run, **settings) as service:
        answer = Browser(service, base_url="https://testserver").sign_in(service.tokens.add("a", Role.AUDITOR))
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-")
    assert "secure" in cookie.lower()
    assert cookie_name(ServiceSettings()).startswith("fedforget")


def test_signing_in_gives_a_new_session_and_ends_the_one_before(service):
    browser = Browser(service, Role.OPERATOR)
    (name,) = browser.client.cookies.keys()
    before = browser.client.cookies[name]
    browser.sign_in(browser.token)
    assert browser.client.cookies[name] != before
    assert service.sessions.find(before) is None


def test_wrong_tokens_are_counted_and_answered_in_words(service):
    browser = Browser(service)
    for _ in range(10):
        answer = browser.sign_in("ff_wrong")
        assert answer.status_code == 401
    shown = check(answer.text).text
    assert "The token is not valid." in shown
    assert "Ask the person who runs this service for a token." in shown
    assert browser.sign_in("").status_code == 400
    answer = browser.sign_in("ff_wrong")
    assert answer.status_code == 429
    assert "Try again in" in check(answer.text).text
    assert "retry-after" in answer.headers
    assert browser.sign_in(service.tokens.add("late", Role.OPERATOR)).status_code == 303


def test_after_signing_in_one_goes_on_to_a_page_of_ours_only(service):
    token = service.tokens.add("operator", Role.OPERATOR)
    for wanted, expected in [
        ("/receipts", "/receipts"),
        (f"/requests/{uuid.UUID(int=4 << 76 | 8 << 60)}", f"/requests/{uuid.UUID(int=4 << 76 | 8 << 60)}"),
        ("https://evil.example/", "/"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("/requests\nSet-Cookie: a=b", "/"),
    ]:
        assert Browser(service).sign_in(token, next=wanted).headers["location"] == expected


def test_signing_out_ends_the_session(service):
    browser = Browser(service, Role.OPERATOR)
    cookies = dict(browser.client.cookies)
    assert browser.post("/sign-out").status_code == 303
    assert browser.get("/").status_code == 303
    browser.client.cookies.update(cookies)
    assert browser.get("/").status_code == 303


def test_a_revoked_token_ends_its_sessions(service):
    browser = Browser(service, Role.OPERATOR)
    service.tokens.revoke(browser.token.split("_")[1])
    assert browser.get("/").status_code == 303


def test_an_operator_sees_everything_and_asks(service):
    browser = Browser(service, Role.OPERATOR)
    id_ = browser.ask("17")
    page = browser.page(f"/requests/{id_}")
    assert id_ in page.text
    assert "pending" in page.text
    stored = service.requests.find(reference_of(id_))
    assert (stored.users, stored.regulation) == (("17",), "gdpr")
    overview = browser.page()
    assert reference_of(id_) in overview.text
    assert id_ not in overview.text, "the id is shown once, on the page after asking"
    assert id_ not in browser.page(f"/requests/{reference_of(id_)}").text
    for word in ("Federation", "Signed receipts", "Newest audit", "Callbacks", "no response"):
        assert word in overview.text
    service.dispatcher.tick()


def test_a_requester_sees_only_requests_of_their_own_token(service):
    operator, requester = Browser(service, Role.OPERATOR), Browser(service, Role.REQUESTER)
    other, own = operator.ask("17"), requester.ask("18")
    for path in ("/", "/requests"):
        page = requester.page(path)
        assert reference_of(own) in page.text
        assert reference_of(other) not in page.text
    for word in ("Federation", "Signed receipts", "Callbacks", "Start now"):
        assert word not in requester.page().text
    assert requester.get(f"/requests/{other}").status_code == 404
    assert requester.get(f"/requests/{reference_of(other)}/confirmation").status_code == 404
    assert requester.get("/receipts").status_code == 403
    assert requester.post(f"/requests/{reference_of(other)}/cancel").status_code == 404
    assert requester.post(f"/requests/{reference_of(own)}/cancel").status_code == 303
    assert service.requests.find(reference_of(own)).state == State.CANCELLED


def test_a_requester_sees_only_that_the_service_is_not_ready(service, monkeypatch):
    monkeypatch.setattr(service, "problems", lambda: ["the disk is full", "of /srv/run"])
    operator, requester = Browser(service, Role.OPERATOR), Browser(service, Role.REQUESTER)
    for path in ("/", "/fragments/overview"):
        shown, hidden = operator.get(path).text, requester.get(path).text
        assert 'data-announce="Not ready: the disk is full of /srv/run"' in shown
        assert "<li>the disk is full</li>" in shown
        assert 'data-announce="Not ready"' in hidden
        assert "the disk" not in hidden
    monkeypatch.setattr(service, "problems", list)
    assert 'data-announce="Ready"' in requester.get("/").text


def test_who_asked_is_named_by_the_token_for_those_who_look(service):
    operator, requester = Browser(service, Role.OPERATOR), Browser(service, Role.REQUESTER)
    reference = reference_of(requester.ask("18"))
    (name,) = {one.name for one in service.tokens.all() if one.role == Role.REQUESTER}
    shown, hidden = (" ".join(one.page(f"/requests/{reference}").text.split()) for one in (operator, requester))
    assert f"Asked by{name} " in shown
    assert "Asked by" not in hidden


def test_a_requester_does_not_learn_why_an_erasure_was_refused(service):
    requester = Browser(service, Role.REQUESTER)
    reference = reference_of(requester.ask("18"))
    with service.requests.writing() as db:
        db.execute("UPDATE subject_request SET note = 'who is a member', batch = 'abc123'")
    for path in ("/", "/requests", f"/requests/{reference}"):
        assert "who is a member" not in requester.page(path).text
        assert "abc123" not in requester.page(path).text
    assert "who is a member" in Browser(service, Role.AUDITOR).page().text


@pytest.mark.parametrize(("items", "kind"), [((), "one"), ((5,), "1 item of one"), ((5, 6), "2 items of one")])
def test_a_finished_request_says_what_it_forgot(service, items, kind):
    browser = Browser(service, Role.OPERATOR)
    asked = service.requests.find(reference_of(browser.ask("17")))
    other = replace(asked, reference=f"abcdef{len(items):010x}", items=items, num_items=len(items))
    service.requests.add(other)
    service.requests.finish(other.reference, State.COMPLETED, other.received + 1, "{}")
    assert f"Forgets{kind} person," in " ".join(browser.page(f"/requests/{other.reference}").text.split())


def test_an_auditor_sees_everything_and_has_no_buttons(waiting):
    operator, auditor = Browser(waiting, Role.OPERATOR), Browser(waiting, Role.AUDITOR)
    reference = reference_of(operator.ask())
    pages = [auditor.page(path) for path in ("/", "/requests", "/receipts", f"/requests/{reference}")]
    assert all(reference in page.text for page in (pages[0], pages[1], pages[3]))
    for page in pages:
        assert [one["action"] for one in page.all("form")] == ["/sign-out"]
    for path in ("/batches", "/requests", f"/requests/{reference}/approve", f"/requests/{reference}/cancel"):
        assert auditor.post(path).status_code == 403


def test_operators_approve_cancel_and_start(waiting):
    operator, requester = Browser(waiting, Role.OPERATOR), Browser(waiting, Role.REQUESTER)
    first, second = (reference_of(requester.ask(user)) for user in ("17", "18"))
    assert f"/requests/{first}/approve" not in [one["action"] for one in requester.page().all("form")]
    assert requester.post(f"/requests/{first}/approve").status_code == 403
    assert requester.post("/batches").status_code == 403
    assert f"/requests/{first}/approve" in [one["action"] for one in operator.page().all("form")]
    assert operator.post(f"/requests/{first}/approve").headers["location"] == "/?done=approved"
    assert waiting.requests.find(first).approved
    assert operator.post(f"/requests/{second}/cancel").headers["location"] == "/?done=cancelled"
    assert waiting.requests.find(second).state == State.CANCELLED
    answer = operator.post(f"/requests/{second}/approve")
    assert answer.status_code == 409
    assert "not pending any more" in check(answer.text).text
    assert operator.post("/batches").headers["location"] == "/?done=started"
    waiting.dispatcher.tick()
    assert waiting.requests.find(first).state == State.IN_PROGRESS
    assert operator.post(f"/requests/{first}/cancel").status_code in (400, 409)
    assert "carried out now" in operator.page("/?done=started").text
    assert EVIL not in operator.page(f"/?done={EVIL}").text


@pytest.mark.parametrize(
    "headers",
    [{"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"origin": "https://evil.example"}],
)
def test_forms_from_other_sites_are_refused(service, headers):
    browser = Browser(service, Role.OPERATOR)
    for path in ("/batches", "/requests", "/sign-out", "/sign-in", f"/requests/{'a' * 16}/cancel"):
        answer = browser.post(path, headers=headers, user="17", regulation="gdpr", token=browser.token)
        assert answer.status_code == 403
        assert "another site" in check(answer.text).text
    assert browser.post("/batches", headers={"sec-fetch-site": "same-origin"}).status_code == 303
    assert browser.post("/batches", headers={"origin": "null"}).status_code == 303
    assert browser.post("/batches", headers={"origin": "http://testserver"}).status_code == 303


def test_forms_without_the_secret_of_the_session_are_refused(service):
    browser, other = Browser(service, Role.OPERATOR), Browser(service, Role.OPERATOR)
    for secret in ("", "wrong", "é\ud7ff", other.page().field("csrf")):
        for path in ("/batches", "/requests", "/sign-out", f"/requests/{'a' * 16}/approve"):
            assert browser.post(path, csrf=secret).status_code == 403
    assert browser.client.post("/batches", data={"a": "1"}).status_code == 403
    assert browser.client.post("/batches", json={}).status_code == 415
    assert browser.client.post("/batches", content=b"csrf=%ff", headers=FORM).status_code == 400
    assert browser.client.post("/batches", content=b"csrf=a&csrf=a", headers=FORM).status_code == 400
    assert browser.client.post("/batches", content=b"&".join([b"a=1"] * 50), headers=FORM).status_code == 400


FORM = {"content-type": "application/x-www-form-urlencoded"}


def test_a_bearer_token_is_no_session(service):
    token = service.tokens.add("operator", Role.OPERATOR)
    client = TestClient(create_app(service), headers={**HTML, "authorization": f"Bearer {token}"})
    assert client.post("/batches", data={}).status_code == 401


@pytest.mark.parametrize("user", ["", "   ", "x" * 513, "a\x00b", "a\nb"])
def test_user_ids_that_cannot_be_are_refused_in_words(service, user):
    answer = Browser(service, Role.OPERATOR).post("/requests", user=user, regulation="gdpr")
    assert answer.status_code == 400
    assert "user id" in check(answer.text).text


def test_whoever_asked_is_not_told_that_an_erasure_was_refused(service):
    requester, operator = Browser(service, Role.REQUESTER), Browser(service, Role.OPERATOR)
    reference = reference_of(requester.ask())
    with service.requests.writing() as db:
        change = "UPDATE subject_request SET returned = 1, note = 'too few devices' WHERE reference = ?"
        db.execute(change, (reference,))
    page, looked = requester.page(f"/requests/{reference}"), operator.page(f"/requests/{reference}")
    cancel = f"/requests/{reference}/cancel"
    assert "in progress" in page.text
    assert "too few devices" not in page.text
    assert cancel not in [one["action"] for one in page.all("form")]
    assert requester.post(cancel).status_code == 400
    counts = RequestLists(service.requests, requester.token.split("_")[1]).counts()
    assert (counts[State.PENDING], counts[State.IN_PROGRESS]) == (0, 1)
    assert "too few devices" in looked.text
    assert cancel in [one["action"] for one in looked.all("form")]
    assert operator.post(cancel).status_code == 303


def test_an_unknown_regulation_is_refused(service):
    assert Browser(service, Role.OPERATOR).post("/requests", user="17", regulation=EVIL).status_code == 400


def test_what_others_wrote_is_shown_as_text(service):
    operator = Browser(service, Role.OPERATOR)
    operator.ask(EVIL)
    token = service.tokens.add(EVIL[:60], Role.OPERATOR)
    hostile = Browser(service)
    hostile.sign_in(token)
    client = TestClient(create_app(service), headers={"Authorization": f"Bearer {token}"})
    assert client.post(REQUESTS, json=erasure_of(EVIL)).status_code == 201
    with service.requests.writing() as db:
        db.execute("UPDATE subject_request SET regulation = ?", (EVIL[:32],))
    with service.requests.writing() as db:
        db.execute("UPDATE subject_request SET note = ?", (EVIL,))
    service.worker.status = replace(
        service.worker.status,
        model=EVIL,
        error=EVIL,
        method={"name": EVIL},
        waiting=EVIL,
        progress=Progress(1, 3),
        recent=tuple(replace(one, failures={EVIL: 1}) for one in service.worker.status.recent),
        accuracy=tuple(replace(one, sampled={EVIL: 0.5}) for one in service.worker.status.accuracy),
    )
    service.dispatcher.warnings = [EVIL]
    for path in ("/", "/requests", "/receipts", "/docs", "/sign-in?next=" + EVIL):
        text = hostile.client.get(path).text
        page = check(text)
        assert "<script>alert" not in text
        assert len(page.all("script")) == 1
        assert "49" not in re.findall(r"&amp;\S*", text)
    assert EVIL in hostile.page().text


def test_errors_are_pages_for_browsers_and_problems_for_programs(service):
    browser = Browser(service, Role.OPERATOR)
    for path, code in [("/nothing", 404), ("/requests/nothing", 404), (f"/requests/{uuid.uuid4()}", 404)]:
        answer = browser.get(path)
        assert answer.status_code == code
        assert "text/html" in answer.headers["content-type"]
        check(answer.text)
    for path in ("/receipts/0", "/receipts/abc", "/requests?before=abc", "/receipts/99999999999999999999"):
        answer = browser.get(path)
        assert answer.status_code == 400
        check(answer.text)
    assert browser.get("/receipts/99").status_code == 404
    assert browser.get("/v1/requests").headers["content-type"] == "application/problem+json"
    assert browser.client.get("/nothing", headers={"accept": "*/*"}).headers["content-type"].startswith("application/")


def test_an_error_in_the_service_is_a_page_too(service, monkeypatch):
    browser = Browser(service, Role.OPERATOR)
    monkeypatch.setattr(service, "problems", lambda: 1 / 0)
    answer = browser.get("/")
    assert answer.status_code == 500
    assert "division" not in check(answer.text).text


def test_requests_are_listed_by_pages(service):
    browser = Browser(service, Role.REQUESTER)
    mine = [browser.ask(str(user)) for user in range(3)]
    with service.requests.writing() as db:
        columns = "id, users, items, callbacks, pseudonyms, digest, holder, regulation, received, submitted, deadline, "
        columns += "expected, state, approved"
        for place in range(60):
            db.execute(
                f"INSERT INTO subject_request (reference, {columns}) SELECT ?, {columns} FROM subject_request "
                "WHERE reference = ?",
                (f"{place:016x}", reference_of(mine[0])),
            )
    page = browser.page("/requests")
    (older,) = [one["href"] for one in page.all("a") if "before" in one.get("href", "")]
    seen = {one["href"] for one in page.all("a") if re.fullmatch(r"/requests/\w+", one.get("href", ""))}
    more = {one["href"] for one in browser.page(older).all("a") if re.fullmatch(r"/requests/\w+", one.get("href", ""))}
    assert len(seen) == 50
    assert not seen & more
    assert len(seen | more) == 63
    assert "more: see" in browser.page().text
    with service.requests.writing() as db:
        db.execute("DELETE FROM subject_request WHERE holder = (SELECT holder FROM subject_request LIMIT 1)")


def test_the_description_of_the_api_names_every_operation(service):
    browser = Browser(service)
    answer = browser.get("/docs")
    page = check(answer.text)
    document = browser.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"{method.upper()} {path}" in page.text
    for name in document["components"]["schemas"]:
        assert f"schema-{name}" in [one["id"] for _, one in page.elements if "id" in one]
    assert not [path for path in document["paths"] if path.startswith(("/requests", "/sign", "/fragments"))]


def test_every_link_of_the_pages_leads_somewhere(service):
    browser = Browser(service, Role.OPERATOR)
    todo, seen = ["/", f"/requests/{browser.ask()}"], set()
    while todo:
        path = todo.pop()
        seen.add(path)
        answer = browser.get(path)
        assert answer.status_code == 200, path
        if "text/html" in answer.headers["content-type"]:
            page = Parsed(answer.text) if path.startswith("/fragments/") else check(answer.text)
            links = [one[name] for _, one in page.elements for name in ("href", "src", "data-live") if name in one]
            todo += [link for link in dict.fromkeys(links) if not link.startswith("#") and link not in {*seen, *todo}]
    assert {"/", "/docs", "/receipts", "/requests", "/static/page.css", "/static/page.js", "/static/icon.svg"} <= seen


def test_polling_neither_keeps_a_session_alive_nor_reads_the_chain(service, monkeypatch):
    browser = Browser(service, Role.OPERATOR)
    browser.page()
    (session,) = browser.client.cookies.values()
    used = service.sessions.find(session, counts=False).used
    reads = []
    monkeypatch.setattr("fedforget.attestation.chain.ReceiptChain.entries", lambda self: reads.append(self) or [])
    monkeypatch.setattr("fedforget.erasure_service.page.receipt_book.verify_run", lambda run: reads.append(run))
    for _ in range(20):
        assert browser.get("/fragments/overview").status_code == 200
    assert service.sessions.find(session, counts=False).used == used
    assert len(reads) <= 1
