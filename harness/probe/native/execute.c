/* Execution: inputs from files, outputs compared and saved, no byte written outside of them. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* The graph a step names; false and a failed outcome if there is none. */
static bool find_graph(struct context *context, uint64_t number,
                       const struct graph_metadata **graph, struct outcome *outcome) {
    if (!require(context->handle != NULL, outcome, "this context is not loaded")) return false;
    if (context->binary == NULL) context->binary = metadata_of(context->file, outcome);
    const struct binary_metadata *binary = context->binary;
    if (binary == NULL) return false;
    if (number >= binary->graph_count)
        return fail(outcome, "plan", "the context has %u graphs", binary->graph_count);
    if (context->graphs == NULL)
        context->graphs = calloc(binary->graph_count, sizeof *context->graphs);
    if (context->graphs == NULL) return fail(outcome, "memory", "out of memory");
    *graph = &binary->graphs[number];
    return true;
}

static bool retrieve(struct context *context, uint64_t number, const struct graph_metadata *graph,
                     struct outcome *outcome) {
    if (context->graphs[number] != NULL) return true;
    if (!offered(qnn.api->graph_retrieve != NULL && qnn.api->graph_execute != NULL, outcome,
                 "graphRetrieve or graphExecute"))
        return false;
    event_call("QnnGraph_retrieve");
    uint64_t started = now_us();
    abi_handle *handle = &context->graphs[number];
    abi_error code = qnn.api->graph_retrieve(context->handle, graph->name, handle);
    outcome->duration_us = now_us() - started;
    json_u64(&outcome->data, "retrieve_us", outcome->duration_us);
    answer(outcome, code);
    if (code != 0) *handle = NULL;
    return code == 0;
}

/* Tells the library of a buffer that the DSP is to use as it is. */
static bool register_buffer(struct run *run, uint32_t at, struct outcome *outcome) {
    struct abi_tensor *tensor = &run->given[at];
    struct shared *shared = &run->shared[at];
    struct abi_memory_descriptor descriptor = {.rank = tensor->rank,
                                               .dimensions = tensor->dimensions,
                                               .data_type = tensor->data_type,
                                               .buffer_type = shared->buffer_type};
    if (shared->buffer_type == ABI_BUFFER_ION) {
        descriptor.as.ion.fd = shared->fd;
    } else {
        descriptor.as.dma_buf.fd = shared->fd;
        descriptor.as.dma_buf.data = run->tensors.all[at].buffer.data;
    }
    if (!offered(qnn.api->memory_register != NULL, outcome, "memRegister")) return false;
    event_call("QnnMem_register");
    uint64_t started = now_us();
    abi_error code = qnn.api->memory_register(run->context, &descriptor, 1, &shared->handle);
    outcome->duration_us += now_us() - started;
    answer(outcome, code);
    if (code != 0) {
        shared->handle = NULL;
        return false;
    }
    tensor->memory_type = ABI_MEMORY_HANDLE;
    tensor->memory.size = 0;
    tensor->memory.data = shared->handle;
    return true;
}

/* A buffer of exactly the tensor's size: the library takes too small a one and writes past it. */
static bool bind(void *of, uint32_t at, struct outcome *outcome) {
    struct run *run = of;
    const struct graph_metadata *graph = run->graph;
    struct abi_tensor *tensor = &run->given[at];
    struct tensor *one = &run->tensors.all[at];
    *tensor = at < graph->input_count ? graph->inputs[at] : graph->outputs[at - graph->input_count];
    one->name = tensor->name;
    one->data_type = tensor->data_type;
    uint64_t bytes = tensor_bytes(tensor);
    if (bytes == 0)
        return fail(outcome, "unsupported", "tensor %s: data type 0x%04x, rank %u", tensor->name,
                    tensor->data_type, tensor->rank);
    if (run->registered)
        return (run->borrowed != NULL
                    ? shared_borrow(at, &run->shared[at], &one->buffer, bytes, outcome)
                    : shared_make(&run->shared[at], &one->buffer, bytes, outcome)) &&
               register_buffer(run, at, outcome);
    if (!buffer_make(&one->buffer, bytes, outcome)) return false;
    tensor->memory_type = ABI_MEMORY_RAW;
    tensor->memory.data = one->buffer.data;
    tensor->memory.size = (uint32_t)bytes;
    return true;
}

static bool execute_once(void *of, struct rounds *rounds, struct outcome *outcome) {
    struct run *run = of;
    uint32_t inputs = run->tensors.inputs, outputs = run->tensors.count - inputs;
    uint64_t started = now_us();
    abi_error code = qnn.api->graph_execute(run->handle, run->given, inputs, run->given + inputs,
                                            outputs, run->profile, NULL);
    rounds_add(rounds, now_us() - started);
    answer(outcome, code);
    return code == 0;
}

void run_all(struct run *run, const struct step *step, struct outcome *outcome) {
    tensors_execute(&run->tensors, step, "QnnGraph_execute", execute_once, run, outcome);
}

bool run_open(struct run *run, const struct step *step, struct outcome *outcome) {
    struct context *context = &qnn.contexts[step_number(step, "context", 0)];
    uint64_t number = step_number(step, "graph", 0);
    const struct graph_metadata *graph = NULL;
    if (!find_graph(context, number, &graph, outcome) ||
        !tensors_open(&run->tensors, step, "graph", graph->input_count, graph->output_count,
                      outcome))
        return false;
    json_text(&outcome->data, "graph", graph->name);
    if (!retrieve(context, number, graph, outcome)) return false;
    run->graph = graph;
    run->context = context->handle;
    run->handle = context->graphs[number];
    return tensors_prepare(&run->tensors, step, bind, run, outcome);
}

void run_close(struct run *run, struct outcome *outcome) {
    for (uint32_t at = 0; run->registered && at < run->tensors.count; at++) {
        struct shared *shared = &run->shared[at];
        if (shared->handle != NULL && qnn.api->memory_deregister != NULL) {
            bool failed = outcome->error != NULL || outcome->code != 0;
            if (!failed) event_call("QnnMem_deRegister");
            abi_error code = qnn.api->memory_deregister(&shared->handle, 1);
            if (!failed) answer(outcome, code); /* the first failure is the one that counts */
        }
        shared_free(shared, &run->tensors.all[at].buffer);
    }
    tensors_free(&run->tensors);
}

void execute(const struct step *step, struct outcome *outcome) {
    static struct run run; /* 512 tensors are too many for a stack */
    memset(&run, 0, sizeof run);
    if (run_open(&run, step, outcome)) {
        run.profile = profile_open(step_text(step, "profile"), outcome);
        run_all(&run, step, outcome);
        profile_close(run.profile, outcome);
        tensors_save(&run.tensors, step, outcome);
    }
    run_close(&run, outcome);
}
