"""Runs `qnn-harness` inside the process of the test, where nothing needs one of its own."""

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from unittest import mock

from harness.cli.main import main

_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def qnn_harness(
    *arguments: object, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Output and exit code as of a process of its own: for wrong input above all."""
    words = ["qnn-harness", *map(str, arguments)]
    watched = {number: signal.getsignal(number) for number in _WATCHED}
    out, err, code = io.StringIO(), io.StringIO(), None
    with (
        mock.patch.object(sys, "argv", words),
        mock.patch.dict(os.environ, environment or os.environ, clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
        finally:
            for number, handler in watched.items():
                signal.signal(number, handler)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
