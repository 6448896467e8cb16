"""The routes of the page. Whatever changes something is posted as a form and answered with a page to go on to."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from fedforget.erasure_service.page import receipt_routes, request_routes, sign_in
from fedforget.erasure_service.page.api_description import describe
from fedforget.erasure_service.page.rendering import FOLDER, render
from fedforget.erasure_service.page.request_view import REGULATIONS
from fedforget.erasure_service.page.view import Pages
from fedforget.erasure_service.page.visitors import Anyone, Operated, service_of, visitor_of

#: What was done before a page is shown, by the name in its address.
DONE = {
    "approved": "The request is approved.",
    "cancelled": "The request is cancelled.",
    "started": "Whatever waits and is approved is carried out now.",
}

pages = APIRouter(include_in_schema=False)


@pages.get("/")
async def overview(request: Request, visitor: Anyone, done: str = "") -> Response:
    """The first page."""
    view = request.app.state.pages.overview(visitor)
    notice = DONE.get(done, "")
    return render(request, "overview.html", visitor, view=view, notice=notice, regulations=REGULATIONS)


@pages.get("/fragments/overview")
async def overview_fragment(request: Request, visitor: Anyone) -> Response:
    """The parts of the first page that change."""
    return render(request, "overview_live.html", visitor, view=request.app.state.pages.overview(visitor))


@pages.post("/batches")
async def start_now(request: Request, fields: Operated) -> Response:
    """Carry out what waits and is approved, now."""
    service_of(request).dispatcher.wake(start_now=True)
    return RedirectResponse("/?done=started", 303)


@pages.get("/docs")
async def docs(request: Request) -> Response:
    """The description of the API."""
    return render(request, "docs.html", visitor_of(request), api=describe(request.app.openapi()))


router = APIRouter()
for part in (sign_in.router, pages, request_routes.router, receipt_routes.router):
    router.include_router(part)


def mount_static(api: FastAPI) -> None:
    """Add the style sheet and the script, and what the pages keep between calls."""
    api.state.pages = Pages(api.state.service)
    api.mount("/static", StaticFiles(directory=FOLDER / "static"), name="static")
