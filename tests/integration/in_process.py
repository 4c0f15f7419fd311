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
    *arguments: object, environment: Mapping[str, str] | None = None, code: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Output and exit code as of a process of its own: for wrong input above all.

    It ends with code, if that is given.
    """
    words = ["qnn-harness", *map(str, arguments)]
    watched = {number: signal.getsignal(number) for number in _WATCHED}
    out, err, ended = io.StringIO(), io.StringIO(), None
    with (
        mock.patch.object(sys, "argv", words),
        mock.patch.dict(os.environ, environment or os.environ, clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            ended = end.code
        finally:
            for number, handler in watched.items():
                signal.signal(number, handler)
    assert code in (None, ended), f"{ended}: {out.getvalue()}{err.getvalue()}"
    return subprocess.CompletedProcess(words, ended, out.getvalue(), err.getvalue())
