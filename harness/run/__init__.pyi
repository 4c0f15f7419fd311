from .bench import Bench as Bench, CaseBench as CaseBench, NotPassed as NotPassed
from .pytest_plugin.ending import Ending as Ending
from .pytest_plugin.own_contexts import (
    is_of_a_file as is_of_a_file,
    nothing_beside as nothing_beside,
)
from .pytest_plugin.problem import read_problem as read_problem
from .workbench import Placement as Placement, Workbench as Workbench
