"""All that plans are made of: steps for QNN and for ONNX Runtime, and single calls."""

from harness.probe.call_steps import (
    APP_READ as APP_READ,
    APP_WRITE as APP_WRITE,
    STATIC as STATIC,
    call as call,
    operation as operation,
    tensor as tensor,
)
from harness.probe.memory_steps import (
    context_load_list as context_load_list,
    context_load_shared as context_load_shared,
    io_bind as io_bind,
    io_release as io_release,
    io_run as io_run,
    memory_sample as memory_sample,
)
from harness.probe.ort_plan import (
    QNN_EP as QNN_EP,
    Provider as Provider,
    dump_options as dump_options,
    ort_end as ort_end,
    ort_env as ort_env,
    ort_load as ort_load,
    ort_placement as ort_placement,
    ort_register_ep as ort_register_ep,
    ort_run as ort_run,
    ort_session as ort_session,
    ort_session_free as ort_session_free,
)
from harness.probe.plan import (
    Step as Step,
    backend_load as backend_load,
    context_free as context_free,
    context_inspect as context_inspect,
    context_load as context_load,
    device_create as device_create,
    execute as execute,
    system_load as system_load,
)
