"""``fedforget audit``: what a server learns, and what a model still knows."""

from __future__ import annotations

import typer

from fedforget.cli.audit_forgetting import forgetting
from fedforget.cli.audit_request import request
from fedforget.cli.audit_server import server

app = typer.Typer(no_args_is_help=True, help="Audit what a server learns, what a model remembers, and what was done.")
app.command()(server)
app.command()(forgetting)
app.command()(request)
