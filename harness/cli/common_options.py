"""The options that may stand before a command, too: --lab, --reports and --json."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

DEFAULT_LAB: Final = Path("devices.yaml")


class NamedPath(click.Path):
    """A path that is not empty, unlike that of an unset shell variable."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)  # opening it reports that

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """Return the path."""
        if value == "":
            self.fail("the path is empty; name a file or a folder", param, ctx)
        return super().convert(value, param, ctx)


class CommonOption(click.Option):
    """An option that may precede the command; where it is given twice, the last one counts.

    Only `qnn-harness --help` explains it; the help of a command has one line for all of them.
    """

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        """Return the value after the command, else the one before it, else the default."""
        value, source = super().consume_value(ctx, opts)
        values = ctx.meta.setdefault(__name__, {})  # also of the contexts of subcommands
        if source is ParameterSource.COMMANDLINE:
            values[self.opts[0]] = value
        elif self.opts[0] in values:
            return values[self.opts[0]], ParameterSource.COMMANDLINE
        return value, source

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the words for the help, of a command with its last common option only."""
        names = [param.opts[0] for param in ctx.command.params if isinstance(param, CommonOption)]
        if ctx.parent is None:
            return super().get_help_record(ctx)
        if self.opts[0] != names[-1]:
            return None
        return ", ".join(names), "Common options; see `qnn-harness --help`."


lab_option = click.option(
    "--lab",
    "lab_file",
    cls=CommonOption,
    type=NamedPath(),
    metavar="FILE",
    default=DEFAULT_LAB,
    help="The lab's devices (default: devices.yaml, else simulated devices for commands that run "
    "models).",
)
reports_option = click.option(
    "--reports",
    cls=CommonOption,
    type=NamedPath(),
    metavar="DIR",
    default=Path("reports"),
    help="The folder of runs (default: reports).",
)
json_option = click.option(
    "--json", "as_json", cls=CommonOption, is_flag=True, help="Print the result as JSON."
)


class CommandGroup(click.Group):
    """A group that takes the common options for its commands."""

    texts: Mapping[str, str] = {}
    """The first sentences of its commands, if they are not imported yet."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        if not any(isinstance(param, CommonOption) for param in self.params):
            for add in (lab_option, reports_option, json_option):
                add(self)
                self.params[-1].expose_value = False

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write names and first sentences."""
        texts = self.texts or {k: v.get_short_help_str(500) for k, v in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl([*texts.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command. Raises UsageError for a common option that it does not take."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            taken = {param.opts[0] for param in command.params}
            for option in ctx.meta.get(__name__, {}):
                if option not in taken:
                    problem = f"`{ctx.command_path} {name}` does not take {option}."
                    raise click.UsageError(problem, ctx)
        return name, command, rest
