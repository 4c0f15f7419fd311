/* What executions have in common, whoever makes them: buffers, guards, comparisons, times. */
#ifndef PROBE_ROUNDS_H
#define PROBE_ROUNDS_H

#include "probe.h"

/* How long executions took in microseconds; REPEATS_LISTED at most are listed, every one or every
 * 2nd, 4th and so on. A step says how many `warmup` rounds come before those that count, how long
 * they last at least (`least_ms`, however many these are), and after how long (`budget_ms`) no
 * further one is begun. If that ends the warm-up, its last round is the one that counts. `cooling`
 * is the folder of cooling devices: each second it is looked at whether one slows down the DSP or
 * the processors; the rounds in such a second are `throttled`. */
struct rounds {
    uint64_t made, warmup, most, until_us, least_until_us; /* made: all of them; until: 0 is never */
    uint64_t first_us, total_us, least_us, most_us;
    const char *cooling;
    uint64_t look_us, throttled;
    bool cooled, is_throttled; /* cooled: some cooling device can be read */
    uint64_t listed, every;
    uint64_t listed_us[REPEATS_LISTED];
};
void rounds_begin(struct rounds *rounds, const struct step *step);
bool rounds_more(const struct rounds *rounds);
void rounds_add(struct rounds *rounds, uint64_t took_us);
void rounds_report(const struct rounds *rounds, struct outcome *outcome);

struct tensor {
    const char *name;
    uint32_t data_type;
    struct buffer buffer, expected; /* the second of an output, if it is compared */
    struct comparison comparison;
};

/* What is executed with: all inputs, then all outputs. */
struct tensors {
    uint32_t inputs, count;
    struct tensor all[2 * TENSORS_MAX];
};

/* Refuses input.7 of a `what` with three inputs: it would be left out without a word. */
bool tensors_open(struct tensors *tensors, const struct step *step, const char *what,
                  uint32_t inputs, uint32_t outputs, struct outcome *outcome);
/* Has `bind` give each tensor its name, type and buffer, and the library that buffer; reads what
 * the step's files hold of an input, which must be given, and of an output, if it is expected. */
bool tensors_prepare(struct tensors *tensors, const struct step *step,
                     bool bind(void *of, uint32_t at, struct outcome *outcome), void *of,
                     struct outcome *outcome);
/* Has `execute` call `api` as often as the step says, or until something is wrong; it adds how long
 * that took, and is false with a failed outcome if the library says so. */
void tensors_execute(struct tensors *tensors, const struct step *step, const char *api,
                     bool execute(void *of, struct rounds *rounds, struct outcome *outcome),
                     void *of, struct outcome *outcome);
/* Of the outputs of the last round. */
void tensors_digests(const struct tensors *tensors, struct outcome *outcome);
/* Writes the outputs that are to be saved; tells digests of what was not compared, or is kept. */
void tensors_save(const struct tensors *tensors, const struct step *step, struct outcome *outcome);
void tensors_free(struct tensors *tensors);

/* Of one output: what it is expected to be, if that is given; whether it is that, of the outputs of
 * a round the first that is wrong is told; a file of it, if it is to be saved. */
bool expected_read(struct tensor *output, uint32_t index, const struct step *step,
                   struct outcome *outcome);
bool output_right(struct tensor *output, uint32_t index, const struct step *step, uint64_t round,
                  struct outcome *outcome);
bool output_save(const struct tensor *output, uint32_t index, const struct step *step,
                 struct outcome *outcome);
void report_comparison(const struct tensor *output, uint32_t index, struct json *data);

#endif
