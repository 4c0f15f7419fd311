"""Lines below what a program writes, in front of an emulator of a terminal."""

from __future__ import annotations

import io
import os
import pty
import termios
import threading
from collections.abc import Iterator

import pyte
import pytest

from harness.ground.progress.screen import Screen, below


class Emulated:
    """A terminal of 20 columns and 6 rows, and what writes to it."""

    def __init__(self) -> None:
        self.ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (6, 20))
        self.file = open(theirs, "w", encoding="utf-8")  # noqa: SIM115
        os.set_blocking(self.ours, False)
        self.screen = pyte.HistoryScreen(20, 6, history=1000)
        self.stream = pyte.ByteStream(self.screen)
        self.lines: list[str] = []
        self.line = ""
        self.live = Screen(self.file, lambda columns, rows: self.lines, lambda: len(self.line))

    def write(self, text: str) -> None:
        self.line = (self.line + text).rpartition("\n")[2]
        self.live.write(text)
        self.look()

    def look(self) -> list[str]:
        try:
            while data := os.read(self.ours, 65536):
                self.stream.feed(data)
        except BlockingIOError:
            pass
        return [line.rstrip() for line in self.screen.display]


@pytest.fixture
def terminal() -> Iterator[Emulated]:
    made = Emulated()
    yield made
    made.live.close()
    made.file.close()
    os.close(made.ours)


def test_lines_stay_below_and_go(terminal: Emulated) -> None:
    terminal.write("a.py ..")
    terminal.lines = ["one", "two"]
    terminal.live.draw()
    assert terminal.look() == ["a.py ..", "one", "two", "", "", ""]
    terminal.write(".F\nb.py ")
    assert terminal.look() == ["a.py ...F", "b.py", "one", "two", "", ""]
    terminal.lines = ["three"]
    terminal.live.draw()
    assert terminal.look() == ["a.py ...F", "b.py", "three", "", "", ""]
    for number in range(9):
        terminal.write(f".\n{number} ")
    assert terminal.look() == ["4 .", "5 .", "6 .", "7 .", "8", "three"]
    terminal.live.close()
    terminal.live.close()
    assert terminal.look() == ["4 .", "5 .", "6 .", "7 .", "8", ""]
    assert (terminal.screen.cursor.y, terminal.screen.cursor.x) == (4, 2)
    terminal.live.write("and on\n")
    terminal.file.flush()
    assert terminal.look()[4] == "8 and on"
    terminal.live.draw()
    assert terminal.look()[5] == ""


def test_nothing_is_written_where_nothing_has_changed(terminal: Emulated) -> None:
    terminal.lines = ["one"]
    terminal.live.draw()
    terminal.look()
    terminal.live.draw()
    with pytest.raises(BlockingIOError):
        os.read(terminal.ours, 1)


def test_what_is_too_long_wraps_nowhere(terminal: Emulated) -> None:
    terminal.write("\n" * 5 + "last")
    terminal.lines = ["x" * 99, "y" * 99]
    terminal.live.draw()
    assert terminal.look()[3:] == ["last", "x" * 20, "y" * 20]
    terminal.write(" one")
    assert terminal.look()[3] == "last one"
    assert pyte.modes.DECAWM in terminal.screen.mode


def test_at_the_last_column_no_character_is_lost(terminal: Emulated) -> None:
    terminal.lines = ["one"]
    terminal.live.draw()
    for _ in range(45):
        terminal.write(".")
        terminal.live.draw()
    assert terminal.look()[:4] == ["." * 20, "." * 20, "." * 5, "one"]


def test_threads_write_whole_pieces(terminal: Emulated) -> None:
    terminal.lines = ["one", "two"]

    def work(letter: str) -> None:
        for _ in range(50):
            terminal.live.write(f"{letter * 8}\n")
            terminal.live.draw()

    threads = [threading.Thread(target=work, args=[letter]) for letter in "abc"]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        terminal.look()
    terminal.live.close()
    terminal.look()
    top = [
        "".join(line[x].data for x in range(20)).rstrip() for line in terminal.screen.history.top
    ]
    written = [line for line in [*top, *terminal.look()] if line]
    assert sorted(written) == sorted(letter * 8 for letter in "abc" for _ in range(50))


def test_what_cannot_be_written_is_said_to_who_writes(terminal: Emulated) -> None:
    latin = open(terminal.file.fileno(), "w", encoding="latin-1", closefd=False)  # noqa: SIM115
    screen = Screen(latin, lambda columns, rows: [], lambda: 0)
    with pytest.raises(UnicodeEncodeError):
        screen.write("…")
    screen.write("é")
    assert screen.isatty()
    screen.close()
    with pytest.raises(OSError):
        Screen(io.StringIO(), lambda columns, rows: [], lambda: 0)


def test_no_lines_are_nothing() -> None:
    assert below([]) == ""
