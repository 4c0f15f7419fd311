/* One graph with its buffers: what execute, and io-bind with io-run, have in common. */
#ifndef PROBE_RUN_H
#define PROBE_RUN_H

#include "probe.h"

/* Memory that the DSP can reach by a file descriptor: shared_memory.c. */
struct shared_buffer {
    uint8_t *data;
    uint64_t size;
    int fd;
    uint32_t buffer_type; /* what QnnMem_register is to take it for */
    uint64_t area_size;   /* `data` to its end, with the guard behind `size` */
};
const char *shared_allocator(void); /* the first that this device has */
bool shared_make(struct shared_buffer *buffer, uint64_t size, struct outcome *outcome);
uint64_t shared_damage(const struct shared_buffer *buffer);
void shared_free(struct shared_buffer *buffer);
bool shared_is_ours(uint64_t device, uint64_t inode, const struct shared_buffer *buffer);

/* A tensor's memory: private, or shared and registered. `plain` is what to read and write. */
struct io_buffer {
    struct buffer plain;
    struct shared_buffer shared;
    abi_handle handle;
};

struct run {
    const struct step *step;
    const struct graph_metadata *graph;
    abi_handle handle, context;
    bool registered; /* tensors carry memory handles */
    double tolerance;
    abi_handle profile;
    struct outcome *outcome;
    struct abi_tensor inputs[TENSORS_MAX], outputs[TENSORS_MAX];
    struct io_buffer input_buffers[TENSORS_MAX], output_buffers[TENSORS_MAX];
    struct buffer expected[TENSORS_MAX];
    struct comparison comparisons[TENSORS_MAX];
};

/* execute.c. A false result comes with a failed outcome. */
bool run_open(struct run *run, const struct step *step, struct outcome *outcome);
bool run_prepare(struct run *run);
void run_all(struct run *run, uint64_t repeats);
void report_digests(const struct run *run); /* of what the last round gave */
void run_close(struct run *run); /* gives back what run_prepare got, as far as it came */

/* bound.c, for context_free: buffers that are still registered with a context */
void bound_forget(uint64_t context);

/* profile.c */
abi_handle profile_open(const char *level, struct outcome *outcome); /* NULL: there is none */
void profile_close(abi_handle profile, struct outcome *outcome);     /* reports its events */

#endif
