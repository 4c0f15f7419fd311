"""Programs that fail for reasons of their own, and what they print: no NPU has to do with it.

`failures.txt` has a program and a line of the shell in each row. They run in a folder whose name
has words of ours, as a project's that uses QNN would.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROWS: Final = Path(__file__).with_name("failures.txt")
FOLDER: Final = "qnn-htp-genie"
_LONGEST_S: Final = 120
_DATA: Final = bytes(range(1, 256)) * 16


@dataclass(frozen=True)
class Failure:
    """A program, and the line of the shell in which it fails."""

    program: str
    line: str

    @property
    def here(self) -> bool:
        """Whether this computer has the program."""
        return shutil.which(self.program) is not None

    def log(self, within: Path) -> bytes:
        """What it prints, run in a new folder within that one."""
        folder = within / FOLDER
        folder.mkdir()
        (folder / "data.bin").write_bytes(_DATA)
        (folder / "data.bin").chmod(0o755)
        done = subprocess.run(
            ("bash", "-c", self.line),
            cwd=folder,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LONGEST_S,
            check=False,
        )
        return done.stdout


def failures() -> list[Failure]:
    """All of them, whatever is here."""
    rows = ROWS.read_text("utf-8").splitlines()
    return [Failure(program, line) for program, _, line in (row.partition("\t") for row in rows)]


def _environment(folder: Path) -> dict[str, str]:
    told = {key: os.environ[key] for key in ("PATH", "LANG", "RUSTUP_HOME") if key in os.environ}
    return told | {"HOME": str(folder), "TMPDIR": str(folder)}
