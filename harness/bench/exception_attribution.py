"""Attribution of an unexpected exception to the test or to the harness, by its traceback."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal

from harness.core.errors import ConfigError

_PACKAGE: Final = __name__.partition(".")[0]
REFUSED: Final = "pytest cannot run the test as it is written"
_LAZY: Final = "__getattr__"
"""The function that a module calls for a missing name."""
_INSTALLED: Final = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def at_fault(
    failure: BaseException | None, test: str = ""
) -> tuple[Literal["config", "harness"], str | None]:
    """Return `config` if the test is at fault, else `harness`; and why, if pytest refused the test.

    An exception of a library counts against its caller, the test or the harness; one that pytest
    raises before either runs counts against the test. `test` is the file of the test, which may be
    installed like a library.
    """
    caller, called, last = _calls(failure, test)
    if caller is None:
        return ("config", REFUSED) if called is None and last == "_pytest" else ("harness", None)
    return "config" if called is None or called.f_code.co_name == _LAZY else "harness", None


def place_of(failure: BaseException | None, test: str) -> str | None:
    """Return the line of the test, file:line, that called the harness; None if unknown."""
    caller, called, _ = _calls(failure, test)
    return None if caller is None or called is None else f"{caller[0].name}:{caller[1]}"


def line_at_work() -> str | None:
    """Return the line of the test, file:line, that is calling the harness; None without one."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and _package_of(frame) == _PACKAGE:
        frame = frame.f_back
    return None if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def with_its_place(error: ConfigError, test: str) -> ConfigError:
    """Return an error with the line of the test that caused it, unless it names a line already."""
    caller, called, _ = _calls(error, test)
    if caller is None or called is None or error.line is not None:
        return error
    file, line = caller[0].name, caller[1]
    # subclasses such as ArtefactError have constructors of their own
    error_type = type(error) if type(error).__init__ is ConfigError.__init__ else ConfigError
    more: dict[str, Any] = {"file": file, "line": line, "more": error.more}
    if error.file is not None:
        return error_type(error.args[0], **more)
    return error_type(error.problem, field=error.field, choices=error.choices, **more)


def _calls(
    failure: BaseException | None, test: str
) -> tuple[tuple[Path, int] | None, FrameType | None, str]:
    """Return the last line of the test's code, the frame it called and the package that failed."""
    caller: tuple[Path, int] | None = None
    called: FrameType | None = None
    last = ""
    trace = failure.__traceback__ if failure else None
    while trace is not None:
        frame = trace.tb_frame
        last = _package_of(frame)
        if last == _PACKAGE:
            called = called or frame
        elif (file := frame.f_code.co_filename) == test or not file.startswith((*_INSTALLED, "<")):
            caller, called = (Path(file), trace.tb_lineno), None
        trace = trace.tb_next
    return caller, called, last


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def require(kind: type, *values: object) -> None:
    """Raise ConfigError for an argument of another type."""
    for value in values:
        if not isinstance(value, kind):
            raise ConfigError(f"expected {kind.__name__}, got {value!r:.60}")
