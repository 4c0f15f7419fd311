/* A stand-in for libonnxruntime, for what the real one does not do on demand.
 *
 * Its "model" is a line of text: stand-in BEHAVIOUR. A session has one input and one output of four
 * floats and copies the one to the other, unless the behaviour says otherwise. STAND_IN_API is the
 * newest version of the API that it claims to have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ort.h"

enum { LENGTH = 4, NEWEST = 24 };

struct status {
    int code;
    char text[6000];
};
struct session {
    char behaviour[32];
};
struct value {
    void *data;
    size_t bytes;
};

static ort_log_callback *callback;

static ort_status refuse(int code, const char *text) {
    struct status *status = calloc(1, sizeof *status);
    status->code = code;
    snprintf(status->text, sizeof status->text, "%s", text);
    return status;
}

static int error_code(ort_status status) { return ((struct status *)status)->code; }
static const char *error_message(ort_status status) { return ((struct status *)status)->text; }
static void give_back(void *thing) { free(thing); }
static void leave(void *thing) { (void)thing; }

static ort_status create_env(ort_log_callback *log, void *param, int severity, const char *id,
                             ort_handle *env) {
    (void)param, (void)severity, (void)id;
    callback = log;
    *env = malloc(1);
    return NULL;
}

static ort_status providers(char ***names, int *count) {
    static char *list[] = {"CPUExecutionProvider"};
    *names = list;
    *count = 1;
    return NULL;
}

static ort_status release_providers(char **names, int count) {
    (void)names, (void)count;
    return NULL;
}

static ort_status register_library(ort_handle env, const char *name, const char *path) {
    (void)env, (void)path;
    return strcmp(name, "refused") == 0 ? refuse(1, "no such library") : NULL;
}

static ort_status unregister_library(ort_handle env, const char *name) {
    (void)env, (void)name;
    return NULL;
}

static int device;

static ort_status ep_devices(ort_handle env, ort_handle const **devices, size_t *count) {
    static ort_handle list[] = {&device};
    (void)env;
    *devices = list;
    *count = 1;
    return NULL;
}

static const char *ep_name(ort_handle of) { return of == &device ? "StandIn" : NULL; }
static const char *ep_vendor(ort_handle of) { return of == &device ? NULL : "?"; }
static ort_handle ep_hardware(ort_handle of) { return of; }
static int hardware_type(ort_handle hardware) { return hardware == &device ? 77 : 0; }

static ort_status create_options(ort_handle *options) {
    *options = malloc(1);
    return NULL;
}

static ort_status set_threads(ort_handle options, int threads) {
    (void)options;
    return threads == 1 ? NULL : refuse(2, "one thread is enough");
}

static ort_status set_option(ort_handle options, const char *key, const char *value) {
    (void)options;
    return strcmp(key, "wrong") == 0 ? refuse(2, value) : NULL;
}

static ort_status append(ort_handle options, const char *name, const char *const *keys,
                         const char *const *values, size_t count) {
    (void)options, (void)keys, (void)values, (void)count;
    return strcmp(name, "StandIn") == 0 ? NULL : refuse(2, "not built in");
}

static ort_status append_devices(ort_handle options, ort_handle env, const ort_handle *devices,
                                 size_t device_count, const char *const *keys,
                                 const char *const *values, size_t count) {
    (void)env;
    return devices[0] == &device && device_count == 1 ? append(options, "StandIn", keys, values, count)
                                                      : refuse(2, "not my device");
}

static ort_status create_session(ort_handle env, const char *model, ort_handle options,
                                 ort_handle *session) {
    (void)env, (void)options;
    struct session *made = calloc(1, sizeof *made);
    FILE *file = fopen(model, "r");
    if (file == NULL || fscanf(file, "stand-in %31s", made->behaviour) != 1) {
        if (file != NULL) fclose(file);
        free(made);
        return refuse(3, "no such file");
    }
    fclose(file);
    *session = made; /* as if a library had left something there before it refused */
    if (strcmp(made->behaviour, "crash-create") == 0) abort();
    if (strcmp(made->behaviour, "hang-create") == 0)
        for (;;) pause();
    if (strcmp(made->behaviour, "logs") == 0) {
        callback(NULL, 0, "", "", "qnn.cc:1 Log", "  <E> the cause, err 0x3ea\n");
        callback(NULL, 0, "", "", "ort.cc:2 Talk", "chatter");
        callback(NULL, 3, NULL, NULL, NULL, NULL);
        callback(NULL, 4, "", "", "", "<X> of no known level");
    }
    char text[5000];
    memset(text, 'x', sizeof text);
    snprintf(text + 4000, sizeof text - 4000, " Error code: 6999");
    if (strcmp(made->behaviour, "refuse-long") == 0) {
        free(made);
        return refuse(11, text);
    }
    if (strcmp(made->behaviour, "refuse-odd") == 0) {
        free(made);
        return refuse(-70000, "\xff\x1b[31m");
    }
    return NULL;
}

static ort_status count_one(ort_handle session, size_t *count) {
    *count = strcmp(((struct session *)session)->behaviour, "many") == 0 ? 100000 : 1;
    return NULL;
}

static ort_status name_of(ort_handle session, size_t index, ort_handle allocator, char **name) {
    (void)session, (void)index, (void)allocator;
    *name = strdup("tensor");
    return NULL;
}

static ort_status allocator_free(ort_handle allocator, void *memory) {
    (void)allocator;
    free(memory);
    return NULL;
}

static ort_status no_allocator(ort_handle *allocator) {
    *allocator = NULL;
    return NULL;
}

static ort_status type_of(ort_handle session, size_t index, ort_handle *type) {
    (void)index;
    *type = session;
    return NULL;
}

static ort_status tensor_info(ort_handle type, ort_handle *info) {
    bool none = strcmp(((struct session *)type)->behaviour, "sequence") == 0;
    *info = none ? NULL : type;
    return NULL;
}

static ort_status element_type(ort_handle info, int *type) {
    *type = strcmp(((struct session *)info)->behaviour, "strings") == 0 ? 8 : 1;
    return NULL;
}

static ort_status rank(ort_handle info, size_t *rank) {
    *rank = strcmp(((struct session *)info)->behaviour, "deep") == 0 ? 1000000 : 1;
    return NULL;
}

static ort_status dimensions(ort_handle info, int64_t *list, size_t rank) {
    if (rank != 1) abort();
    list[0] = strcmp(((struct session *)info)->behaviour, "dynamic") == 0 ? -1 : LENGTH;
    return NULL;
}

static ort_status create_memory(int allocator_type, int memory_type, ort_handle *memory) {
    (void)allocator_type, (void)memory_type;
    *memory = malloc(1);
    return NULL;
}

static ort_status create_tensor(ort_handle memory, void *data, size_t bytes, const int64_t *shape,
                                size_t rank, int type, ort_handle *value) {
    (void)memory;
    if (rank != 1 || shape[0] != LENGTH || type != 1) return refuse(2, "not the tensor");
    struct value *made = malloc(sizeof *made);
    *made = (struct value){data, bytes};
    *value = made;
    return NULL;
}

static ort_status run(ort_handle handle, ort_handle run_options, const char *const *input_names,
                      const ort_handle *inputs, size_t input_count,
                      const char *const *output_names, size_t output_count, ort_handle *outputs) {
    const struct session *session = handle;
    const struct value *in = inputs[0], *out = outputs[0];
    if (run_options != NULL || input_count != 1 || output_count != 1 ||
        strcmp(input_names[0], "tensor") != 0 || strcmp(output_names[0], "tensor") != 0)
        return refuse(2, "not my tensors");
    if (strcmp(session->behaviour, "crash-run") == 0) abort();
    if (strcmp(session->behaviour, "hang-run") == 0)
        for (;;) pause();
    if (strcmp(session->behaviour, "refuse-run") == 0)
        return refuse(1, "QNN graph execute error. Error code: 6999");
    memcpy(out->data, in->data, out->bytes);
    if (strcmp(session->behaviour, "wrong") == 0) ((float *)out->data)[2] += 1;
    if (strcmp(session->behaviour, "overrun") == 0) ((char *)out->data)[out->bytes] = 1;
    return NULL;
}

static struct placed {
    const char *ep, *operator;
} on_standin = {"StandIn", "Copy"}, on_cpu = {"CPUExecutionProvider", "Det"};

static ort_status assignment(ort_handle handle, ort_handle const **subgraphs, size_t *count) {
    static ort_handle whole[] = {&on_standin}, half[] = {&on_standin, &on_cpu};
    const char *behaviour = ((struct session *)handle)->behaviour;
    if (strcmp(behaviour, "unrecorded") == 0) return refuse(1, "it was not recorded");
    *subgraphs = strcmp(behaviour, "half") == 0 ? half : whole;
    *count = strcmp(behaviour, "half") == 0 ? 2 : strcmp(behaviour, "empty") != 0;
    return NULL;
}

static ort_status subgraph_ep(ort_handle subgraph, const char **name) {
    *name = ((struct placed *)subgraph)->ep;
    return NULL;
}

static ort_status subgraph_nodes(ort_handle subgraph, ort_handle const **nodes, size_t *count) {
    static ort_handle list[1];
    list[0] = subgraph;
    *nodes = list;
    *count = 1;
    return NULL;
}

static ort_status node_operator(ort_handle node, const char **name) {
    *name = ((struct placed *)node)->operator;
    return NULL;
}

static ort_status node_name(ort_handle node, const char **name) {
    (void)node;
    *name = "";
    return NULL;
}

static union ort_api api;

__attribute__((constructor)) static void fill(void) {
    api.error_code = error_code;
    api.error_message = error_message;
    api.create_env = create_env;
    api.create_session = create_session;
    api.run = run;
    api.create_options = create_options;
    api.set_threads = set_threads;
    api.input_count = count_one;
    api.output_count = count_one;
    api.input_type = type_of;
    api.output_type = type_of;
    api.input_name = name_of;
    api.output_name = name_of;
    api.create_tensor = create_tensor;
    api.tensor_info = tensor_info;
    api.element_type = element_type;
    api.rank = rank;
    api.dimensions = dimensions;
    api.create_cpu_memory = create_memory;
    api.allocator_free = allocator_free;
    api.default_allocator = no_allocator;
    api.release_env = give_back;
    api.release_status = give_back;
    api.release_memory = give_back;
    api.release_session = give_back;
    api.release_value = give_back;
    api.release_type = leave;
    api.release_options = give_back;
    api.providers = providers;
    api.release_providers = release_providers;
    api.set_option = set_option;
    api.append_provider = append;
    api.register_library = register_library;
    api.unregister_library = unregister_library;
    api.ep_devices = ep_devices;
    api.append_devices = append_devices;
    api.hardware_type = hardware_type;
    api.ep_name = ep_name;
    api.ep_vendor = ep_vendor;
    api.ep_hardware = ep_hardware;
    api.assignment = assignment;
    api.subgraph_ep = subgraph_ep;
    api.subgraph_nodes = subgraph_nodes;
    api.node_operator = node_operator;
    api.node_name = node_name;
}

static const union ort_api *get(uint32_t version) {
    const char *newest = getenv("STAND_IN_API");
    return version <= (newest != NULL ? (uint32_t)atoi(newest) : NEWEST) ? &api : NULL;
}

static const char *version(void) { return "9.9.9-stand-in"; }

static const struct {
    const union ort_api *(*get)(uint32_t version);
    const char *(*version)(void);
} base = {get, version};

const void *OrtGetApiBase(void);
const void *OrtGetApiBase(void) { return &base; }
