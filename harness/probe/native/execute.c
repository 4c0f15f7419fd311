/* Execution: inputs from files, outputs compared and saved, no byte written outside of them. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

#include "abi_memory.h"
#include "rounds.h"

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
static bool register_buffer(struct run *run, struct abi_tensor *tensor, struct io_buffer *buffer) {
    struct abi_memory_descriptor descriptor = {.rank = tensor->rank,
                                               .dimensions = tensor->dimensions,
                                               .data_type = tensor->data_type,
                                               .buffer_type = buffer->shared.buffer_type};
    if (buffer->shared.buffer_type == ABI_BUFFER_ION) {
        descriptor.as.ion.fd = buffer->shared.fd;
    } else {
        descriptor.as.dma_buf.fd = buffer->shared.fd;
        descriptor.as.dma_buf.data = buffer->shared.data;
    }
    if (!offered(qnn.api->memory_register != NULL, run->outcome, "memRegister")) return false;
    event_call("QnnMem_register");
    uint64_t started = now_us();
    abi_error code = qnn.api->memory_register(run->context, &descriptor, 1, &buffer->handle);
    run->outcome->duration_us += now_us() - started;
    answer(run->outcome, code);
    if (code != 0) {
        buffer->handle = NULL;
        return false;
    }
    tensor->memory_type = ABI_MEMORY_HANDLE;
    tensor->memory.size = 0;
    tensor->memory.data = buffer->handle;
    return true;
}

/* A buffer of exactly the tensor's size: the library takes too small a one and writes past it. */
static bool bind(struct run *run, struct abi_tensor *tensor, struct io_buffer *buffer) {
    uint64_t bytes = tensor_bytes(tensor);
    if (bytes == 0)
        return fail(run->outcome, "unsupported", "tensor %s: data type 0x%04x, rank %u",
                    tensor->name, tensor->data_type, tensor->rank);
    if (run->registered) {
        if (!shared_make(&buffer->shared, bytes, run->outcome)) return false;
        buffer->plain = (struct buffer){.data = buffer->shared.data, .size = bytes};
        return register_buffer(run, tensor, buffer);
    }
    if (!buffer_make(&buffer->plain, bytes, run->outcome)) return false;
    tensor->memory_type = ABI_MEMORY_RAW;
    tensor->memory.data = buffer->plain.data;
    tensor->memory.size = (uint32_t)bytes;
    return true;
}

bool run_prepare(struct run *run) {
    const struct graph_metadata *graph = run->graph;
    for (uint32_t i = 0; i < graph->input_count; i++) {
        run->inputs[i] = graph->inputs[i];
        if (!bind(run, &run->inputs[i], &run->input_buffers[i]) ||
            !input_read(run->step, i, graph->inputs[i].name, &run->input_buffers[i].plain,
                        run->outcome))
            return false;
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        run->outputs[i] = graph->outputs[i];
        if (!bind(run, &run->outputs[i], &run->output_buffers[i])) return false;
        buffer_fill(&run->output_buffers[i].plain); /* its pages are there from now on */
        if (!expected_read(run->step, i, run->output_buffers[i].plain.size, &run->expected[i],
                           run->outcome))
            return false;
    }
    return true;
}

static bool check_guards(struct run *run, uint64_t round) {
    uint32_t inputs = run->graph->input_count;
    for (uint32_t at = 0; at < inputs + run->graph->output_count; at++) {
        const struct io_buffer *buffer =
            at < inputs ? &run->input_buffers[at] : &run->output_buffers[at - inputs];
        uint64_t damage =
            run->registered ? shared_damage(&buffer->shared) : buffer_damage(&buffer->plain);
        if (!guard_whole(damage, round, at, inputs, run->outcome)) return false;
    }
    return true;
}

static bool check_outputs(struct run *run, uint64_t round) {
    bool right = true;
    for (uint32_t i = 0; i < run->graph->output_count; i++)
        right = output_right(i, run->outputs[i].data_type, &run->output_buffers[i].plain,
                             &run->expected[i], run->tolerance, round, &run->comparisons[i],
                             run->outcome) &&
                right;
    return right;
}

/* Executes `repeats` times, or until something is wrong. */
void run_all(struct run *run, uint64_t repeats) {
    static struct rounds rounds;
    bool fine = true;
    rounds_begin(&rounds);
    event_call("QnnGraph_execute");
    while (fine && rounds.made < repeats) {
        for (uint32_t i = 0; i < run->graph->output_count; i++)
            buffer_fill(&run->output_buffers[i].plain);
        uint64_t started = now_us();
        abi_error code = qnn.api->graph_execute(run->handle, run->inputs, run->graph->input_count,
                                                run->outputs, run->graph->output_count,
                                                run->profile, NULL);
        rounds_add(&rounds, now_us() - started);
        answer(run->outcome, code);
        fine = code == 0 && check_guards(run, rounds.made) && check_outputs(run, rounds.made);
    }
    rounds_report(&rounds, run->outcome);
    if (run->outcome->code != 0) return;
    struct json *data = &run->outcome->data;
    json_open(data, "outputs", '[');
    for (uint32_t i = 0; i < run->graph->output_count; i++)
        report_comparison(i, run->outputs[i].name, &run->comparisons[i], data);
    json_close(data, ']');
}

void report_digests(const struct run *run) {
    struct json *data = &run->outcome->data;
    json_open(data, "digests", '[');
    for (uint32_t i = 0; i < run->graph->output_count; i++)
        report_digest(&run->output_buffers[i].plain, data);
    json_close(data, ']');
}

static bool all_compared(const struct run *run) {
    for (uint32_t i = 0; i < run->graph->output_count; i++)
        if (run->expected[i].data == NULL) return false;
    return true;
}

bool run_open(struct run *run, const struct step *step, struct outcome *outcome) {
    struct context *context = &qnn.contexts[step_number(step, "context", 0)];
    uint64_t number = step_number(step, "graph", 0);
    run->step = step;
    run->outcome = outcome;
    run->tolerance = step_real(step, "tolerance", 0);
    const struct graph_metadata *graph = NULL;
    if (!find_graph(context, number, &graph, outcome) ||
        !tensors_within(step, "graph", graph->input_count, graph->output_count, outcome))
        return false;
    json_text(&outcome->data, "graph", graph->name);
    if (!retrieve(context, number, graph, outcome)) return false;
    run->graph = graph;
    run->context = context->handle;
    run->handle = context->graphs[number];
    return true;
}

static void give_back(struct run *run, struct io_buffer *buffer) {
    if (buffer->handle != NULL && qnn.api->memory_deregister != NULL) {
        bool failed = run->outcome->error != NULL || run->outcome->code != 0;
        if (!failed) event_call("QnnMem_deRegister");
        abi_error code = qnn.api->memory_deregister(&buffer->handle, 1);
        if (!failed) answer(run->outcome, code); /* the first failure is the one that counts */
    }
    shared_free(&buffer->shared);
    buffer_free(&buffer->plain);
    *buffer = (struct io_buffer){.shared.fd = -1};
}

void run_close(struct run *run) {
    for (uint32_t i = 0; run->graph != NULL && i < run->graph->input_count; i++)
        give_back(run, &run->input_buffers[i]);
    for (uint32_t i = 0; run->graph != NULL && i < run->graph->output_count; i++) {
        give_back(run, &run->output_buffers[i]);
        buffer_free(&run->expected[i]);
    }
}

void execute(const struct step *step, struct outcome *outcome) {
    uint64_t repeats = step_number(step, "repeat", 1);
    static struct run run; /* 512 tensors are too many for a stack */
    memset(&run, 0, sizeof run);
    if (run_open(&run, step, outcome) && run_prepare(&run)) {
        run_all(&run, repeats);
        /* Wrong outputs are worth a look: only what the library never wrote is not saved. */
        for (uint32_t i = 0; outcome->code == 0 && i < run.graph->output_count; i++)
            if (!output_save(step, i, &run.output_buffers[i].plain, outcome)) break;
        /* They cost time, and what was compared needs none, unless it is kept. */
        bool kept = step_numbered(step, "save.", 0) != NULL;
        if (outcome->code == 0 && (kept || !all_compared(&run))) report_digests(&run);
    }
    run_close(&run);
}
