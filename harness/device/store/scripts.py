"""The shell scripts that keep the store of files on a device; they lie in device/, one a file.

What is true of all:

Hosts that share a device run them at the same time, and any of them may end after any command.
What keeps them from harming each other is an order of steps, no lock (a lock's holder may be a
host that nobody can ask):

- Whoever wants something writes its name into a claim of its own first, and looks then.
- Whoever removes something makes it invisible first, reads all claims then, and removes it only if
  none names it. So one of the two always sees the other.
- Nothing is ever put under a name that was used before (each has a random end), so a remover that
  was delayed cannot hit what came after it.
- A set counts when it is listed, and that is one rename, the last step of making it.

Ages of claims are counted in the device's uptime: its clock may jump. A claim from before a reboot
is void, since nothing runs any more.

Each script is prelude.sh and its own file, sent as they are; they run in dash, mksh, bash and
busybox. What is meant for us in their output stands behind `transport.questions.PREFIX`, one thing
a line, and ends with `done`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

ScriptName = Literal["look", "install", "check", "inventory", "evict", "remove_all"]


@cache
def script(name: ScriptName) -> str:
    """The text of a script, as a device gets it."""
    folder = files("harness.device.store").joinpath("device")
    return "".join(folder.joinpath(f"{one}.sh").read_text("ascii") for one in ("prelude", name))
