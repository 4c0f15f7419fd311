"""Another computer that ssh leads to: a real sshd on loopback, and an adb server that it alone
leads to, with simulated devices."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from harness.core.deadline import Deadline
from harness.core.guarded_process import GuardedProcess, spawn_guarded
from harness.transport.adb_server import adb_binary
from tests.faults.breakable import KeptServer, port_of_ones_own
from tests.integration.lab.simulated import simulated
from tests.needed import need
from tests.waiting import wait_for

SSHD = "/usr/sbin/sshd"
_START_S = 15.0
# No test may take the port that adb servers have on this computer: what asks for it gets another.
_SSH = """#!{python}
import os, sys
words = [word.replace(":127.0.0.1:5037", ":127.0.0.1:{port}") for word in sys.argv[1:]]
if "-N" in words:
    with open({folder!r} + "/begun", "a") as begun:
        begun.write("one\\n")
os.execv({ssh!r}, [{ssh!r}, "-F", {folder!r} + "/ssh_config", *words])
"""
# Its own adb, where its server has another port than there would be.
_ADB = """#!/bin/sh
echo "$*" >>{folder}/adb_calls
[ "$3 $4" != "-P 5037" ] || {{ h=$2; shift 4; set -- -H "$h" -P {adb_port} "$@"; }}
exec {adb} "$@"
"""
_SSHD_CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
SetEnv HOME={folder}/home PATH={folder}/there:/usr/local/bin:/usr/bin:/bin
"""
_SSH_CONFIG = """
IdentityFile {folder}/user_key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
GlobalKnownHostsFile none
"""


class SshHost:
    """`login` is what leads there while `bin` is the first folder of PATH; `devices` hang there."""

    def __init__(self, folder: Path, *, devices: int) -> None:
        need(SSHD)
        ssh = shutil.which("ssh")
        assert ssh is not None
        self.folder = folder
        self.bin = folder / "bin"
        self.there = folder / "there"  # the first folder of PATH there
        self.kept = folder / "home/.cache/qnn-harness/pushes"
        self.port = port_of_ones_own()
        self.login = f"{getpass.getuser()}@127.0.0.1:{self.port}"
        self.adb = KeptServer(folder / "home")
        self._ssh = ssh
        self._sshd: GuardedProcess | None = None
        self.devices = [
            simulated(f"far-{number}", folder / f"storage-{number}", folder / "home")
            for number in range(devices)
        ]

    def __enter__(self) -> Self:
        self._configure()
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(self.stop)
            self.start()
            for device in self.devices:
                cleanup.callback(device.stop)
                device.start()
            cleanup.callback(self.adb.stop)
            self.start_adb()
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _configure(self) -> None:
        settings = {"folder": str(self.folder), "port": self.port}
        for name in ("host_key", "user_key"):
            keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name]
            subprocess.run(keygen, check=True)
        (self.folder / "sshd_config").write_text(_SSHD_CONFIG.format(**settings))
        (self.folder / "ssh_config").write_text(_SSH_CONFIG.format(**settings))
        self.trust()
        self.bin.mkdir()
        self.there.mkdir()
        settings |= {"python": sys.executable, "ssh": self._ssh, "port": self.adb.port}
        settings |= {"adb": adb_binary(), "adb_port": self.adb.port}
        for wrapper, text in ((self.bin / "ssh", _SSH), (self.there / "adb", _ADB)):
            wrapper.write_text(text.format(**settings))
            wrapper.chmod(0o755)
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)

    def trust(self, *ports: str, known: bool = True) -> None:
        """Make ssh know the host's key, also at other ports that lead there."""
        key = (self.folder / "host_key.pub").read_text()
        lines = [f"[127.0.0.1]:{port} {key}" for port in (self.port, *ports)]
        (self.folder / "known_hosts").write_text("".join(lines) if known else "")

    def start(self) -> None:
        """Switches it on."""
        log = (self.folder / "sshd.log").open("ab")
        with log:
            command = [SSHD, "-D", "-e", "-f", self.folder / "sshd_config"]
            self._sshd = spawn_guarded(command, stderr=log)
        wait_for(self._listens, (self.folder / "sshd.log").read_text, _START_S)

    def force(self, before: str) -> None:
        """Has a shell do something before each command that ssh runs there from now on."""
        forced = self.folder / "forced"
        forced.write_text(f'{before}\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n')
        self.configure(f"ForceCommand /bin/sh {forced}")

    def configure(self, line: str) -> None:
        """Has a line more in sshd's configuration."""
        with (self.folder / "sshd_config").open("a") as config:
            config.write(f"{line}\n")
        self.stop()
        self.start()

    def start_adb(self) -> None:
        """Starts its adb server, which sees the devices then."""
        self.adb.start()
        for device in self.devices:
            self.adb.server.connect(device.address, deadline=Deadline(_START_S))

    def lab(self) -> dict[str, Any]:
        """A lab of its devices."""
        workdir = "data/local/tmp/qnn-harness"
        devices = [
            {
                "name": device.name,
                "address": f"ssh://{self.login}/{device.address}",
                "soc": "QCS8550",
                "target": "linux-x64",
                "workdir": str(device.storage / workdir),
            }
            for device in self.devices
        ]
        return {"schema": 1, "devices": devices}

    def stop(self) -> None:
        """Switches it off, with all connections that ssh has to it."""
        sshd, self._sshd = self._sshd, None
        if sshd is not None:
            sshd.stop()

    def tunnels(self) -> list[int]:
        """The processes of ssh that lead there now."""
        tunnels = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().split(b"\0")
                config = f"{self.folder}/ssh_config".encode()
                if words[0] == self._ssh.encode() and {b"-N", config} <= {*words}:
                    tunnels.append(int(path.parent.name))
        return tunnels

    def begun(self) -> int:
        """The number of tunnels that were begun."""
        log = self.folder / "begun"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def kill_tunnel(self) -> None:
        for pid in self.tunnels():
            with contextlib.suppress(ProcessLookupError):  # it may end just now
                os.kill(pid, signal.SIGKILL)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False
