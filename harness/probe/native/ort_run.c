/* Inference through ORT: inputs from files, outputs compared and saved, no byte outside of them. */
#include "ort.h"

#include "rounds.h"

static struct { /* static: one inference at a time, and so many tensors are too many for a stack */
    const struct ort_session *session;
    ort_handle memory;
    struct tensors tensors;
    const char *names[2 * TENSORS_MAX];
    ort_handle values[2 * TENSORS_MAX];
} run;

/* A value of ORT's over a buffer of ours, of exactly the tensor's size. */
static bool bind(void *nothing, uint32_t at, struct outcome *outcome) {
    (void)nothing;
    uint32_t inputs = run.tensors.inputs;
    const struct ort_tensor *tensor =
        at < inputs ? &run.session->inputs[at] : &run.session->outputs[at - inputs];
    struct tensor *one = &run.tensors.all[at];
    run.names[at] = one->name = tensor->name;
    one->data_type = tensor->tensor.data_type;
    uint64_t bytes = tensor_bytes(&tensor->tensor);
    if (bytes == 0)
        return fail(outcome, "unsupported",
                    "tensor %s: element type %d, or a shape that is not fixed", tensor->name,
                    tensor->type);
    if (!buffer_make(&one->buffer, bytes, outcome)) return false;
    return ort_fine(ort.api->create_tensor(run.memory, one->buffer.data, bytes, tensor->shape,
                                           tensor->tensor.rank, tensor->type, &run.values[at]),
                    outcome);
}

static bool run_once(void *nothing, struct rounds *rounds, struct outcome *outcome) {
    (void)nothing;
    uint32_t inputs = run.tensors.inputs, outputs = run.tensors.count - inputs;
    uint64_t started = now_us();
    ort_status status =
        ort.api->run(run.session->handle, NULL, run.names, run.values, inputs, run.names + inputs,
                     outputs, run.values + inputs);
    rounds_add(rounds, now_us() - started);
    return ort_fine(status, outcome);
}

void ort_run(const struct step *step, struct outcome *outcome) {
    const struct ort_session *session = run.session = ort_session_of(step, outcome);
    if (session == NULL) return;
    if (!tensors_open(&run.tensors, step, "model", session->input_count, session->output_count,
                      outcome) ||
        !ort_fine(ort.api->create_cpu_memory(1, 0, &run.memory), outcome)) /* arena, default */
        return;
    if (tensors_prepare(&run.tensors, step, bind, NULL, outcome)) {
        tensors_execute(&run.tensors, step, "Run", run_once, NULL, outcome);
        tensors_save(&run.tensors, step, outcome);
    }
    for (uint32_t at = 0; at < run.tensors.count; at++) {
        if (run.values[at] != NULL) ort.api->release_value(run.values[at]);
        run.values[at] = NULL;
    }
    tensors_free(&run.tensors);
    ort.api->release_memory(run.memory);
}
