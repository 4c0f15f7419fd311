"""Every error the harness raises on purpose, divided by who is at fault.

The cause decides what a test's record says (`cause`) and how a command ends (`exit_code`):
2 when the user's input is wrong, 3 when the lab or the harness itself failed. A fault of the
tested software is never an exception of this family: it is a result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from harness.core.outgoing_text import continued, outgoing

Cause = Literal["target", "infra", "config", "harness"]

NO_ROOM: Final = "No space left on device"
"""What devices say that are full."""

_MAX_CHOICES = 24
_MAX_COMMAND = 200
_SCRIPT = re.compile(r"[;{}\n]|\$\(|&&|\|\||[\"$]\d")


class HarnessError(Exception):
    """Base of the family; `cause` and `exit_code` are fixed per subclass.

    Its text can be printed as it is, whatever a device or a file put into it: of several lines, all
    but the first one are indented and marked.
    """

    cause: ClassVar[Cause] = "harness"
    exit_code: ClassVar[int] = 3

    def __init__(self, text: str = "", *more: str) -> None:
        """`more` are further texts, each of which begins a line."""
        super().__init__("\n".join(continued(outgoing(one)) for one in (text, *more)))


class ConfigError(HarnessError):
    """The user's input is wrong: says what, where, and what would be valid.

    `file` and `line` (1-based) point into the file that holds the mistake, `field` is the dotted
    path inside it, `choices` are the valid values if they can be listed, `more` what else is
    wrong, a line each.
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
        where = ""
        if self.file is not None:
            where = f"{self.file}:{self.line}: " if self.line is not None else f"{self.file}: "
        field = f"{self.field}: " if self.field else ""
        listed = [*(self.choices or ())[:_MAX_CHOICES]]
        if self.choices and len(self.choices) > _MAX_CHOICES:
            listed.append(f"and {len(self.choices) - _MAX_CHOICES} more")
        choices = f" (valid: {', '.join(listed)})" if listed else ""
        return f"{where}{field}{self.problem}{choices}"


class NoLabError(ConfigError):
    """There is no file that says which devices the lab has."""


class VersionError(ConfigError):
    """A version that cannot be had here, or versions that do not go together.

    With other versions the same may be fine: whoever tries several goes on with the next.
    """


class InfraError(HarnessError):
    """The lab failed (adb, host, network, lease, power): never a verdict about the target."""

    cause: ClassVar[Cause] = "infra"
    exit_code: ClassVar[int] = 3


class NotYet(InfraError):
    """A device is still being seen to: nothing is wrong, and its case may go elsewhere."""


class DeviceError(InfraError):
    """Something went wrong between the host and one device.

    It has what an engineer needs to go on: the device's serial, what was being done (a command, a
    path, or words), and the output before the failure, possibly cut. That is in no text: half an
    answer tells a reader nothing, and it differs each time.
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
                shown = "in a shell script"  # which says nobody what was being done
            text += f" [{shown}]"
        super().__init__(text)


class DeviceLost(DeviceError):
    """The connection to the device ended before the answer was complete."""


class DeviceTimeout(DeviceError):
    """The overall deadline of a remote action passed: the device was slow, or only unheard."""


class DeviceRefused(DeviceError):
    """The device answered and said no (no space left, permission denied, no such file...)."""


class DeviceFull(DeviceRefused):
    """It has no room for what it was to keep; nothing else is wrong with it."""

    @classmethod
    def or_refused(cls, problem: str, **what: Any) -> DeviceRefused:
        """The error for what a device said when it refused something; `what` as in `DeviceError`.

        Raises nothing.
        """
        return (cls if NO_ROOM in problem else DeviceRefused)(problem, **what)


class DeviceHot(InfraError):
    """It is too hot for a timed case that another one can run; nothing else is wrong with it."""


class InternalError(HarnessError):
    """A bug of the harness: something that its own code should have made impossible."""

    cause: ClassVar[Cause] = "harness"
    exit_code: ClassVar[int] = 3
