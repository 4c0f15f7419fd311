"""Signals that end a program: the first is obeyed, those behind it do not cut its ending short."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core import end_signals
from harness.core.end_signals import Ending

ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def usual_signals() -> Iterator[None]:
    """As a terminal leaves them, and afterwards as they were."""
    before = {number: signal.getsignal(number) for number in ALL}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("first", "second"), [ALL[:2], ALL[1:], ALL[::-2]])
def test_only_the_first_signal_interrupts(first: signal.Signals, second: signal.Signals) -> None:
    ending = Ending()
    ending.watch()
    ending.watch()  # twice is once
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(first)
    signal.raise_signal(second)
    ending.pytest_unconfigure()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_who_asks_again_later_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    ending = Ending()
    ending.watch()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    monkeypatch.setattr(end_signals, "_GRACE_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_what_is_held_is_not_interrupted() -> None:
    ending = Ending()
    ending.watch()
    with ending.uninterrupted():
        for number in ALL:
            signal.raise_signal(number)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_sigterm_ends_what_was_started_with_the_others_ignored() -> None:
    """As a job of a shell in the background is, and one of nohup."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Ending().watch()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.raise_signal(number)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


def test_what_somebody_else_handles_is_left_alone() -> None:
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    Ending(interrupt=False).watch()
    signal.raise_signal(signal.SIGTERM)
    assert signals == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_interrupts_collecting_is_shown_no_line_of_code(tmp_path: Path) -> None:
    # a library's function is at work, as it mostly is
    text = f"import signal\nlist(map(signal.raise_signal, [{int(signal.SIGTERM)}]))\n"
    (tmp_path / "test_a.py").write_text(text)
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "device", "test_a.py"]
    completed = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    *_, stderr, last = completed.stdout.splitlines()
    assert completed.returncode == 2
    assert stderr.strip("! ") == "Interrupted: SIGTERM"
    assert last.strip("= ").startswith("no tests ran")


def test_of_several_in_one_process_the_last_is_heard() -> None:
    outer, inner = Ending(), Ending()
    outer.watch()
    inner.watch()
    with inner.uninterrupted():
        signal.raise_signal(signal.SIGTERM)
    inner.pytest_unconfigure()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
