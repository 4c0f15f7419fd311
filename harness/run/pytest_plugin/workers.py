"""How many workers `-n auto` starts: one for each device that a named test may run on.

A worker mostly waits for its device, so that a processor serves several.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.ground.errors import ConfigError, HarnessError
from harness.run.pytest_plugin.asked import Selection

if TYPE_CHECKING:
    import pytest

    from harness.device.lab.inventory import DeviceConfig

_PER_PROCESSOR: Final = 4
_MOST_FILES: Final = 300
"""In more files than these markers are not looked for: that would take seconds."""
Marker = Mapping[str, Any]


def number_of_workers(config: pytest.Config, asked: Selection) -> int:
    """One for each device, as far as that is known before places are reserved; 0 without a lab.

    At most four for each of this computer's processors.
    """
    try:
        devices = fitting(asked.devices, _markers(config), asked.options.backends)
    except HarnessError:
        return 0
    places = len([one for one in devices if asked.lab.place_of(one.name)])
    wanted = asked.lab.labgrid.places if asked.lab.labgrid else 0
    return min(len(devices) - max(0, places - wanted), _PER_PROCESSOR * (os.cpu_count() or 1))


def fitting(
    devices: Sequence[DeviceConfig], markers: Sequence[Marker], backends: Sequence[str]
) -> Sequence[DeviceConfig]:
    """The devices that satisfy one of the markers, on one of the backends asked for (pure).

    All do where no marker is known, or one asks for what cannot be.
    """
    from harness.device.lab.matching import misfits
    from harness.run.pytest_plugin.axes import chosen_backends, named_backends

    wanted = [
        {**one, "backend": backend}
        for one in markers
        for backend in chosen_backends(named_backends(one), backends)
    ]
    try:
        found = [one for one in devices if not all(misfits(one, each) for each in wanted)]
    except ConfigError:
        return devices
    return found if markers else devices


def markers_in(source: bytes) -> list[Marker]:
    """What each `device` marker in the text of a file requires (pure).

    Raises ValueError or SyntaxError where that cannot be read off, as of a name for a value.
    """
    tree = ast.parse(source)
    calls = {id(one.func): one for one in ast.walk(tree) if isinstance(one, ast.Call)}
    return [
        {str(one.arg): ast.literal_eval(one.value) for one in calls[id(node)].keywords}
        if id(node) in calls
        else {}
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "device"
        if "mark" in (getattr(node.value, "attr", ""), getattr(node.value, "id", ""))
    ]


def _markers(config: pytest.Config) -> list[Marker]:
    """Those in the files named, of which nothing is imported; none if one cannot be read.

    A test whose devices are not counted runs all the same: workers take any device that fits.
    """
    places = [config.invocation_params.dir / word.partition("::")[0] for word in config.args]
    if not all(one.is_dir() or one.suffix == ".py" for one in places):
        return []  # a model, or a package by its name
    found = (file for one in places for file in _files_of_tests(config, one))
    files = [*islice(found, _MOST_FILES + 1), *(one for one in places if one.is_file())]
    try:
        known = files if len(files) <= _MOST_FILES else ()
        return [one for file in known for one in markers_in(file.read_bytes())]
    except (OSError, ValueError, SyntaxError, RecursionError):
        return []


def _files_of_tests(config: pytest.Config, place: Path) -> Iterator[Path]:
    """Those below a folder, but for folders where pytest does not look: environments above all."""
    ignores, patterns = config.hook.pytest_ignore_collect, config.getini("python_files")
    for folder, below, names in os.walk(place):
        inner = [Path(folder, name) for name in below]
        below[:] = [one.name for one in inner if not ignores(collection_path=one, config=config)]
        files = (Path(folder, name) for name in names)
        yield from (file for file in files if any(map(file.match, patterns)))
