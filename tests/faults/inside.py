"""Parts of a bench that the fault table changes, in one place: nothing of it is for suites."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from harness.bench.bench import Bench


def probe_of(bench: Bench) -> str:
    """The probe's path on the device."""
    return bench.case.target.probe


def use_probe(bench: Bench, path: str) -> None:
    """Has the case run another program in place of the probe."""
    bench.case.target = replace(bench.case.target)  # others share the one that it was given
    vars(bench.case.target)["probe"] = path


@contextlib.contextmanager
def preloaded(bench: Bench, library: str) -> Iterator[None]:
    """Probes run with a library in front of all others."""
    environment = bench.case.runtime.environment
    environment["LD_PRELOAD"] = library
    try:
        yield
    finally:
        del environment["LD_PRELOAD"]


def deploy_anew(bench: Bench) -> None:
    """Makes the device ready as if nothing were known of it."""
    device = bench.case.target.provisioned
    device.deployer.forget()
    device.ready.clear()
    device.prepare(bench.placement)
