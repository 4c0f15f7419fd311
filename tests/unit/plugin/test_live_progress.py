"""Live lines of a run, in front of an emulator of a terminal."""

import os
import pty
import termios
from collections.abc import Iterator

import pyte
import pytest

from harness.core.notices import report_progress
from harness.plugin.live_progress import Show
from harness.plugin.progress import RunCounts

CASES = [f"test_a.py::test[{number}]" for number in range(4)]


class Emulated:
    """A terminal, and the live lines on it, which are drawn when they are looked at."""

    def __init__(self, columns: int = 60, rows: int = 8) -> None:
        self.ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (rows, columns))
        self.file = open(theirs, "w", encoding="utf-8")  # noqa: SIM115
        os.set_blocking(self.ours, False)
        self.screen = pyte.HistoryScreen(columns, rows, history=1000)
        self.stream = pyte.ByteStream(self.screen)
        self.counts = RunCounts(CASES)
        self.show = Show(self.counts, self.file, colours=False)
        self.show.auto_refresh = False
        self.show.start()

    def look(self) -> list[str]:
        self.show.refresh()
        return self.seen()

    def seen(self) -> list[str]:
        try:
            while data := os.read(self.ours, 65536):
                self.stream.feed(data)
        except (BlockingIOError, OSError):
            pass
        return [line.rstrip() for line in self.screen.display if line.strip()]

    def close(self) -> None:
        self.show.stop()
        self.file.close()
        os.close(self.ours)


@pytest.fixture
def terminal() -> Iterator[Emulated]:
    terminal = Emulated()
    yield terminal
    terminal.close()


def test_bars_stay_below_what_is_written_and_go(terminal: Emulated) -> None:
    for text in ("a.py ..", ".F\nb.py ", "\x1b[31m.\x1b[0m"):
        terminal.show.write(text)
    *written, bar = terminal.look()
    assert written == ["a.py ...F", "b.py ."]
    assert "0 of 4" in bar
    report_progress("", doing="compiling")
    assert "this computer" in terminal.look()[-1]
    for number in range(20):
        terminal.show.write(f"\n{number} ")
    assert sum("0 of 4" in line for line in terminal.look()) == 1
    terminal.show.stop()
    terminal.show.stop()
    shown = terminal.seen()
    assert shown[-1] == "19"
    assert not any("0 of 4" in line or "this computer" in line for line in shown)
    assert terminal.screen.cursor.x == len("19 ")
    history = [
        "".join(line[column].data for column in range(60)).rstrip()
        for line in terminal.screen.history.top
    ]
    assert [*history, *shown] == ["a.py ...F", "b.py .", *map(str, range(20))]


def test_the_run_and_its_devices(terminal: Emulated) -> None:
    terminal.counts.ended(CASES[0], failed=True)
    terminal.counts.ended(CASES[0], failed=True)
    report_progress("R5CX", name="phone", case=CASES[1], loaded=3, contexts=6)
    run, phone = terminal.look()
    assert run.startswith("qnn-harness: 1 of 4 cases, 1 failed, about 0:0")
    assert phone == "phone  3/6 contexts  test[1]"
    report_progress("phone", doing="pushing", done=30e6, total=120e6, unit="MB")
    assert "phone  pushing  30.0/120.0 MB  test[1]" in terminal.look()[1]
    report_progress("phone", verb="noop", step=2, steps=9, doing=None)
    assert "3/6 contexts  2/9 noop  test[1]" in terminal.look()[1]
    report_progress("R5CX", case=CASES[2])  # which has nothing of the one before
    assert terminal.look()[1] == "phone  test[2]"
    report_progress("phone", case=None)
    assert len(terminal.look()) == 1


@pytest.mark.parametrize("columns", [1, 9, 20, 60])
@pytest.mark.parametrize("rows", [1, 4, 6])
def test_lines_fit_whatever_is_said(columns: int, rows: int) -> None:
    """No line of ours goes out at the top, where nobody could take it away."""
    terminal = Emulated(columns, rows)
    for number, text in enumerate(
        ["", "[bold]", "x" * 999, "\x1b[2J\n", "🧪" * 80, "[/]", "\0"] * 2
    ):
        report_progress(f"{number}{text}", case=text, doing=text[1:], loaded=1, contexts=3)
    terminal.look()
    terminal.look()
    terminal.show.stop()
    assert terminal.seen() == []
    history = terminal.screen.history.top
    assert not any(line[column].data.strip() for line in history for column in range(columns))
    terminal.close()


def test_what_stands_below_the_lines_is_left_to_whoever_wrote_it(terminal: Emulated) -> None:
    terminal.show.write("a.py .")
    terminal.look()
    os.write(terminal.file.fileno(), b"\r\n(Pdb) ")
    terminal.show.stop(clear=False)
    assert terminal.seen()[-1] == "(Pdb)"
    assert not terminal.screen.cursor.hidden


def test_a_terminal_that_is_gone_is_not_the_runs_fault(terminal: Emulated) -> None:
    os.close(terminal.ours)
    terminal.show.refresh()
    terminal.show.stop()
    terminal.ours = os.open(os.devnull, os.O_RDONLY)
