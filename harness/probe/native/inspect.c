/* What libQnnSystem says about a context binary, and the copy of it that execute works from. */
#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The common part of all versions of the binary info. */
struct binary_view {
    uint32_t backend_id, soc_model, graph_count;
    const char *build_id;
    struct abi_version core, backend, context_blob;
    uint64_t context_blob_size;
    const struct abi_graph_info *graphs;
    const struct abi_htp_context_blob *context;
};

static bool view_of(const void *info, struct binary_view *view, struct outcome *outcome) {
    uint32_t version = *(const uint32_t *)info;
    if (version == 3) {
        const struct abi_binary_info_3 *body = info;
        *view = (struct binary_view){
            body->backend_id,   body->soc_model,         body->graph_count, body->build_id,
            body->core,         body->backend,           body->context_blob,
            body->context_blob_size, body->graphs,       NULL};
        if (body->metadata != NULL && body->metadata_size >= sizeof *view->context)
            view->context = body->metadata;
    } else if (version == 1 || version == 2) {
        const struct abi_binary_info_1 *body = info;
        *view = (struct binary_view){
            body->backend_id,   0,                       body->graph_count, body->build_id,
            body->core,         body->backend,           body->context_blob,
            body->context_blob_size, body->graphs,       NULL};
    } else {
        return fail(outcome, "metadata", "binary info of unknown version %u", version);
    }
    if (view->graph_count <= GRAPHS_MAX && (view->graph_count == 0 || view->graphs != NULL))
        return true;
    return fail(outcome, "metadata", "%u graphs", view->graph_count);
}

/* NULL and a failed outcome if the name is too long to be one. */
static char *copy_name(const char *name, struct outcome *outcome) {
    if (name == NULL) name = "";
    size_t length = strnlen(name, NAME_BYTES_MAX);
    char *copy = length < NAME_BYTES_MAX ? strndup(name, length) : NULL;
    if (copy == NULL) fail(outcome, "metadata", "a name of %zu bytes or more", length);
    return copy;
}

static bool copy_tensor(const struct abi_tensor *from, struct abi_tensor *to,
                        struct outcome *outcome) {
    if (from->version < 1 || from->version > 2 || from->rank > RANK_MAX ||
        (from->rank > 0 && from->dimensions == NULL))
        return fail(outcome, "metadata", "a tensor of version %u, rank %u", from->version,
                    from->rank);
    *to = *from;
    to->memory.data = NULL;
    to->memory.size = 0;
    to->is_dynamic = NULL;
    /* Other encodings point into memory that is about to go; execute does not need them. */
    if (to->quantization.encoding != ABI_SCALE_OFFSET)
        to->quantization = (struct abi_quantization){ABI_UNDEFINED, ABI_UNDEFINED, {{0, 0}}};
    to->dimensions = calloc(from->rank + 1, sizeof *to->dimensions);
    to->name = copy_name(from->name, outcome);
    if (to->dimensions == NULL || to->name == NULL) return false;
    if (from->rank > 0) memcpy(to->dimensions, from->dimensions, from->rank * sizeof(uint32_t));
    return true;
}

/* Copies without a pointer into the library's memory; false and a failed outcome if it cannot. */
static bool copy_tensors(const struct abi_tensor *from, uint32_t count, struct abi_tensor **to,
                         uint32_t *copied, struct outcome *outcome) {
    if (count > TENSORS_MAX || (count > 0 && from == NULL))
        return fail(outcome, "metadata", "%u tensors", count);
    *to = calloc(count + 1, sizeof **to);
    if (*to == NULL) return fail(outcome, "memory", "out of memory");
    for (*copied = 0; *copied < count;) {
        uint32_t at = (*copied)++; /* counted first: what is there gets freed */
        if (!copy_tensor(&from[at], &(*to)[at], outcome)) return false;
    }
    return true;
}

static void free_tensors(struct abi_tensor *tensors, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        free((char *)tensors[i].name);
        free(tensors[i].dimensions);
    }
    free(tensors);
}

static void free_binary(struct binary_metadata *binary) {
    for (uint32_t i = 0; i < binary->graph_count; i++) {
        free(binary->graphs[i].name);
        free_tensors(binary->graphs[i].inputs, binary->graphs[i].input_count);
        free_tensors(binary->graphs[i].outputs, binary->graphs[i].output_count);
    }
    free(binary->graphs);
    free(binary->file);
    free(binary);
}

static bool copy_graph(const struct abi_graph_info *from, struct graph_metadata *to,
                       struct outcome *outcome) {
    to->name = copy_name(from->name, outcome);
    return to->name != NULL &&
           copy_tensors(from->inputs, from->input_count, &to->inputs, &to->input_count, outcome) &&
           copy_tensors(from->outputs, from->output_count, &to->outputs, &to->output_count,
                        outcome);
}

static void describe_blob(struct json *json, const struct abi_graph_info *graph) {
    const struct abi_htp_graph_blob *blob = graph->blob;
    if (graph->version < 3 || blob == NULL || graph->blob_size < ABI_HTP_GRAPH_BLOB_1_SIZE ||
        blob->version != 1)
        return;
    json_u64(json, "spill_fill_bytes", blob->spill_fill_bytes);
    /* Documented in megabytes; QNN 2.47 to 2.51 give bytes. No VTCM has as little as 1 KB or as
     * much as 1 GB, which tells one from the other. */
    json_u64(json, "vtcm_bytes",
             blob->vtcm_size < 1024 ? (uint64_t)blob->vtcm_size << 20 : blob->vtcm_size);
    json_u64(json, "optimization_level", blob->optimization_level);
    json_u64(json, "hvx_threads", blob->hvx_threads);
    if (graph->blob_size < sizeof *blob || blob->second_version != 2) return;
    json_u64(json, "io_bytes", blob->io_bytes);
    json_u64(json, "op_data_bytes", blob->op_data_bytes);
    json_u64(json, "const_bytes", blob->const_bytes);
    json_u64(json, "ddr_tensor_bytes", blob->ddr_tensor_bytes);
    json_u64(json, "shared_weights_bytes", blob->shared_weights_bytes);
}

static void describe_graph(struct json *json, const struct abi_graph_info *graph,
                           const struct graph_metadata *copy) {
    json_open(json, NULL, '{');
    json_text(json, "name", copy->name);
    json_open(json, "inputs", '[');
    for (uint32_t i = 0; i < copy->input_count; i++)
        tensor_describe(json, &copy->inputs[i], &graph->inputs[i].quantization);
    json_close(json, ']');
    json_open(json, "outputs", '[');
    for (uint32_t i = 0; i < copy->output_count; i++)
        tensor_describe(json, &copy->outputs[i], &graph->outputs[i].quantization);
    json_close(json, ']');
    describe_blob(json, graph);
    json_close(json, '}');
}

static void describe_version(struct json *json, const char *key,
                             const struct abi_version *version) {
    char text[64];
    snprintf(text, sizeof text, "%u.%u.%u", version->major, version->minor, version->patch);
    json_text(json, key, text);
}

static void describe_binary(struct json *json, const struct binary_view *view) {
    json_text(json, "build_id", view->build_id);
    json_u64(json, "backend_id", view->backend_id);
    describe_version(json, "core_api", &view->core);
    describe_version(json, "backend_api", &view->backend);
    describe_version(json, "blob_version", &view->context_blob);
    json_u64(json, "blob_bytes", view->context_blob_size);
    if (view->soc_model != 0) json_u64(json, "soc_model", view->soc_model);
    if (view->context != NULL && view->context->version == 1)
        json_u64(json, "dsp_arch", view->context->dsp_arch);
}

static bool copy_graphs(const struct binary_view *view, struct binary_metadata *binary,
                        struct outcome *outcome) {
    binary->graphs = calloc(view->graph_count + 1, sizeof *binary->graphs);
    if (binary->graphs == NULL) return fail(outcome, "memory", "out of memory");
    binary->graph_count = view->graph_count;
    for (uint32_t i = 0; i < view->graph_count; i++)
        if (!copy_graph(&view->graphs[i], &binary->graphs[i], outcome)) return false;
    return true;
}

/* Takes over what `info` says, as long as the library's memory behind it is there. */
static const struct binary_metadata *keep(const void *info, const char *file, struct json *describe,
                                          struct outcome *outcome) {
    struct binary_view view = {0};
    if (!view_of(info, &view, outcome)) return NULL;
    struct binary_metadata *binary = calloc(1, sizeof *binary);
    if (binary == NULL || (binary->file = strdup(file)) == NULL) {
        fail(outcome, "memory", "out of memory");
        free(binary);
        return NULL;
    }
    if (!copy_graphs(&view, binary, outcome)) {
        free_binary(binary);
        return NULL;
    }
    if (describe != NULL) {
        describe_binary(describe, &view);
        json_open(describe, "graphs", '[');
        for (uint32_t i = 0; i < view.graph_count; i++)
            describe_graph(describe, &view.graphs[i], &binary->graphs[i]);
        json_close(describe, ']');
    }
    binary->next = qnn.binaries;
    return qnn.binaries = binary;
}

static const struct binary_metadata *inspect(const char *file, const struct buffer *binary,
                                             struct json *describe, struct outcome *outcome) {
    abi_handle handle = NULL;
    const void *info = NULL;
    uint64_t info_size = 0, started = now_us();
    abi_error code = qnn.system->context_create(&handle);
    if (code == 0 && qnn.system->metadata != NULL) {
        event_call("QnnSystemContext_getMetadata");
        code = qnn.system->metadata(handle, binary->data, binary->size, &info);
    } else if (code == 0) {
        event_call("QnnSystemContext_getBinaryInfo");
        code = qnn.system->binary_info(handle, binary->data, binary->size, &info, &info_size);
    }
    answer_since(started, outcome, code);
    const struct binary_metadata *kept = NULL;
    if (code == 0 && info == NULL)
        fail(outcome, "metadata", "success, and no binary info");
    else if (code == 0)
        kept = keep(info, file, describe, outcome);
    if (handle != NULL) qnn.system->context_free(handle);
    return kept;
}

static bool system_loaded(struct outcome *outcome) {
    return require(qnn.system != NULL, outcome,
                   "no system library is loaded, which could read the metadata");
}

void context_inspect(const struct step *step, struct outcome *outcome) {
    const char *file = step_text(step, "file");
    struct buffer binary;
    uint64_t offset = step_number(step, "offset", 0), size = step_number(step, "bytes", 0);
    if (!system_loaded(outcome) || !file_map(file, offset, size, &binary, outcome)) return;
    json_u64(&outcome->data, "size", binary.size);
    /* Under the name of its file only what is the whole file: execute looks for it there. */
    inspect(offset == 0 && size == 0 ? file : "", &binary, &outcome->data, outcome);
    buffer_free(&binary);
}

const struct binary_metadata *metadata_of(const char *file, struct outcome *outcome) {
    for (const struct binary_metadata *known = qnn.binaries; known != NULL; known = known->next)
        if (strcmp(known->file, file) == 0) return known;
    struct buffer binary;
    if (!system_loaded(outcome) || !file_load(file, FILE_BYTES_DEFAULT_MAX, &binary, outcome))
        return NULL;
    event_call("QnnSystemContext_create");
    const struct binary_metadata *found = inspect(file, &binary, NULL, outcome);
    json_u64(&outcome->data, "inspect_us", outcome->duration_us);
    buffer_free(&binary);
    return found;
}
