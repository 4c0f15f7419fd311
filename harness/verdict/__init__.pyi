from .failure.diagnosis import diagnosed as diagnosed
from .failure.error import ErrorRecord as ErrorRecord, Outcome as Outcome, Part as Part
from .failure.verdict import Verdict as Verdict
from .results.case_names import split_node_id as split_node_id
from .results.checks import Check as Check, held as held, undecided as undecided
from .results.coverage import (
    LOST_TO as LOST_TO,
    Coverage as Coverage,
    Fault as Fault,
    coverage_of as coverage_of,
)
from .results.drift import KEPT as KEPT, Output as Output, steps_of as steps_of
from .results.journal import LeftOut as LeftOut, cases_in as cases_in, uncollected as uncollected
from .results.record import (
    CaseRecord as CaseRecord,
    DeviceEvent as DeviceEvent,
    DeviceRecord as DeviceRecord,
    PlacementRecord as PlacementRecord,
    RuntimeRecord as RuntimeRecord,
    final_attempts as final_attempts,
    is_figure as is_figure,
)
from .results.run_folder import JOURNAL as JOURNAL, RunFolder as RunFolder, new_run_id as new_run_id
from .results.run_order import ordered as ordered
