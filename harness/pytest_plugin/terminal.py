"""What a run shares with whoever watches it: progress, warnings, and being told to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest


def end_in_order_on_sigterm() -> None:
    """CI systems end a job with SIGTERM: it then ends as with Ctrl-C, reports and all."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def terminal_notices(
    config: pytest.Config,
) -> tuple[Callable[[str], None], Callable[[str], None]]:
    """Progress, shown on a terminal only; and warnings, shown in a pipe, too.

    Both go through pytest's own reporter, since it captures what is written past it.
    """

    def notify(text: str) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and reporter.isatty:
            reporter.write_line(text)

    def warn(text: str) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(f"warning: {text}", yellow=True)

    return notify, warn
