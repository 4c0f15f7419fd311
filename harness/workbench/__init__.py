"""Everything a run needs made ready before its first case: libraries, probe, contexts, devices."""

from harness.workbench.placement import Need, Placement, PushedFile
from harness.workbench.workbench import Workbench

__all__ = ["Need", "Placement", "PushedFile", "Workbench"]
