"""``fedforget serve``: the erasure service of a run."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedforget.cli import show
from fedforget.cli.runs import Run
from fedforget.errors import ConfigError

LISTEN, BATCHES, CALLBACKS, SIGNING = "Address", "Batches", "Callbacks", "Signing"


def require_service() -> None:
    """Say what is missing if the extra is not installed."""
    if any(
        find_spec(name) is None for name in ("fastapi", "uvicorn", "securesystemslib", "prometheus_client", "jinja2")
    ):
        raise ConfigError("The erasure service is not installed.", "pip install 'fedforget[service]'")


def _variable(name: str) -> str:
    return f"FEDFORGET_SERVE_{name.upper()}"


CallbackHost = Annotated[
    list[str] | None,
    typer.Option(
        help="A host that may be called back, with its port if it is not 443; repeatable.",
        envvar=_variable("callback_host"),
        rich_help_panel=CALLBACKS,
    ),
]
CallbackPrivate = Annotated[
    list[str] | None,
    typer.Option(
        help="A host that may be called back at a private address and without TLS, with its port if it is not 443 "
        "or, without TLS, 80; repeatable.",
        envvar=_variable("callback_private"),
        rich_help_panel=CALLBACKS,
    ),
]
BatchEvery = Annotated[
    str | None,
    typer.Option(
        help="Carry requests out every so often, such as 24h; default at once.",
        envvar=_variable("batch_every"),
        rich_help_panel=BATCHES,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(help="Carry requests out when so many wait.", envvar=_variable("batch_size"), rich_help_panel=BATCHES),
]
Approval = Annotated[
    bool | None,
    typer.Option(
        "--approval",
        help="An operator approves each request.",
        envvar=_variable("approval"),
        rich_help_panel=BATCHES,
    ),
]


def serve(
    run: Run,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with any of these settings.", envvar=_variable("config"))
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on; default 127.0.0.1.", envvar=_variable("host"), rich_help_panel=LISTEN),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port; default 8765; 0 takes a free one.", envvar=_variable("port"), rich_help_panel=LISTEN),
    ] = None,
    tls_cert: Annotated[
        str | None,
        typer.Option(help="Certificate of this address.", envvar=_variable("tls_cert"), rich_help_panel=LISTEN),
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(help="Its private key.", envvar=_variable("tls_key"), rich_help_panel=LISTEN)
    ] = None,
    behind_proxy: Annotated[
        bool | None,
        typer.Option(
            "--behind-proxy", help="A proxy adds TLS.", envvar=_variable("behind_proxy"), rich_help_panel=LISTEN
        ),
    ] = None,
    proxies: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or network of the proxy, whose X-Forwarded-For is trusted; default this machine; repeatable.",
            envvar=_variable("proxies"),
            rich_help_panel=LISTEN,
        ),
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option(
            help="Address of the service in its answers, if a proxy has another one.",
            envvar=_variable("public_url"),
            rich_help_panel=LISTEN,
        ),
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option(
            "--insecure",
            help="Listen beyond this machine without TLS.",
            envvar=_variable("insecure"),
            rich_help_panel=LISTEN,
        ),
    ] = None,
    batch_every: BatchEvery = None,
    batch_at: Annotated[
        str | None,
        typer.Option(
            help="Carry requests out daily at an hour, such as 02:30.",
            envvar=_variable("batch_at"),
            rich_help_panel=BATCHES,
        ),
    ] = None,
    batch_size: BatchSize = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            help="Time allowed for a request; default 30d. A near deadline starts a batch at once.",
            envvar=_variable("deadline"),
            rich_help_panel=BATCHES,
        ),
    ] = None,
    approval: Approval = None,
    domain: Annotated[
        str | None,
        typer.Option(
            help="Name of this processor in answers; default the name of this machine.",
            envvar=_variable("domain"),
            rich_help_panel=CALLBACKS,
        ),
    ] = None,
    callback_host: CallbackHost = None,
    callback_private: CallbackPrivate = None,
    signing_key: Annotated[
        str | None,
        typer.Option(
            help="Private key of receipts (ECDSA P-256, PEM); by default one is made.",
            envvar=_variable("signing_key"),
            rich_help_panel=SIGNING,
        ),
    ] = None,
    signing_cert: Annotated[
        str | None,
        typer.Option(help="Its certificate.", envvar=_variable("signing_cert"), rich_help_panel=SIGNING),
    ] = None,
    audits: Annotated[
        list[str] | None,
        typer.Option(help="Folders with audits of forgetting; repeatable.", envvar=_variable("audits")),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Calls a second for each token; default 500.", envvar=_variable("rate")),
    ] = None,
    keep_calls: Annotated[
        str | None, typer.Option(help="How long the log of calls is kept; default 90d.", envvar=_variable("keep_calls"))
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json.", envvar=_variable("log_format"))] = None,
) -> None:
    """Serve the erasure requests of a run: the OpenDSR API, signed receipts, a page and metrics.

    Make tokens first: fedforget token add RUN --role operator --name NAME. On a network it runs beside the Flower
    server; for a simulated run it carries the requests out itself.
    """
    require_service()
    from fedforget.erasure_service.serving import serve as serve_run
    from fedforget.erasure_service.settings import ServiceSettings

    given = {
        "host": host,
        "port": port,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "behind_proxy": behind_proxy,
        "proxies": proxies or None,
        "public_url": public_url,
        "insecure": insecure,
        "batch_every": batch_every,
        "batch_at": batch_at,
        "batch_size": batch_size,
        "deadline": deadline,
        "approval": approval,
        "domain": domain,
        "callback_hosts": callback_host or None,
        "callback_private": callback_private or None,
        "signing_key": signing_key,
        "signing_cert": signing_cert,
        "audits": audits or None,
        "rate": rate,
        "keep_calls": keep_calls,
        "log_format": log_format,
    }
    settings = ServiceSettings.build(given, config)
    serve_run(run, settings, lambda url: show.lines(f"Serving {run} at {url}\nStop it with Ctrl-C."))
