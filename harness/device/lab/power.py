"""What switches a device's power: a command of the user's, or a port of a USB hub by uhubctl."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, Field, StrictInt

from harness.device.lab.fields import HubPath
from harness.ground.host.outliving import run_outliving
from harness.ground.yaml_lines.models import Text

UHUBCTL: Final = "uhubctl"
_WITHIN_S: Final = 60.0
_OFF_S: Final = 5


class Power(BaseModel, extra="forbid", frozen=True):
    """`cycle`, or `hub` and `port`."""

    cycle: Annotated[Text, Field(min_length=1, max_length=1000)] | None = None
    """A command for sh on this computer that switches it off and on; 0: done."""

    hub: HubPath | None = None
    """The USB hub that it hangs on as `uhubctl` prints it, e.g. 1-1.4."""

    port: Annotated[StrictInt, Field(ge=1, le=64)] | None = None
    """Which port of the hub."""

    @property
    def command(self) -> list[str]:
        """What switches it off and on (pure)."""
        if self.cycle is not None:
            return ["sh", "-c", self.cycle]
        where = ["-l", self.hub or "", "-p", str(self.port)]
        return [UHUBCTL, *where, "-a", "cycle", "-d", str(_OFF_S)]

    def switch(self) -> None:
        """Switches it off and on. Raises InfraError."""
        what = "the command of `power`" if self.cycle is not None else UHUBCTL
        run_outliving(self.command, what=what, within_s=_WITHIN_S)
