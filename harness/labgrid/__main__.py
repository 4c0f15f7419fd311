"""The keeper's process: `python -m harness.labgrid FOLDER`, started by session.py."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from harness.core.bounded_json import parse_json
from harness.core.errors import ConfigError, HarnessError
from harness.labgrid.session import PlaceRequest, tell

_NEEDS = "needs labgrid 26 or newer: pip install 'qnn-harness[labgrid]'"


def main() -> int:
    """Its exit code; what went wrong is said on stdout."""
    # Ctrl-C and the end of a terminal are for the session, whose end is then seen here
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # without a buffer, which would take the end of stdin for itself
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        wanted = PlaceRequest(**parse_json(stdin.readline()))
    try:
        try:
            from harness.labgrid.keeper import Keeper
        except ImportError as error:
            raise ConfigError(f"{_NEEDS} ({error})", field="labgrid") from None
        Keeper(wanted, Path(sys.argv[1])).run()
    except ConfigError as error:
        tell(wrong={"problem": error.problem, "field": error.field, "choices": error.choices})
        return error.exit_code
    except HarnessError as error:
        tell(failed=str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
