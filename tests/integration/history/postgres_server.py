"""A PostgreSQL of Debian's of one's own: on a Unix socket, in a folder that goes again."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

# they are on nobody's PATH
_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


class PostgresServer:
    """Started when made; `kill` ends it as a power cut would, `start` brings it back."""

    def __init__(self) -> None:
        # not below pytest's folder: the name of a socket has at most 107 characters
        self.folder = Path(tempfile.mkdtemp(prefix="qnnh-pg-"))
        self._account = "postgres" if os.getuid() == 0 else None
        if self._account:
            shutil.chown(self.folder, self._account)
        user = self._account or pwd.getpwuid(os.getuid()).pw_name
        self.url = f"postgresql://{user}@/postgres?host={self.folder}"
        self._run("initdb", "--auth=trust", f"--username={user}")
        self.start()

    def start(self) -> None:
        # fsync has no part in what a killed process leaves behind
        options = f"-k {self.folder} -c listen_addresses= -c fsync=off"
        self._run("pg_ctl", "start", "-w", "-l", "log", "-o", options)

    def kill(self) -> None:
        """End it and its children without anything being put in order."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate")

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder)

    def _run(self, program: str, *arguments: str) -> None:
        with (self.folder / f"{program}.out").open("ab") as output:
            subprocess.run(
                [_PROGRAMS[-1] / program, "-D", self.folder / "data", *arguments],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                user=self._account,
                cwd=self.folder,
                timeout=120,
                check=True,
            )
