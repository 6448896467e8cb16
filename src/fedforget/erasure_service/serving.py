"""Serving: the erasure service on an address, until it is stopped."""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import uvicorn

from fedforget.erasure_service import tokens
from fedforget.erasure_service.app import create_app
from fedforget.erasure_service.connections import Connection
from fedforget.erasure_service.middleware import App
from fedforget.erasure_service.opendsr import rfc3339
from fedforget.erasure_service.service import ErasureService
from fedforget.erasure_service.settings import ServiceSettings
from fedforget.erasure_service.state_file import open_state
from fedforget.erasure_service.tls import check_tls
from fedforget.erasure_service.tokens import TokenStore
from fedforget.errors import SystemLimitError
from fedforget.server.config_file import read_config

log = logging.getLogger(__name__)
#: Connections that may wait to be accepted, and seconds that calls get to finish when the service is stopped.
BACKLOG, GRACE_SECONDS = 512, 5
KEEP_ALIVE_SECONDS = 30


def serve(run: Path, settings: ServiceSettings, ready: Callable[[str], None]) -> None:
    """Serve a run until the process is stopped; ``ready`` gets the address."""
    _log(settings.log_format)
    _check(run, settings)
    listening = _listen(settings)
    try:
        settings = replace(settings, port=listening.getsockname()[1])
        service = ErasureService(run, settings)
        config = server_config(create_app(service), settings)
        with suppress(KeyboardInterrupt):
            Server(config, lambda: ready(settings.url)).run([listening])
    finally:
        listening.close()


def _check(run: Path, settings: ServiceSettings) -> None:
    """Refuse settings with which the service must not listen."""
    if settings.is_tls:
        check_tls(settings.tls_cert, settings.tls_key)
    read_config(run / "config.toml")
    with closing(open_state(run, tokens.SCHEMA)) as db:
        valid = TokenStore(db).valid(datetime.now(UTC))
    settings.check_exposure(valid)
    if not valid:
        log.warning("there are no valid tokens yet: fedforget token add %s --role operator --name NAME", run)


def server_config(app: App, settings: ServiceSettings) -> uvicorn.Config:
    """How an application is served."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ssl_certfile=settings.tls_cert or None,
        ssl_keyfile=settings.tls_key or None,
        proxy_headers=settings.behind_proxy,
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        h11_max_incomplete_event_size=1 << 14,
        loop="asyncio",
        http=Connection,
        ws="none",
    )


class Server(uvicorn.Server):
    """A server that says when it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def _listen(settings: ServiceSettings) -> socket.socket:
    """A socket on the address of the settings."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        hint = "Choose another one: --host, --port (0 takes a free one)."
        raise SystemLimitError(f"Cannot listen on {settings.host}:{settings.port}: {error.strerror}.", hint) from error
    # Made again with its protocol, which accepted connections take over: asyncio sets TCP_NODELAY only where that is
    # TCP. Without it, each answer waits up to 40 ms for the client to acknowledge its first part.
    return socket.socket(fileno=listening.detach())


class JsonFormatter(logging.Formatter):
    """A line of JSON for each message."""

    def format(self, record: logging.LogRecord) -> str:
        when = rfc3339(record.created)
        line = {"time": when, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__  # the message may quote a request
        return json.dumps(line)


class TextFormatter(logging.Formatter):
    """A line of text for each message."""

    def format(self, record: logging.LogRecord) -> str:
        error = f" ({record.exc_info[0].__name__})" if record.exc_info and record.exc_info[0] else ""
        return f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower()}: {record.getMessage()}{error}"


def _log(kind: str) -> None:
    """Log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if kind == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
