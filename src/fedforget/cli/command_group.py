"""CommandGroup: a command that also has subcommands, such as ``receipts RUN`` and ``receipts verify FILE``."""

from __future__ import annotations

from typing import Any

import click
from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """Runs the subcommand that the first argument names; with any other one, the group's callback is the command.

    What is called like a subcommand, such as a folder, can be given as ``./NAME``.
    """

    allow_interspersed_args = True
    allow_extra_args = False

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return super().get_params(ctx) if ctx.command is self else []  # the usage of a subcommand lacks the group's

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            ctx.args = args
            return args
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        if not ctx.args:
            return click.Command.invoke(self, ctx)
        name, command, rest = self.resolve_command(ctx, ctx.args)
        assert command is not None
        ctx.invoked_subcommand = name
        with command.make_context(name, rest, parent=ctx) as below:
            return command.invoke(below)
