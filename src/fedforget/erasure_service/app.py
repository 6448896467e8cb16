"""The web application: routes, errors, limits and the log of calls around an ``ErasureService``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from fedforget.erasure_service import metrics, native_routes, opendsr_routes
from fedforget.erasure_service.call_recorder import CallRecorder
from fedforget.erasure_service.middleware import App, BodyLimit, CallId, SecurityHeaders
from fedforget.erasure_service.page import routes as page_routes
from fedforget.erasure_service.problems import Problem, add_handlers
from fedforget.erasure_service.service import ErasureService
from fedforget.version import __version__

#: Bytes of a body: a request with the most items takes less.
MOST_BYTES = 1 << 17
DESCRIPTION = """Requests to be forgotten, after OpenDSR 2.0, and what an operator needs to know about them.

Every call but discovery, certificate, health and readiness needs a bearer token, made by `fedforget token add`.
"""


def create_api(service: ErasureService) -> FastAPI:
    """The application without its outer layers."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            service.stop()

    api = FastAPI(
        title="fedforget erasure service",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        lifespan=lifespan,
    )
    api.state.service = service
    add_handlers(api)
    for router in (opendsr_routes.router, native_routes.router, metrics.router, page_routes.router):
        api.include_router(router)
    page_routes.mount_static(api)
    _describe(api)
    return api


def create_app(service: ErasureService) -> App:
    """The application as it is served."""
    inner = BodyLimit(metrics.Measured(create_api(service), service), most=MOST_BYTES)
    return CallId(SecurityHeaders(CallRecorder(inner, service.call_log)))


def _describe(api: FastAPI) -> None:
    """Add the schema of problem details to the API's description, which routes refer to."""
    build = api.openapi

    def openapi() -> dict[str, object]:
        schema = build()
        schema["components"].setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
        for operations in schema["paths"].values():
            for operation in operations.values():
                responses = operation["responses"]
                if "422" in responses:  # what is not valid is answered with 400
                    del responses["422"]
        return schema

    api.openapi = openapi  # type: ignore[method-assign]
