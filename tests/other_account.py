"""Another account of this computer: what does it get?"""

from __future__ import annotations

import os
from collections.abc import Callable

NOBODY = 65534


def as_nobody(attempt: Callable[[], object]) -> str:
    """What `attempt` returns, or the name of the error it raises, in a process of user `nobody`.

    The process is a fork, since this Python may lie where no other account can start it.
    """
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            try:
                said = str(attempt())
            except Exception as error:
                said = type(error).__name__
            os.write(theirs, said.encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(child, 0)
    return said
