"""The errors that the harness raises, by cause.

The cause becomes the `cause` of a test's record and decides a command's `exit_code`: 2 if the
user's input is wrong, 3 if the lab or the harness itself failed. A fault of the tested software is
a result, not an exception of this family, but for a compiler that fails (CompileError, 1).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from harness.core.outgoing_text import continued, outgoing

Cause = Literal["target", "infra", "config", "harness"]

NO_ROOM: Final = "No space left on device"
"""The error message of a device that is full."""

NEGATIVE: Final = 1
"""The exit code of a command whose answer is negative, such as a failure."""
INTERRUPTED: Final = 130
"""The exit code of a command that Ctrl-C ended."""

_MAX_CHOICES = 24
_MAX_COMMAND = 200
_SCRIPT = re.compile(r"[;{}\n]|\$\(|&&|\|\||[\"$]\d")


class HarnessError(Exception):
    """Base class; each subclass has its `cause`, `exit_code` and `code`.

    `code` is the class's name as records have it: `device-timeout` for DeviceTimeout. `data` are
    the facts of this error. The text can be printed as it is, whatever a device or a file put into
    it: all lines but the first are indented and marked.
    """

    cause: ClassVar[Cause] = "harness"
    exit_code: ClassVar[int] = 3
    code: ClassVar[str] = "harness"

    def __init_subclass__(cls) -> None:
        words = re.findall("[A-Z][a-z]*", cls.__name__.removesuffix("Error"))
        cls.code = "-".join(words).lower()

    def __init__(self, text: str = "", *more: str) -> None:
        """Take further texts in `more`, each of which begins a line."""
        super().__init__("\n".join(continued(outgoing(part)) for part in (text, *more)))

    @property
    def data(self) -> dict[str, Any]:
        """The facts of this error by name: a file and its line, a device's serial, a command."""
        return {name: value for name, value in vars(self).items() if value is not None}


class ConfigError(HarnessError):
    """The user's input is wrong; the message says what, where, and what would be valid.

    `file` and `line` (1-based) locate the mistake, `field` is the dotted path inside the file,
    `choices` are the valid values if they can be listed, `more` further mistakes, a line each.
    """

    cause: ClassVar[Cause] = "config"
    exit_code: ClassVar[int] = 2

    def __init__(
        self,
        problem: str,
        *,
        file: Path | str | None = None,
        line: int | None = None,
        field: str | None = None,
        choices: Iterable[object] | None = None,
        more: Sequence[str] = (),
    ) -> None:
        self.problem = problem
        self.file = file
        self.line = line
        self.field = field
        self.choices = None if choices is None else [str(choice) for choice in choices]
        self.more = tuple(more)
        super().__init__(self._text(), *more)

    def _text(self) -> str:
        position = ""
        if self.file is not None:
            position = f"{self.file}:{self.line}: " if self.line is not None else f"{self.file}: "
        field = f"{self.field}: " if self.field else ""
        listed = [*(self.choices or ())[:_MAX_CHOICES]]
        if self.choices and len(self.choices) > _MAX_CHOICES:
            listed.append(f"and {len(self.choices) - _MAX_CHOICES} more")
        choices = f" (valid: {', '.join(listed)})" if listed else ""
        return f"{position}{field}{self.problem}{choices}"


class NoLabError(ConfigError):
    """There is no lab file (devices.yaml)."""


class VersionError(ConfigError):
    """A version that is not available, or versions that do not go together.

    Other versions may work: callers that try several continue with the next.
    """


def raised_text(where: str, error: Exception) -> str:
    """Return the text of an error that the code of a plug-in raised at `where`."""
    return f"{where}: {type(error).__name__}: {error}"


@contextlib.contextmanager
def plugin_faults(
    part: object, method: str, *, file: Path | None = None, field: str | None = None
) -> Iterator[None]:
    """Raise a ConfigError that names a method of a plug-in's object, for errors that it lets pass.

    HarnessErrors, which say what is wrong, are raised unchanged.
    """
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:
        where = f"{type(part).__module__}.{type(part).__qualname__}.{method}"
        raise ConfigError(raised_text(where, error), file=file, field=field) from error


class InfraError(HarnessError):
    """The lab failed (adb, host, network, lease, power): never a verdict about the target."""

    cause: ClassVar[Cause] = "infra"
    exit_code: ClassVar[int] = 3


class NotYet(InfraError):
    """A device is not ready yet: nothing is wrong, and its case may run on another device."""


class DeviceError(InfraError):
    """Something went wrong between the host and one device.

    It has the device's serial, the `command` (also a path, or a description), and the output before
    the failure, possibly cut. The output is not part of the message: half an answer is of no use,
    and it differs each time.
    """

    def __init__(
        self, problem: str, *, serial: str, command: str | None = None, output: bytes = b""
    ) -> None:
        self.problem = problem
        self.serial = serial
        self.command = command
        self.output = output
        text = f"{serial}: {problem}"
        if command is not None:
            shown = " ".join(command.split())
            if _SCRIPT.search(command) or len(shown) > _MAX_COMMAND:
                shown = "in a shell script"  # its text would not help a reader
            text += f" [{shown}]"
        super().__init__(text)


class DeviceLost(DeviceError):
    """The connection to the device ended before the answer was complete."""


class DeviceTimeout(DeviceError):
    """The overall deadline of a remote action passed: the device or its link was too slow."""


class DeviceRefused(DeviceError):
    """The device answered with an error (no space left, permission denied, no such file...)."""


class DeviceFull(DeviceRefused):
    """The device has no space left; nothing else is wrong with it."""

    @classmethod
    def or_refused(cls, problem: str, **details: Any) -> DeviceRefused:
        """Return the error for a device's message; `details` as in `DeviceError`.

        DeviceFull if the message says that the device is full. Nothing is raised.
        """
        return (cls if NO_ROOM in problem else DeviceRefused)(problem, **details)


class DeviceHot(InfraError):
    """The device is too hot for a timed case, which another one can run; nothing else is wrong."""


class InternalError(HarnessError):
    """A bug of the harness: a state that its own code should have made impossible."""

    cause: ClassVar[Cause] = "harness"
    exit_code: ClassVar[int] = 3
