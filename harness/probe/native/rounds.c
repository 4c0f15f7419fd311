/* What executions through QNN and through ORT have in common: see rounds.h. */
#include "rounds.h"

#include <stdlib.h>
#include <string.h>

bool tensors_within(const struct step *step, const char *what, uint32_t inputs, uint32_t outputs,
                    struct outcome *outcome) {
    for (uint32_t i = 0; i < step->field_count; i++) {
        const char *key = step->fields[i].key, *dot = strchr(key, '.');
        if (dot == NULL) continue;
        bool input = strncmp(key, "input.", 6) == 0;
        uint32_t count = input ? inputs : outputs;
        if (strtoul(dot + 1, NULL, 10) < count) continue;
        return fail(outcome, "plan", "%s: the %s has %u %s", key, what, count,
                    input ? "inputs" : "outputs");
    }
    return true;
}

bool guard_whole(uint64_t damage, uint64_t round, uint32_t at, uint32_t inputs,
                 struct outcome *outcome) {
    if (damage == 0) return true;
    bool input = at < inputs;
    return fail(outcome, "guard", "run %llu wrote %llu bytes outside of %s %u",
                (unsigned long long)round, (unsigned long long)damage, input ? "input" : "output",
                input ? at : at - inputs);
}

bool output_right(uint32_t index, uint32_t data_type, const struct buffer *got,
                  const struct buffer *expected, double tolerance, uint64_t round,
                  struct comparison *comparison, struct outcome *outcome) {
    if (expected->data == NULL) return true;
    tensor_compare(data_type, got->data, expected->data, got->size, tolerance, comparison);
    if (comparison->beyond == 0) return true;
    if (outcome->error == NULL)
        return fail(outcome, "mismatch",
                    "run %llu: output %u has %llu of %llu elements beyond %.9g, the first at %llu",
                    (unsigned long long)round, index, (unsigned long long)comparison->beyond,
                    (unsigned long long)comparison->elements, tolerance,
                    (unsigned long long)comparison->first);
    return false;
}

bool input_read(const struct step *step, uint32_t index, const char *name, struct buffer *into,
                struct outcome *outcome) {
    const char *file = step_numbered(step, "input.", index);
    if (file == NULL) return fail(outcome, "plan", "no input.%u: tensor %s", index, name);
    return file_read(file, into, outcome);
}

bool expected_read(const struct step *step, uint32_t index, uint64_t size, struct buffer *expected,
                   struct outcome *outcome) {
    const char *file = step_numbered(step, "expect.", index);
    if (file == NULL) return true;
    return buffer_make(expected, size, outcome) && file_read(file, expected, outcome);
}

bool output_save(const struct step *step, uint32_t index, const struct buffer *output,
                 struct outcome *outcome) {
    const char *file = step_numbered(step, "save.", index);
    return file == NULL || file_write(file, output->data, output->size, outcome);
}

void report_digest(const struct buffer *output, struct json *data) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a: equal outputs are told by it */
    for (uint64_t at = 0; at < output->size; at++)
        hash = (hash ^ output->data[at]) * UINT64_C(0x100000001b3);
    json_u64(data, NULL, hash >> 1); /* JSON's readers take 63 bits */
}

void report_comparison(uint32_t index, const char *name, const struct comparison *comparison,
                       struct json *data) {
    if (comparison->elements == 0) return; /* nothing to compare with, or not reached */
    json_open(data, NULL, '{');
    json_u64(data, "index", index);
    json_text(data, "name", name);
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

void rounds_begin(struct rounds *rounds) {
    rounds->made = rounds->total_us = rounds->most_us = 0;
    rounds->least_us = UINT64_MAX;
}

void rounds_add(struct rounds *rounds, uint64_t took_us) {
    rounds->total_us += took_us;
    if (took_us < rounds->least_us) rounds->least_us = took_us;
    if (took_us > rounds->most_us) rounds->most_us = took_us;
    if (rounds->made < REPEATS_LISTED) rounds->listed_us[rounds->made] = took_us;
    rounds->made++;
}

void rounds_report(const struct rounds *rounds, struct outcome *outcome) {
    struct json *data = &outcome->data;
    outcome->duration_us = rounds->total_us;
    json_u64(data, "runs", rounds->made);
    json_u64(data, "run_min_us", rounds->least_us);
    json_u64(data, "run_max_us", rounds->most_us);
    json_open(data, "run_us", '[');
    for (uint64_t i = 0; i < rounds->made && i < REPEATS_LISTED; i++)
        json_u64(data, NULL, rounds->listed_us[i]);
    json_close(data, ']');
}
