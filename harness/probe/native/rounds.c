/* What executions through QNN and through ORT have in common: see rounds.h. */
#include "rounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool output_right(struct tensor *output, uint32_t index, const struct step *step, uint64_t round,
                  struct outcome *outcome) {
    struct comparison *comparison = &output->comparison;
    if (output->expected.data == NULL) return true;
    double tolerance = step_real(step, "tolerance", 0);
    tensor_compare(output->data_type, output->buffer.data, output->expected.data,
                   output->buffer.size, tolerance, comparison);
    if (comparison->beyond == 0) return true;
    if (outcome->error != NULL) return false;
    char how[64] = "that are not";
    if (tolerance > 0) snprintf(how, sizeof how, "more than %.9g from", tolerance);
    return fail(outcome, "mismatch",
                "run %llu: output %u has %llu of %llu elements %s what is expected, the first at %llu",
                (unsigned long long)round, index, (unsigned long long)comparison->beyond,
                (unsigned long long)comparison->elements, how,
                (unsigned long long)comparison->first);
}

bool expected_read(struct tensor *output, uint32_t index, const struct step *step,
                   struct outcome *outcome) {
    const char *file = step_numbered(step, "expect.", index);
    if (file == NULL) return true;
    return buffer_make(&output->expected, output->buffer.size, outcome) &&
           file_read(file, &output->expected, outcome);
}

bool output_save(const struct tensor *output, uint32_t index, const struct step *step,
                 struct outcome *outcome) {
    const char *file = step_numbered(step, "save.", index);
    return file == NULL || file_write(file, output->buffer.data, output->buffer.size, outcome);
}

void report_comparison(const struct tensor *output, uint32_t index, struct json *data) {
    const struct comparison *comparison = &output->comparison;
    if (comparison->elements == 0) return; /* nothing to compare with, or not reached */
    json_open(data, NULL, '{');
    json_u64(data, "index", index);
    json_text(data, "name", output->name);
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

enum { COOLING_MAX = 256, LOOK_US = 1000000 };

/* Kernels name those of Qualcomm's DSP cdsp, cdsp_sw, cdsp_hw, cdsp_sw_hvx..., those of processors
 * cpu-cluster0, cpufreq-cpu0, thermal-cpufreq-0. */
static void look_at_cooling(struct rounds *rounds) {
    rounds->is_throttled = false;
    for (int i = 0; i < COOLING_MAX; i++) {
        char path[4096], type[64], state[32];
        snprintf(path, sizeof path, "%s/cooling_device%d/type", rounds->cooling, i);
        if (proc_read(path, type, sizeof type) == 0) break; /* they are numbered without gaps */
        if (strstr(type, "cdsp") == NULL && strstr(type, "cpu") == NULL) continue;
        snprintf(path, sizeof path, "%s/cooling_device%d/cur_state", rounds->cooling, i);
        if (proc_read(path, state, sizeof state) == 0) continue;
        rounds->cooled = true;
        rounds->is_throttled |= strtol(state, NULL, 10) > 0;
    }
}

void rounds_begin(struct rounds *rounds, const struct step *step) {
    uint64_t started_us = now_us();
    uint64_t budget_ms = step_number(step, "budget_ms", 0);
    rounds->made = rounds->total_us = rounds->first_us = 0;
    rounds->warmup = step_number(step, "warmup", 0);
    rounds->most = rounds->warmup + step_number(step, "repeat", 1);
    rounds->until_us = budget_ms > 0 ? started_us + budget_ms * 1000 : 0;
    rounds->least_until_us = started_us + step_number(step, "least_ms", 0) * 1000;
    rounds->least_us = rounds->most_us = 0;
    rounds->cooling = step_text(step, "cooling");
    rounds->cooled = false;
    rounds->look_us = rounds->throttled = rounds->listed = 0;
    rounds->every = 1;
}

bool rounds_more(const struct rounds *rounds) {
    uint64_t now = now_us();
    bool over = rounds->until_us > 0 && now >= rounds->until_us;
    bool enough = rounds->made >= rounds->most && now >= rounds->least_until_us;
    return rounds->made == 0 || !(enough || over);
}

/* How many of the rounds made came before those that count. */
static uint64_t warm(const struct rounds *rounds) {
    uint64_t before = rounds->made > 0 ? rounds->made - 1 : 0;
    return before < rounds->warmup ? before : rounds->warmup;
}

void rounds_add(struct rounds *rounds, uint64_t took_us) {
    if (rounds->made == 0) rounds->first_us = took_us;
    rounds->total_us += took_us;
    rounds->made++;
    uint64_t counted = rounds->made - warm(rounds);
    if (counted == 1) { /* so does each of the warm-up, until the next begins anew */
        rounds->least_us = UINT64_MAX;
        rounds->most_us = rounds->throttled = rounds->listed = 0;
    }
    if (took_us < rounds->least_us) rounds->least_us = took_us;
    if (took_us > rounds->most_us) rounds->most_us = took_us;
    if (rounds->listed == REPEATS_LISTED) { /* keep every other one, evenly over the whole time */
        rounds->listed /= 2;
        rounds->every *= 2;
        for (uint64_t i = 0; i < rounds->listed; i++) rounds->listed_us[i] = rounds->listed_us[2 * i];
    }
    if ((counted - 1) % rounds->every == 0) rounds->listed_us[rounds->listed++] = took_us;
    if (rounds->cooling != NULL && now_us() >= rounds->look_us) {
        look_at_cooling(rounds);
        rounds->look_us = now_us() + LOOK_US;
    }
    rounds->throttled += rounds->is_throttled && rounds->cooled;
}

void rounds_report(const struct rounds *rounds, struct outcome *outcome) {
    struct json *data = &outcome->data;
    outcome->duration_us = rounds->total_us;
    uint64_t counted = rounds->made - warm(rounds);
    json_u64(data, "runs", counted);
    json_u64(data, "warmup", warm(rounds));
    json_u64(data, "first_us", rounds->first_us);
    json_u64(data, "run_min_us", rounds->least_us);
    json_u64(data, "run_max_us", rounds->most_us);
    if (rounds->cooled) json_u64(data, "throttled", rounds->throttled);
    json_u64(data, "run_every", rounds->every);
    json_open(data, "run_us", '[');
    for (uint64_t i = 0; i < rounds->listed; i++) json_u64(data, NULL, rounds->listed_us[i]);
    json_close(data, ']');
}

bool tensors_open(struct tensors *tensors, const struct step *step, const char *what,
                  uint32_t inputs, uint32_t outputs, struct outcome *outcome) {
    tensors->inputs = inputs;
    tensors->count = inputs + outputs;
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

bool tensors_prepare(struct tensors *tensors, const struct step *step,
                     bool bind(void *of, uint32_t at, struct outcome *outcome), void *of,
                     struct outcome *outcome) {
    for (uint32_t at = 0; at < tensors->count; at++) {
        struct tensor *one = &tensors->all[at];
        if (!bind(of, at, outcome)) return false;
        if (at < tensors->inputs) {
            const char *file = step_numbered(step, "input.", at);
            if (file == NULL) return fail(outcome, "plan", "no input.%u: tensor %s", at, one->name);
            if (!file_read(file, &one->buffer, outcome)) return false;
        } else {
            buffer_fill(&one->buffer); /* its pages are there from now on */
            if (!expected_read(one, at - tensors->inputs, step, outcome)) return false;
        }
    }
    return true;
}

static bool check_guards(const struct tensors *tensors, uint64_t round, struct outcome *outcome) {
    for (uint32_t at = 0; at < tensors->count; at++) {
        uint64_t damage = buffer_damage(&tensors->all[at].buffer);
        if (damage == 0) continue;
        bool input = at < tensors->inputs;
        return fail(outcome, "guard", "run %llu wrote %llu bytes outside of %s %u",
                    (unsigned long long)round, (unsigned long long)damage,
                    input ? "input" : "output", input ? at : at - tensors->inputs);
    }
    return true;
}

static bool check_outputs(struct tensors *tensors, const struct step *step, uint64_t round,
                          struct outcome *outcome) {
    bool wrong = false;
    for (uint32_t at = tensors->inputs; at < tensors->count; at++)
        wrong |= !output_right(&tensors->all[at], at - tensors->inputs, step, round, outcome);
    return !wrong;
}

void tensors_execute(struct tensors *tensors, const struct step *step, const char *api,
                     bool execute(void *of, struct rounds *rounds, struct outcome *outcome),
                     void *of, struct outcome *outcome) {
    static struct rounds rounds;
    uint32_t inputs = tensors->inputs;
    bool fine = true;
    rounds_begin(&rounds, step);
    for (uint32_t at = inputs; at < tensors->count; at++)
        tensors->all[at].comparison = (struct comparison){0};
    event_call(api);
    while (fine && rounds_more(&rounds)) {
        for (uint32_t at = inputs; at < tensors->count; at++) buffer_fill(&tensors->all[at].buffer);
        fine = execute(of, &rounds, outcome) && check_guards(tensors, rounds.made, outcome) &&
               check_outputs(tensors, step, rounds.made, outcome);
    }
    rounds_report(&rounds, outcome);
    if (outcome->code != 0) return;
    json_open(&outcome->data, "outputs", '[');
    for (uint32_t at = inputs; at < tensors->count; at++)
        report_comparison(&tensors->all[at], at - inputs, &outcome->data);
    json_close(&outcome->data, ']');
}

void tensors_digests(const struct tensors *tensors, struct outcome *outcome) {
    json_open(&outcome->data, "digests", '[');
    for (uint32_t at = tensors->inputs; at < tensors->count; at++) {
        const struct buffer *output = &tensors->all[at].buffer;
        uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a: equal outputs are told by it */
        for (uint64_t i = 0; i < output->size; i++)
            hash = (hash ^ output->data[i]) * UINT64_C(0x100000001b3);
        json_u64(&outcome->data, NULL, hash >> 1); /* JSON's readers take 63 bits */
    }
    json_close(&outcome->data, ']');
}

void tensors_save(const struct tensors *tensors, const struct step *step, struct outcome *outcome) {
    /* Wrong outputs are worth a look: only what the library never wrote is not saved. */
    if (outcome->code != 0) return;
    /* Digests cost time, and what was compared needs none, unless it is kept. */
    bool wanted = step_numbered(step, "save.", 0) != NULL, saved = true;
    for (uint32_t at = tensors->inputs; at < tensors->count; at++) {
        wanted = wanted || tensors->all[at].expected.data == NULL;
        saved = saved && output_save(&tensors->all[at], at - tensors->inputs, step, outcome);
    }
    if (wanted) tensors_digests(tensors, outcome);
}

void tensors_free(struct tensors *tensors) {
    for (uint32_t at = 0; at < tensors->count; at++) {
        buffer_free(&tensors->all[at].buffer);
        buffer_free(&tensors->all[at].expected);
    }
}
