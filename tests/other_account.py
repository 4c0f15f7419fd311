"""Another account of this computer: what does it get?"""

import os
from collections.abc import Callable

NOBODY = 65534


def as_nobody(attempt: Callable[[], object]) -> str:
    """Return the result of `attempt`, or its error's name, in a process of user `nobody`.

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
                result = str(attempt())
            except Exception as error:
                result = type(error).__name__
            os.write(theirs, result.encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as answer:
        result = answer.read().decode()
    os.waitpid(child, 0)
    return result
