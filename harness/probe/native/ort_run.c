/* Inference through ORT: inputs from files, outputs compared and saved, no byte outside of them. */
#include "ort.h"

#include <stdlib.h>
#include <string.h>

static struct { /* static: one inference at a time, and so many tensors are too many for a stack */
    struct buffer inputs[TENSORS_MAX], outputs[TENSORS_MAX], expected[TENSORS_MAX];
    ort_handle input_values[TENSORS_MAX], output_values[TENSORS_MAX];
    const char *input_names[TENSORS_MAX], *output_names[TENSORS_MAX];
    struct comparison comparisons[TENSORS_MAX];
} io;

static bool fields_fit(const struct step *step, const struct ort_session *session,
                       struct outcome *outcome) {
    for (uint32_t i = 0; i < step->field_count; i++) {
        const char *key = step->fields[i].key, *dot = strchr(key, '.');
        if (dot == NULL) continue;
        bool input = strncmp(key, "input.", 6) == 0;
        uint32_t count = input ? session->input_count : session->output_count;
        if (strtoul(dot + 1, NULL, 10) < count) continue;
        fail(outcome, "plan", "%s: the model has %u %s", key, count, input ? "inputs" : "outputs");
        return false;
    }
    return true;
}

/* A value of ORT's over a buffer of ours, of exactly the tensor's size. */
static bool bind(const struct ort_tensor *tensor, ort_handle memory, struct buffer *buffer,
                 ort_handle *value, struct outcome *outcome) {
    uint64_t bytes = tensor_bytes(&tensor->tensor);
    if (bytes == 0) {
        fail(outcome, "unsupported", "tensor %s: element type %d, or a shape that is not fixed",
             tensor->name, tensor->type);
        return false;
    }
    if (!buffer_make(buffer, bytes, outcome)) return false;
    return ort_fine(ort.api->create_tensor(memory, buffer->data, bytes, tensor->shape,
                                           tensor->tensor.rank, tensor->type, value),
                    outcome);
}

static bool prepare(const struct step *step, const struct ort_session *session, ort_handle memory,
                    struct outcome *outcome) {
    for (uint32_t i = 0; i < session->input_count; i++) {
        const char *file = step_numbered(step, "input.", i);
        io.input_names[i] = session->inputs[i].name;
        if (file == NULL) {
            fail(outcome, "plan", "no input.%u: tensor %s", i, session->inputs[i].name);
            return false;
        }
        if (!bind(&session->inputs[i], memory, &io.inputs[i], &io.input_values[i], outcome) ||
            !file_read(file, &io.inputs[i], outcome))
            return false;
    }
    for (uint32_t i = 0; i < session->output_count; i++) {
        const char *file = step_numbered(step, "expect.", i);
        io.output_names[i] = session->outputs[i].name;
        if (!bind(&session->outputs[i], memory, &io.outputs[i], &io.output_values[i], outcome))
            return false;
        if (file != NULL && (!buffer_make(&io.expected[i], io.outputs[i].size, outcome) ||
                             !file_read(file, &io.expected[i], outcome)))
            return false;
    }
    return true;
}

static bool check_guards(const struct ort_session *session, uint64_t repeat,
                         struct outcome *outcome) {
    for (uint32_t i = 0; i < session->input_count + session->output_count; i++) {
        bool input = i < session->input_count;
        uint32_t at = input ? i : i - session->input_count;
        uint64_t damage = buffer_damage(input ? &io.inputs[at] : &io.outputs[at]);
        if (damage == 0) continue;
        fail(outcome, "guard", "run %llu wrote %llu bytes outside of %s %u",
             (unsigned long long)repeat, (unsigned long long)damage, input ? "input" : "output",
             at);
        return false;
    }
    return true;
}

static bool check_outputs(const struct ort_session *session, double tolerance, uint64_t repeat,
                          struct outcome *outcome) {
    bool fine = true;
    for (uint32_t i = 0; i < session->output_count; i++) {
        if (io.expected[i].data == NULL) continue;
        struct comparison *comparison = &io.comparisons[i];
        tensor_compare(session->outputs[i].tensor.data_type, io.outputs[i].data,
                       io.expected[i].data, io.outputs[i].size, tolerance, comparison);
        if (comparison->beyond == 0) continue;
        if (fine)
            fail(outcome, "mismatch",
                 "run %llu: output %u has %llu of %llu elements beyond %.9g, the first at %llu",
                 (unsigned long long)repeat, i, (unsigned long long)comparison->beyond,
                 (unsigned long long)comparison->elements, tolerance,
                 (unsigned long long)comparison->first);
        fine = false;
    }
    return fine;
}

static void report_outputs(const struct ort_session *session, struct json *data) {
    json_open(data, "outputs", '[');
    for (uint32_t i = 0; i < session->output_count; i++) {
        const struct comparison *comparison = &io.comparisons[i];
        if (comparison->elements == 0) continue; /* nothing to compare with, or not reached */
        json_open(data, NULL, '{');
        json_u64(data, "index", i);
        json_text(data, "name", session->outputs[i].name);
        json_u64(data, "elements", comparison->elements);
        json_real(data, "max_abs", comparison->max_abs);
        json_u64(data, "beyond", comparison->beyond);
        json_u64(data, "nan", comparison->nan);
        if (comparison->beyond > 0) {
            json_u64(data, "first_index", comparison->first);
            json_real(data, "first_value", comparison->first_value);
            json_real(data, "first_expected", comparison->first_expected);
        }
        json_close(data, '}');
    }
    json_close(data, ']');
}

/* Runs `repeats` times, or until something is wrong. */
static void run_all(const struct ort_session *session, double tolerance, uint64_t repeats,
                    struct outcome *outcome) {
    static uint64_t elapsed[REPEATS_LISTED];
    uint64_t runs = 0, total = 0, least = UINT64_MAX, most = 0;
    bool fine = true;
    event_call("Run");
    while (fine && runs < repeats) {
        for (uint32_t i = 0; i < session->output_count; i++) buffer_fill(&io.outputs[i]);
        uint64_t started = now_us();
        ort_status status = ort.api->run(session->handle, NULL, io.input_names, io.input_values,
                                         session->input_count, io.output_names,
                                         session->output_count, io.output_values);
        uint64_t took = now_us() - started;
        total += took;
        least = took < least ? took : least;
        most = took > most ? took : most;
        if (runs < REPEATS_LISTED) elapsed[runs] = took;
        runs++;
        fine = ort_fine(status, outcome) && check_guards(session, runs, outcome) &&
               check_outputs(session, tolerance, runs, outcome);
    }
    outcome->duration_us = total;
    struct json *data = &outcome->data;
    json_u64(data, "runs", runs);
    json_u64(data, "run_min_us", least);
    json_u64(data, "run_max_us", most);
    json_open(data, "run_us", '[');
    for (uint64_t i = 0; i < runs && i < REPEATS_LISTED; i++) json_u64(data, NULL, elapsed[i]);
    json_close(data, ']');
    if (outcome->code == 0) report_outputs(session, data);
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
    if (repeats == 0 || repeats > REPEATS_MAX) {
        fail(outcome, "plan", "repeat must be 1 to %d", REPEATS_MAX);
        return;
    }
    ort_handle memory = NULL;
    if (!fields_fit(step, session, outcome) ||
        !ort_fine(ort.api->create_cpu_memory(1, 0, &memory), outcome)) /* arena, default */
        return;
    memset(io.comparisons, 0, sizeof io.comparisons);
    if (prepare(step, session, memory, outcome)) {
        run_all(session, step_real(step, "tolerance", 0), repeats, outcome);
        for (uint32_t i = 0; outcome->code == 0 && i < session->output_count; i++) {
            const char *file = step_numbered(step, "save.", i);
            if (file != NULL && !file_write(file, io.outputs[i].data, io.outputs[i].size, outcome))
                break;
        }
    }
    release_all();
    ort.api->release_memory(memory);
}
