"""A real browser: Debian's chromium, driven by Playwright. It records whatever a page complains about."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

#: Set it to a folder to keep the pictures that the tests take.
KEPT = "FEDFORGET_SCREENSHOTS"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")
#: Contrast of text that WCAG 2 asks for, level AA.
LEAST_CONTRAST = 4.5
PHONE, WIDE = 360, 1200


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; skips where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, headless=True, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def tab(browser: Any, url: str, **options: Any) -> Iterator[Any]:
    """A page of its own session; at the end, nothing may have been complained about on it."""
    context = browser.new_context(base_url=url, viewport={"width": WIDE, "height": 800}, **options)
    page, complaints = context.new_page(), []
    context.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    context.on("request", lambda request: _check_ours(request.url, url, complaints))
    try:
        page.complaints = complaints
        yield page
        assert not complaints, complaints
    finally:
        context.close()


def _check_ours(requested: str, url: str, complaints: list[str]) -> None:
    if not requested.startswith((url + "/", "blob:", "data:")):
        complaints.append(f"another address: {requested}")


def sign_in(page: Any, token: str) -> None:
    page.goto("/sign-in")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/")
    page.get_by_role("heading", name="Overview").wait_for()


def check_layout(page: Any, name: str) -> None:
    """Nothing is wider than the page, and text can be read."""
    sizes = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert sizes[0] <= sizes[1], f"{name} is {sizes[0]} wide in {sizes[1]}"
    contrast = page.evaluate(f"({CONTRAST})({LEAST_CONTRAST})")
    assert contrast["checked"] > 3, name
    assert not contrast["found"], f"{name}: {contrast['found']}"


def picture(page: Any, folder: Path, name: str) -> None:
    """Take a picture of the whole page."""
    folder = Path(os.environ.get(KEPT) or folder)
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png", full_page=True)
