"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from harness.cache import cache_root, simulated_root
from harness.lab.attach import OpenLab
from harness.lab.inventory import Lab
from harness.lab.lease import Leases, lease_root

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


def open_lab(lab: Lab, command: str) -> OpenLab:
    """The lab for one command, which holds every device that it uses; it waits for none."""
    cache = cache_root()
    return OpenLab(
        lab,
        key_folder=cache / "keys",
        storage_root=simulated_root(cache),
        leases=Leases(lease_root(), purpose=f"qnn-harness {command}"),
    )
