"""Everything a run needs made ready before its first case: libraries, probe, contexts, devices."""

from typing import TYPE_CHECKING, Any

from harness.run.workbench.placement import Need, Placement, PushedFile

if TYPE_CHECKING:
    from harness.run.workbench.held_device import ReadyPlacement
    from harness.run.workbench.workbench import Workbench

__all__ = ["Need", "Placement", "PushedFile", "ReadyPlacement", "Workbench"]


def __getattr__(name: str) -> Any:
    # whoever only collects tests needs none of what these load
    if name not in ("ReadyPlacement", "Workbench"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from harness.run.workbench import workbench

    return getattr(workbench, name)
