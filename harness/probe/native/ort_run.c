/* Inference through ORT: inputs from files, outputs compared and saved, no byte outside of them. */
#include "ort.h"

#include <string.h>

#include "rounds.h"

static struct { /* static: one inference at a time, and so many tensors are too many for a stack */
    struct buffer inputs[TENSORS_MAX], outputs[TENSORS_MAX], expected[TENSORS_MAX];
    ort_handle input_values[TENSORS_MAX], output_values[TENSORS_MAX];
    const char *input_names[TENSORS_MAX], *output_names[TENSORS_MAX];
    struct comparison comparisons[TENSORS_MAX];
} io;

/* A value of ORT's over a buffer of ours, of exactly the tensor's size. */
static bool bind(const struct ort_tensor *tensor, ort_handle memory, struct buffer *buffer,
                 ort_handle *value, struct outcome *outcome) {
    uint64_t bytes = tensor_bytes(&tensor->tensor);
    if (bytes == 0)
        return fail(outcome, "unsupported",
                    "tensor %s: element type %d, or a shape that is not fixed", tensor->name,
                    tensor->type);
    if (!buffer_make(buffer, bytes, outcome)) return false;
    return ort_fine(ort.api->create_tensor(memory, buffer->data, bytes, tensor->shape,
                                           tensor->tensor.rank, tensor->type, value),
                    outcome);
}

static bool prepare(const struct step *step, const struct ort_session *session, ort_handle memory,
                    struct outcome *outcome) {
    for (uint32_t i = 0; i < session->input_count; i++) {
        io.input_names[i] = session->inputs[i].name;
        if (!bind(&session->inputs[i], memory, &io.inputs[i], &io.input_values[i], outcome) ||
            !input_read(step, i, io.input_names[i], &io.inputs[i], outcome))
            return false;
    }
    for (uint32_t i = 0; i < session->output_count; i++) {
        io.output_names[i] = session->outputs[i].name;
        if (!bind(&session->outputs[i], memory, &io.outputs[i], &io.output_values[i], outcome) ||
            !expected_read(step, i, io.outputs[i].size, &io.expected[i], outcome))
            return false;
    }
    return true;
}

static bool check_guards(const struct ort_session *session, uint64_t round,
                         struct outcome *outcome) {
    uint32_t inputs = session->input_count;
    for (uint32_t at = 0; at < inputs + session->output_count; at++) {
        const struct buffer *buffer = at < inputs ? &io.inputs[at] : &io.outputs[at - inputs];
        if (!guard_whole(buffer_damage(buffer), round, at, inputs, outcome)) return false;
    }
    return true;
}

static bool check_outputs(const struct ort_session *session, double tolerance, uint64_t round,
                          struct outcome *outcome) {
    bool right = true;
    for (uint32_t i = 0; i < session->output_count; i++)
        right = output_right(i, session->outputs[i].tensor.data_type, &io.outputs[i],
                             &io.expected[i], tolerance, round, &io.comparisons[i], outcome) &&
                right;
    return right;
}

/* Runs `repeats` times, or until something is wrong. */
static void run_all(const struct ort_session *session, double tolerance, uint64_t repeats,
                    struct outcome *outcome) {
    static struct rounds rounds;
    bool fine = true;
    rounds_begin(&rounds);
    event_call("Run");
    while (fine && rounds.made < repeats) {
        for (uint32_t i = 0; i < session->output_count; i++) buffer_fill(&io.outputs[i]);
        uint64_t started = now_us();
        ort_status status = ort.api->run(session->handle, NULL, io.input_names, io.input_values,
                                         session->input_count, io.output_names,
                                         session->output_count, io.output_values);
        rounds_add(&rounds, now_us() - started);
        fine = ort_fine(status, outcome) && check_guards(session, rounds.made, outcome) &&
               check_outputs(session, tolerance, rounds.made, outcome);
    }
    rounds_report(&rounds, outcome);
    if (outcome->code != 0) return;
    json_open(&outcome->data, "outputs", '[');
    for (uint32_t i = 0; i < session->output_count; i++)
        report_comparison(i, session->outputs[i].name, &io.comparisons[i], &outcome->data);
    json_close(&outcome->data, ']');
}

/* They cost time, and what was compared needs none, unless it is kept. */
static void report_digests(const struct ort_session *session, const struct step *step,
                           struct outcome *outcome) {
    bool wanted = step_numbered(step, "save.", 0) != NULL;
    for (uint32_t i = 0; i < session->output_count; i++)
        wanted = wanted || io.expected[i].data == NULL;
    if (!wanted || outcome->code != 0) return;
    json_open(&outcome->data, "digests", '[');
    for (uint32_t i = 0; i < session->output_count; i++)
        report_digest(&io.outputs[i], &outcome->data);
    json_close(&outcome->data, ']');
}

static void release_all(void) {
    for (uint32_t i = 0; i < TENSORS_MAX; i++) {
        if (io.input_values[i] != NULL) ort.api->release_value(io.input_values[i]);
        if (io.output_values[i] != NULL) ort.api->release_value(io.output_values[i]);
        io.input_values[i] = io.output_values[i] = NULL;
        buffer_free(&io.inputs[i]);
        buffer_free(&io.outputs[i]);
        buffer_free(&io.expected[i]);
    }
}

void ort_run(const struct step *step, struct outcome *outcome) {
    uint64_t repeats = step_number(step, "repeat", 1);
    const struct ort_session *session = ort_session_of(step, outcome);
    if (session == NULL) return;
    ort_handle memory = NULL;
    if (!tensors_within(step, "model", session->input_count, session->output_count, outcome) ||
        !ort_fine(ort.api->create_cpu_memory(1, 0, &memory), outcome)) /* arena, default */
        return;
    memset(io.comparisons, 0, sizeof io.comparisons);
    if (prepare(step, session, memory, outcome)) {
        run_all(session, step_real(step, "tolerance", 0), repeats, outcome);
        for (uint32_t i = 0; outcome->code == 0 && i < session->output_count; i++)
            if (!output_save(step, i, &io.outputs[i], outcome)) break;
        report_digests(session, step, outcome);
    }
    release_all();
    ort.api->release_memory(memory);
}
