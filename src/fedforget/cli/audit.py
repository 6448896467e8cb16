"""``fedforget audit``: what a model or a server still knows."""

from __future__ import annotations

import typer

from fedforget.cli.audit_forgetting import forgetting
from fedforget.cli.audit_request import request

app = typer.Typer(no_args_is_help=True, help="Audit what is remembered of users, and what was done to forget them.")
app.command()(forgetting)
app.command()(request)
