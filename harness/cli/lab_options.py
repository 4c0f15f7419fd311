"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def lab_option(command: Command) -> Command:
    """`--lab FILE`, given to the command as `lab_file`."""
    return click.option(
        "--lab",
        "lab_file",
        type=click.Path(path_type=Path),
        default=Path("devices.yaml"),
        show_default=True,
        help="The lab's devices.",
    )(command)


def json_option(command: Command) -> Command:
    """`--json`, given to the command as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
