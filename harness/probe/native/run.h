/* What the verbs of contexts and graphs have in common: sharing, a graph with its buffers. */
#ifndef PROBE_RUN_H
#define PROBE_RUN_H

#include "abi_memory.h"
#include "rounds.h"

/* How the DSP reaches a buffer, and the library knows it: shared_memory.c. */
struct shared {
    int fd;
    uint32_t buffer_type; /* what QnnMem_register is to take it for */
    abi_handle handle;
    struct lent *lent; /* where it is borrowed from; NULL: its own */
};
const char *shared_allocator(void); /* the first that this device has */
bool shared_make(struct shared *shared, struct buffer *buffer, uint64_t size,
                 struct outcome *outcome);
void shared_free(struct shared *shared, struct buffer *buffer);
/* The same of buffers that contexts use in turn, one for each place and size of their tensors. */
bool shared_borrow(uint32_t place, struct shared *shared, struct buffer *buffer, uint64_t size,
                   struct outcome *outcome);
bool shared_is_ours(uint64_t device, uint64_t inode, const struct shared *shared);

struct run {
    const struct graph_metadata *graph;
    abi_handle handle, context, profile;
    bool registered; /* tensors carry memory handles */
    const struct step *borrowed; /* by this step, from buffers that contexts share; NULL: its own */
    struct tensors tensors;
    struct abi_tensor given[2 * TENSORS_MAX]; /* the same, as the library takes them */
    struct shared shared[2 * TENSORS_MAX];    /* their buffers, if they are registered */
};

/* execute.c. A false result comes with a failed outcome. */
bool run_open(struct run *run, const struct step *step, struct outcome *outcome);
void run_all(struct run *run, const struct step *step, struct outcome *outcome);
void run_close(struct run *run, struct outcome *outcome); /* as far as run_open came */

/* sharing.c: the options of a context, as its step gives them to the library. */
struct context_config {
    struct abi_htp_context_option custom[STEP_FIELDS_MAX];
    struct abi_context_option options[STEP_FIELDS_MAX];
    const void *entries[STEP_FIELDS_MAX + 1];
    uint32_t count;
    const void **list; /* NULL: nothing out of the ordinary */
    bool persistent;   /* the library goes on to use the binary */
};
/* False and a failed outcome if the step names a group that does not exist. */
bool context_configure(const struct step *step, struct context_config *config,
                       struct outcome *outcome);

/* bound.c, for context_free: buffers that are still registered with a context */
void bound_forget(uint64_t context);

/* profile.c */
/* NULL: there is none, because no level was asked for, or none could be had. */
abi_handle profile_open(const char *level, struct outcome *outcome);
void profile_close(abi_handle profile, struct outcome *outcome); /* reports its events */

#endif
