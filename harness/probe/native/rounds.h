/* What executions have in common, whoever makes them: fields, guards, comparisons, times. */
#ifndef PROBE_ROUNDS_H
#define PROBE_ROUNDS_H

#include "probe.h"

/* Refuses input.7 of a `what` with three inputs: it would be left out without a word. */
bool tensors_within(const struct step *step, const char *what, uint32_t inputs, uint32_t outputs,
                    struct outcome *outcome);

/* What the step's files hold of an input, which must be given, and of an output, if it is expected;
 * a file for an output, if it is to be saved. */
bool input_read(const struct step *step, uint32_t index, const char *name, struct buffer *into,
                struct outcome *outcome);
bool expected_read(const struct step *step, uint32_t index, uint64_t size, struct buffer *expected,
                   struct outcome *outcome);
bool output_save(const struct step *step, uint32_t index, const struct buffer *output,
                 struct outcome *outcome);

/* Whether a buffer is whole; `at` counts inputs, then outputs. */
bool guard_whole(uint64_t damage, uint64_t round, uint32_t at, uint32_t inputs,
                 struct outcome *outcome);

/* Compares one output; of the outputs of a round the first that is wrong is told. */
bool output_right(uint32_t index, uint32_t data_type, const struct buffer *got,
                  const struct buffer *expected, double tolerance, uint64_t round,
                  struct comparison *comparison, struct outcome *outcome);

void report_digest(const struct buffer *output, struct json *data);
void report_comparison(uint32_t index, const char *name, const struct comparison *comparison,
                       struct json *data);

/* How long executions took in microseconds; of the first REPEATS_LISTED each. */
struct rounds {
    uint64_t made, total_us, least_us, most_us;
    uint64_t listed_us[REPEATS_LISTED];
};
void rounds_begin(struct rounds *rounds);
void rounds_add(struct rounds *rounds, uint64_t took_us);
void rounds_report(const struct rounds *rounds, struct outcome *outcome);

#endif
