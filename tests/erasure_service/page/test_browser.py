"""The page in a real browser, served by a real process on a small run."""

from __future__ import annotations

import re
import shutil

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("securesystemslib")
pytest.importorskip("playwright.sync_api")

from fedforget.attestation.certificate import Certificate
from fedforget.attestation.envelope import Envelope
from fedforget.attestation.verify import verify_file, verify_run
from fedforget.erasure_service.tokens import Role
from tests.erasure_service.page.browsers import PHONE, WIDE, check_layout, chromium, picture, sign_in, tab
from tests.erasure_service.processes import running, token_for, wait_for
from tests.small_federations import DATA, build

pytestmark = pytest.mark.slow

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
SECONDS = 60_000
THEMES = ("light", "dark")
#: The name of what has the focus, and how it is outlined.
FOCUS = """(() => {
    const one = document.activeElement, style = getComputedStyle(one);
    return [one.id || one.textContent.trim(), style.outlineStyle, parseFloat(style.outlineWidth)];
})()"""
PAGES = {
    "overview": "/",
    "requests": "/requests",
    "receipts": "/receipts",
    "receipt": "/receipts/1",
    "api": "/docs",
    "error": "/nothing",
}


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    run = tmp_path_factory.mktemp("prepared") / "run"
    train, test = DATA.split(test=0.2, seed=0)
    build(run, train).fit(rounds=12, test=test, evaluate_every=3).close()
    return run


@pytest.fixture
def run(prepared, tmp_path):
    return shutil.copytree(prepared, tmp_path / "run")


def ask(page, user: str) -> str:
    """Ask for an erasure by the form; returns the id of the request."""
    page.get_by_label("User id").fill(user)
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Ask for the erasure").click()
    page.wait_for_url("**/requests/*")
    return UUID.search(page.url)[0]


def test_a_request_from_the_form_to_a_verified_receipt(browser, run, tmp_path):
    operator, requester = token_for(run), token_for(run, Role.REQUESTER)
    with running(run, "--approval", "--batch-every", "24h") as service:
        with tab(browser, service.url) as asking, tab(browser, service.url) as working:
            sign_in(working, operator)
            sign_in(asking, requester)
            id_ = ask(asking, "17")
            assert id_ in asking.locator("main").inner_text()
            reference = asking.get_by_role("heading", level=1).inner_text().split()[-1]
            asking.get_by_text("waits for approval").wait_for()

            approve = working.get_by_role("button", name=f"Approve request {reference}")
            approve.wait_for(timeout=SECONDS)  # it appears without loading the page again
            announced = working.locator("#announcer")
            wait_for(lambda: reference in announced.inner_text(), 10, "the new request is announced")
            working.on("dialog", lambda dialog: dialog.accept())
            approve.click()
            working.get_by_text("The request is approved.").wait_for()
            asking.locator("#request-state").get_by_text("pending", exact=True).wait_for(timeout=SECONDS)

            working.get_by_role("button", name="Start now").click()
            working.get_by_text("Whatever waits and is approved is carried out now.").wait_for()
            asking.locator("#request-state").get_by_text("completed").wait_for(timeout=SECONDS)
            wait_for(lambda: "completed" in asking.locator("#announcer").inner_text(), 10, "the end is announced")

            with asking.expect_download() as confirmation:
                asking.get_by_role("link", name="Download the signed confirmation").click()
            file = tmp_path / "confirmation.json"
            confirmation.value.save_as(file)
            pem = asking.request.get("/opendsr/2.0/certificate").text()
            assert Envelope.load(file).signed_by([Certificate.parse(pem, "certificate")])

            working.get_by_role("link", name="Number 1").click(timeout=SECONDS)
            assert working.locator("#validity").inner_text() == "valid"
            with working.expect_download() as receipt:
                working.get_by_role("link", name="Download the signed receipt").click()
            file = tmp_path / receipt.value.suggested_filename
            receipt.value.save_as(file)
            found = verify_file(file, [pem])
            assert found.passed
            assert found.naming("17", id_)
            working.goto("/")
            assert working.locator("#chain-head").inner_text() == found.head == verify_run(run).head
            working.get_by_text("All receipts are valid.").wait_for()

        signed = next((run / "receipts" / "signed").glob("*.json"))
        signed.write_bytes(signed.read_bytes().replace(b'"sig": "M', b'"sig": "N', 1))
        with tab(browser, service.url) as page:
            sign_in(page, token_for(run, Role.AUDITOR))
            page.get_by_text("not valid").first.wait_for(timeout=SECONDS)


def test_refreshing_keeps_focus_and_typed_text(browser, run):
    operator = token_for(run)
    with running(run, "--approval") as service, tab(browser, service.url) as page:
        sign_in(page, operator)
        page.get_by_label("User id").fill("half a na")
        page.get_by_label("Regulation").select_option("ccpa")
        page.locator("summary").first.click()
        for user in ("3", "4"):
            with tab(browser, service.url) as other:
                sign_in(other, operator)
                ask(other, user)
        page.get_by_role("button", name="Cancel request").nth(1).wait_for(timeout=SECONDS)
        assert page.get_by_label("User id").input_value() == "half a na"
        assert page.get_by_label("Regulation").input_value() == "ccpa"
        assert page.locator("details").first.get_attribute("open") is not None
        cancel = page.get_by_role("button", name="Cancel request").first
        cancel.focus()
        focused = page.evaluate("document.activeElement.id")
        time = page.locator("#live-time").inner_text()
        wait_for(lambda: page.locator("#live-time").inner_text() != time, 20, "the page is refreshed")
        assert page.evaluate("document.activeElement.id") == focused
        with tab(browser, service.url) as other:
            sign_in(other, operator)
            other.on("dialog", lambda dialog: dialog.accept())
            other.locator(f"#{focused}").click()
            other.get_by_text("The request is cancelled.").wait_for()
        page.locator(f"#{focused}").wait_for(state="detached", timeout=SECONDS)
        assert page.evaluate("document.activeElement.id") == "queue-title"
        page.on("dialog", lambda dialog: dialog.dismiss())
        page.get_by_role("button", name="Cancel request").first.click()
        assert page.get_by_role("button", name="Cancel request").count() == 1


def test_the_page_can_be_used_by_keyboard_and_without_scripts(browser, run):
    operator = token_for(run)
    with running(run, "--approval") as service:
        with tab(browser, service.url) as page:
            page.goto("/sign-in")
            assert page.evaluate("document.activeElement.id") == "token"
            page.keyboard.type(operator)
            page.keyboard.press("Enter")
            page.wait_for_url("**/")
            order = []
            for _ in range(10):
                page.keyboard.press("Tab")
                place = page.evaluate(FOCUS)
                assert place[1] != "none", f"{place[0]} does not show that it has the focus"
                assert place[2] >= 2, f"{place[0]} does not show that it has the focus"
                order.append(place[0])
            assert order[0] == "Skip to the content"
            assert order[2:] == ["Overview", "Requests", "Receipts", "API", "sign-out", "user", "regulation", "ask"]
            page.keyboard.press("Shift+Tab")
            page.keyboard.press("Shift+Tab")
            page.keyboard.type("17")
            page.once("dialog", lambda dialog: dialog.accept())
            page.keyboard.press("Enter")
            page.wait_for_url("**/requests/*")
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
            assert page.evaluate("document.activeElement.id") == "main"
        with tab(browser, service.url, java_script_enabled=False) as page:
            sign_in(page, operator)
            page.get_by_role("button", name="Approve request").click()
            page.get_by_text("The request is approved.").wait_for()
            page.get_by_role("button", name="Sign out").click()
            page.get_by_text("You are signed out.").wait_for()


def test_who_is_signed_out_or_cut_off_is_told(browser, run):
    operator = token_for(run)
    with running(run) as service, tab(browser, service.url) as page:
        sign_in(page, operator)
        page.context.clear_cookies()
        page.get_by_text("You are signed out, so").wait_for(timeout=SECONDS)
        sign_in(page, operator)
        page.locator("#live-time").wait_for(timeout=SECONDS)
        service.kill()
        page.get_by_text("The service does not answer").wait_for(timeout=SECONDS)
        assert all("Failed to load resource" in one for one in page.complaints)
        page.complaints.clear()


@pytest.mark.parametrize("theme", THEMES)
def test_pages_fit_and_can_be_read(browser, run, tmp_path, theme):
    operator, requester = token_for(run), token_for(run, Role.REQUESTER)
    with running(run) as service, tab(browser, service.url, color_scheme=theme) as page:
        page.goto("/sign-in")
        check_layout(page, "sign-in")
        picture(page, tmp_path, f"sign-in-{theme}")
        sign_in(page, operator)
        finished = ask(page, "17")
        page.locator("#request-state").get_by_text("completed").wait_for(timeout=SECONDS)
        page.goto("/")
        page.get_by_role("link", name="Number 1").wait_for(timeout=SECONDS)
        for width in (WIDE, PHONE):
            page.set_viewport_size({"width": width, "height": 800})
            for name, path in [*PAGES.items(), ("request", f"/requests/{finished}")]:
                page.goto(path)
                name = f"{name}-{theme}-{width}"
                for details in page.locator("summary").all():
                    details.click()
                check_layout(page, name)
                picture(page, tmp_path, name)
        assert {one.partition(":")[0] for one in page.complaints} <= {"error"}, page.complaints
        page.complaints.clear()  # the page that is not there
        page.get_by_role("button", name="Sign out").click()
        sign_in(page, requester)
        ask(page, "3")
        page.goto("/")
        check_layout(page, f"requester-{theme}")
        picture(page, tmp_path, f"requester-{theme}")
