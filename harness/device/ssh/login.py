"""A computer that ssh leads to, and how ssh is called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_OPTIONS: Final = (
    *("BatchMode=yes", "ExitOnForwardFailure=yes", "ConnectTimeout=10"),
    *("ServerAliveInterval=5", "ServerAliveCountMax=3"),
    *("StreamLocalBindUnlink=yes", "StreamLocalBindMask=0177"),
    *("ForwardAgent=no", "ForwardX11=no"),
    # shared by commands of ours alone: a connection that the user shares may end at any time
    "ControlPersist=no",
)


HOST: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
"""A host name or an IPv4 address. It never begins like an option of a program."""
_LOGIN: Final = rf"(?:[A-Za-z_][A-Za-z0-9._-]{{0,63}}@)?(?:{HOST}|\[[0-9A-Fa-f:.%]{{2,45}}\])"
SSH_COMPUTER: Final = re.compile(rf"({_LOGIN})(?::(\d{{1,5}}))?", re.ASCII)
"""[user@]host[:port]"""


@dataclass(frozen=True)
class SshLogin:
    """A computer that ssh leads to: `[user@]host`, as ssh's own configuration knows it."""

    login: str
    port: int | None = None

    @property
    def host(self) -> str:
        return self.login.rpartition("@")[2]

    def __str__(self) -> str:
        user, at, host = self.login.rpartition("@")
        host = f"[{host}]" if ":" in host else host
        return f"{user}{at}{host}" + ("" if self.port is None else f":{self.port}")

    @property
    def advice(self) -> str:
        port = "" if self.port is None else f"-p {self.port} "
        return f"`ssh {port}{self.login} true` must work without asking anything"

    def command(self, shared: Path, *more: str, words: tuple[str, ...] = ()) -> list[str]:
        """ssh to it, by the connection whose socket is `shared`, with more options (pure)."""
        options = [word for option in (*_OPTIONS, *more) for word in ("-o", option)]
        port = [] if self.port is None else ["-p", str(self.port)]
        escaped = str(shared).replace("%", "%%")
        return ["ssh", "-T", *options, "-S", escaped, *port, *words, "--", self.login]


def login_at(computer: str) -> SshLogin | None:
    """The computer at `[user@]host[:port]`, None if it is written in another way."""
    found = SSH_COMPUTER.fullmatch(computer)
    if found is None or not is_port(found[2]):
        return None
    return SshLogin(re.sub(r"[\[\]]", "", found[1]), None if found[2] is None else int(found[2]))


def is_port(port: str | None) -> bool:
    """Whether digits are the number of a port; None, for one that is not named, is."""
    return port is None or 0 < int(port) < 65536
