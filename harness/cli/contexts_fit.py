"""`qnn-harness contexts fit` and `calibrate`: whether contexts fit into protection domains."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from typing import Literal

import click

from harness.artefacts.artefact import Piece
from harness.artefacts.extract import piece_file
from harness.artefacts.open import open_artefacts
from harness.cli.lab_options import (
    HOST_TARGET,
    files_argument,
    host_runtime,
    json_option,
    lab_option,
    open_catalog,
)
from harness.cli.say import say, say_json
from harness.contexts.metadata import Unreadable, memory_bytes, needs, read_each
from harness.contexts.schedule import RESIDENCIES, Residency
from harness.errors import ConfigError
from harness.files.cache import cache_root
from harness.fit.calibration import (
    Calibration,
    Unmeasured,
    calibrate,
    kept_calibration,
    reserved,
)
from harness.fit.packing import Room
from harness.fit.report import FitContext, fit, fit_lines
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog
from harness.runtimes.runtime import Runtime

_log = logging.getLogger(__name__)

_NEGATIVE = 1

qnn_option = click.option(
    "--qnn", metavar="VERSION", help="Whose simulator reserves. By default the newest."
)


@click.command("fit")
@files_argument
@click.option("--contexts", type=click.IntRange(1, 8192), help="Load so many, FILEs in turn.")
@click.option("--residency", type=click.Choice(RESIDENCIES), default="resident", show_default=True)
@click.option("--window", type=click.IntRange(1), default=4, show_default=True)
@click.option("--budget", type=click.IntRange(1), help="Bytes of one protection domain.")
@click.option("--sessions", type=click.IntRange(1, 64), help="How many of them there are.")
@qnn_option
@lab_option
@json_option
def fit_command(
    files: tuple[Path, ...],
    contexts: int | None,
    residency: Residency,
    window: int,
    budget: int | None,
    sessions: int | None,
    qnn: str | None,
    lab_file: Path,
    as_json: bool,
) -> int:
    """Tell whether the contexts of FILEs fit, which is the first that does not, and what helps.

    What each takes is what the real library reserves when it loads it alone, here. Without
    --budget the simulator's own is taken; a device has another. Ends with 1 if not all fit.
    """
    catalog = open_catalog(lab_file)
    runtime = host_runtime(catalog, qnn)
    measured = _measured(runtime, _contexts(files))
    wanted = list(islice(cycle(measured), contexts or len(measured)))
    if budget is None:
        known = kept_calibration(cache_root(), runtime) or _calibrated(catalog, runtime)
        budget_bytes, number = known.budget_bytes, sessions or known.sessions
    else:
        budget_bytes, number = budget, sessions or 1
    room = None if budget_bytes is None else Room(budget_bytes, number)
    source: Literal["given", "calibrated"] = (
        "given" if budget is not None or sessions is not None else "calibrated"
    )
    told = fit(
        runtime.qnn_version or runtime.name,
        wanted,
        room,
        source,
        residency=residency,
        window=window,
    )
    if as_json:
        say_json(asdict(told))
    else:
        for line in fit_lines(told):
            say(line)
    return 0 if told.fits else _NEGATIVE


@click.command("calibrate")
@qnn_option
@lab_option
@json_option
def calibrate_command(qnn: str | None, lab_file: Path, as_json: bool) -> None:
    """Measure how much the simulator of a QNN version has to reserve of.

    It loads a small context until the library refuses one and says what is left. `fit` does so by
    itself where that has not been done, and remembers it.
    """
    catalog = open_catalog(lab_file)
    runtime = host_runtime(catalog, qnn)
    found = _calibrated(catalog, runtime)
    if as_json:
        say_json(asdict(found))
    elif found.budget_bytes is None:
        say(f"QNN {found.qnn} refuses nothing")
    else:
        size = f"{found.budget_bytes:,} bytes each"
        say(f"QNN {found.qnn}: protection domains: {found.sessions}, of {size}")


def _calibrated(catalog: Catalog, runtime: Runtime) -> Calibration:
    root = cache_root()
    return calibrate(root, catalog, ProbeBuilder(root / "probe"), runtime)


def _contexts(files: Sequence[Path]) -> list[tuple[str, Piece]]:
    found = []
    for artefact in open_artefacts(files):
        name = artefact.path.name
        pieces = [piece for piece in artefact.pieces if piece.kind == "context"]
        if left_out := len(artefact.pieces) - len(pieces):
            _log.warning("%s: left out, as empty or a DLC: %d", artefact.path, left_out)
        elif not pieces:
            _log.warning("%s: %s without a context in it", artefact.path, artefact.kind)
        found += [(f"{name}#{one.origin}" if one.origin else name, one) for one in pieces]
    if not found:
        raise ConfigError("no context binary is in what was given", field="FILE")
    return found


def _measured(runtime: Runtime, named: Sequence[tuple[str, Piece]]) -> list[FitContext]:
    probes = ProbeBuilder(cache_root() / "probe")
    pieces = [piece for _, piece in named]
    told = read_each(probes, runtime.library("libQnnSystem.so"), pieces)
    files = [piece_file(piece, cache_root()) for piece in pieces]
    sizes = reserved(probes.build(HOST_TARGET), runtime.library("libQnnHtp.so"), files)
    found = []
    for (name, piece), metadata, size in zip(named, told, sizes, strict=True):
        if isinstance(metadata, Unreadable):
            where = f"{piece.origin}: " if piece.origin else ""
            raise ConfigError(f"{where}{metadata.reason}", file=piece.path)
        if isinstance(size, Unmeasured):
            parts = needs(metadata)
            least = memory_bytes(metadata) + (parts.vtcm_bytes or 0)
            spill_fill = parts.spill_fill_bytes or 0
            found.append(FitContext(name, least, spill_fill, "metadata", size.reason))
        else:
            found.append(FitContext(name, size.total, size.spill_fill, "measured"))
    return found
