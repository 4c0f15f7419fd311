/* Buffers that stay with a graph over several executions: plain ones, or registered with QnnMem. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

static struct run *bound[CONTEXTS_MAX];

void io_bind(const struct step *step, struct outcome *outcome) {
    uint64_t number = step_number(step, "context", 0);
    const char *memory = step_text(step, "memory");
    bool registered = strcmp(memory, "memhandle") == 0;
    if (!require(bound[number] == NULL, outcome, "this context has buffers already") ||
        !require(registered || !step_number(step, "share", 0), outcome,
                 "only buffers for memhandle are shared"))
        return;
    struct run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        fail(outcome, "memory", "out of memory");
        return;
    }
    run->registered = registered;
    if (step_number(step, "share", 0)) run->borrowed = step;
    json_text(&outcome->data, "memory", memory);
    if (registered) json_text(&outcome->data, "allocator", shared_allocator());
    if (run_open(run, step, outcome)) {
        outcome->called = true; /* nothing was to be asked if the graph was retrieved before */
        bound[number] = run;
        return;
    }
    run_close(run, outcome);
    free(run);
}

/* Others have used its buffers since. */
static bool fill_again(struct run *run, struct outcome *outcome) {
    struct tensors *tensors = &run->tensors;
    for (uint32_t at = 0; at < tensors->inputs; at++) {
        const char *file = step_numbered(run->borrowed, "input.", at);
        if (!file_read(file, &tensors->all[at].buffer, outcome)) return false;
    }
    return true;
}

void io_run(const struct step *step, struct outcome *outcome) {
    struct run *run = bound[step_number(step, "context", 0)];
    if (!require(run != NULL, outcome, "this context has no buffers")) return;
    if (run->borrowed != NULL && !fill_again(run, outcome)) return;
    run->profile = profile_open(step_text(step, "profile"), outcome);
    json_text(&outcome->data, "graph", run->graph->name);
    run_all(run, step, outcome);
    tensors_digests(&run->tensors, outcome);
    profile_close(run->profile, outcome);
    run->profile = NULL;
}

static void release(uint64_t number, struct outcome *outcome) {
    run_close(bound[number], outcome);
    free(bound[number]);
    bound[number] = NULL;
}

void io_release(const struct step *step, struct outcome *outcome) {
    uint64_t number = step_number(step, "context", 0);
    if (bound[number] == NULL) {
        outcome->skipped = "there is nothing to release";
        return;
    }
    outcome->called = true; /* plain buffers are given back without a call that could fail */
    release(number, outcome);
}

void bound_forget(uint64_t context) {
    struct outcome ignored = {0};
    char text[64];
    json_reset(&ignored.data, text, sizeof text);
    if (bound[context] != NULL) release(context, &ignored);
}

/* What memory_sample leaves out: buffers that are the probe's own. */
bool bound_owns(uint64_t device, uint64_t inode) {
    for (uint32_t at = 0; at < CONTEXTS_MAX; at++) {
        const struct run *run = bound[at];
        if (run == NULL || !run->registered) continue;
        for (uint32_t i = 0; i < run->tensors.count; i++)
            if (shared_is_ours(device, inode, &run->shared[i])) return true;
    }
    return false;
}
