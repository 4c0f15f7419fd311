from .build import PROBE_NAME as PROBE_NAME, ProbeBuilder as ProbeBuilder
from .events import kept_events as kept_events
from .fitness import ProbeFitness as ProbeFitness, probe_problem as probe_problem
from .memory_steps import (
    io_bind as io_bind,
    io_release as io_release,
    io_run as io_run,
    memory_sample as memory_sample,
)
from .ort_plan import (
    QNN_EP as QNN_EP,
    ort_placement as ort_placement,
    ort_run as ort_run,
    ort_session as ort_session,
    ort_session_free as ort_session_free,
)
from .plan import (
    Plan as Plan,
    Settings as Settings,
    Step as Step,
    backend_load as backend_load,
    context_free as context_free,
    context_load as context_load,
    device_create as device_create,
    execute as execute,
    system_load as system_load,
)
from .plan_runner import (
    ProbeRun as ProbeRun,
    run_plan as run_plan,
    run_plan_locally as run_plan_locally,
)
from .transcript import LogLine as LogLine, StepResult as StepResult, Transcript as Transcript
from .wholeness import damage as damage
