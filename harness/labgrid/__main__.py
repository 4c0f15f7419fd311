"""The keeper's process: `python -m harness.labgrid FOLDER`, started by session.py."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from harness.core.bounded_json import parse_json
from harness.core.errors import ConfigError, HarnessError
from harness.labgrid.session import PlaceRequest, send

_NEEDS = "needs labgrid 26 or newer: pip install 'qnn-harness[labgrid]'"


def main() -> int:
    """Run a keeper and return its exit code; errors are reported on stdout."""
    # Ctrl-C and a hangup are for the session; the keeper notices when the session ends
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # unbuffered, since a buffer would swallow the end of stdin
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        request = PlaceRequest(**parse_json(stdin.readline()))
    try:
        try:
            from harness.labgrid.keeper import Keeper
        except ImportError as error:
            raise ConfigError(f"{_NEEDS} ({error})", field="labgrid") from None
        Keeper(request, Path(sys.argv[1])).run()
    except ConfigError as error:
        send(wrong={"problem": error.problem, "field": error.field, "choices": error.choices})
        return error.exit_code
    except HarnessError as error:
        send(failed=str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
