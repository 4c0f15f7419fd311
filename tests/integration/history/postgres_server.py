"""A PostgreSQL of Debian's of one's own: on a Unix socket, in a folder that goes again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

_ACCOUNT = "postgres"
# they are on nobody's PATH
_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


class PostgresServer:
    """Started when made; `kill` ends it as a power cut would, `start` brings it back."""

    def __init__(self) -> None:
        # not below pytest's folder: the name of a socket has at most 107 characters
        self.folder = Path(tempfile.mkdtemp(prefix="qnnh-pg-"))
        self._account = _ACCOUNT if os.getuid() == 0 else None
        if self._account:
            shutil.chown(self.folder, self._account)
        self.data = self.folder / "data"
        user = self._account or pwd.getpwuid(os.getuid()).pw_name
        self.url = f"postgresql://{user}@/postgres?host={self.folder}"
        self._run("initdb", "--auth=trust", f"--username={user}", "-D", self.data)
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        # fsync has no part in what a killed process leaves behind
        options = ("-k", self.folder, "-c", "listen_addresses=", "-c", "fsync=off")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(_PROGRAMS[-1] / "postgres"), "-D", str(self.data), *map(str, options)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                user=self._account,
                cwd=self.folder,
            )
        until = time.monotonic() + 60
        ready = [str(_PROGRAMS[-1] / "pg_isready"), "-q", "-h", str(self.folder)]
        while subprocess.run(ready, check=False).returncode != 0:
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)

    def kill(self) -> None:
        """Ends it at once, without anything being put in order."""
        self._process.kill()
        self._process.wait(60)
        until = time.monotonic() + 60
        # its children notice; only then can another one start on the same data
        while self._children() and time.monotonic() < until:
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends it, and removes its folder."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(60)
        shutil.rmtree(self.folder)

    def _children(self) -> bool:
        mine = str(self.data).encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(process / "cwd").encode() == mine:
                    state = (process / "stat").read_text().rpartition(")")[2].split()[0]
                    if state != "Z":
                        return True
            except OSError:
                continue
        return False

    def _run(self, program: str, *arguments: object) -> None:
        words = [str(_PROGRAMS[-1] / program), *map(str, arguments)]
        with (Path(self.folder) / f"{program}.out").open("ab") as output:
            subprocess.run(
                words,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                user=self._account,
                cwd=self.folder,
                timeout=120,
                check=True,
            )
