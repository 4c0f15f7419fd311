"""Whether the probe runs at all where it was put: part of a device's health."""

from __future__ import annotations

import posixpath
from typing import Final

from harness.adb.device import AdbDevice
from harness.errors import DeviceError
from harness.probe.plan import Plan, Step
from harness.probe.run import run_plan

_TIMEOUT_S: Final = 10.0


def probe_problem(adb: AdbDevice, probe: str, *, source: str | None = None) -> str | None:
    """Runs a plan that does nothing; why that fails, None if it does not or the file is gone.

    `source` is the hash of the sources that it must say it was built from. A file that is gone is
    no fault of the device: the next deployment brings it back. Raises DeviceError only if the
    device cannot be asked for the file.
    """
    if adb.stat(probe) is None:
        return None
    try:
        run = run_plan(
            adb,
            probe,
            Plan((Step("noop"),)),
            env={},
            cwd=posixpath.dirname(probe),
            timeout_s=_TIMEOUT_S,
        )
    except DeviceError as error:
        return error.problem
    said_source = None if run.transcript.start is None else run.transcript.start.source
    if source is not None and said_source != source:
        return f"it says that it was built from {said_source}, and not from {source}"
    if run.transcript.first_failure is None and run.exit_code == 0:
        return None
    said = run.stderr.decode("utf-8", "replace").strip()[-300:]
    return said or "it does not carry out a plan that does nothing"
