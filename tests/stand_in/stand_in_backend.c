/* A stand-in for libQnnHtp and libQnnSystem, for what the real ones do not do on demand.
 *
 * Its "context binary" is a line of text: stand-in BEHAVIOUR DATA_TYPE(hex) RANK DIMENSION...
 * Its one graph copies its one input to its one output, unless the behaviour says otherwise. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "abi_memory.h"
#include "abi_power.h"
#include "backend.h"

enum { REFUSED = 1002, THREADS = 4, LINES = 2000 };

struct context {
    char behaviour[32];
    const char *binary; /* used again at each execution */
    unsigned executions;
    uint32_t dimensions[16];
    struct abi_tensor tensors[2];
    struct abi_graph_info graph;
    struct abi_binary_info_3 info;
};

static struct context *read_binary(const void *binary, uint64_t size) {
    static const char *const names[] = {"in", "out"};
    char text[512] = {0};
    unsigned type, rank;
    int used;
    struct context *context = calloc(1, sizeof *context);
    memcpy(text, binary, size < sizeof text - 1 ? size : sizeof text - 1);
    if (sscanf(text, "stand-in %31s %x %u%n", context->behaviour, &type, &rank, &used) != 3) {
        free(context);
        return NULL;
    }
    char *rest = text + used;
    for (unsigned i = 0; i < rank && i < 16; i++)
        context->dimensions[i] = (uint32_t)strtoul(rest, &rest, 10);
    for (unsigned i = 0; i < 2; i++)
        context->tensors[i] = (struct abi_tensor){.version = 1 + i,
                                                  .id = i + 1,
                                                  .name = names[i],
                                                  .type = i,
                                                  .data_type = type,
                                                  .quantization = {1, 0, {{0.5f, -3}}},
                                                  .rank = rank,
                                                  .dimensions = context->dimensions};
    context->graph = (struct abi_graph_info){.version = 1,
                                             .name = "copy",
                                             .input_count = 1,
                                             .inputs = &context->tensors[0],
                                             .output_count = 1,
                                             .outputs = &context->tensors[1]};
    context->info = (struct abi_binary_info_3){
        .version = 3, .build_id = "stand-in", .graph_count = 1, .graphs = &context->graph};
    if (strcmp(context->behaviour, "unknown-info") == 0) context->info.version = 9;
    if (strcmp(context->behaviour, "many-graphs") == 0) context->info.graph_count = 100000;
    if (strcmp(context->behaviour, "many-tensors") == 0) context->graph.input_count = 100000;
    if (strcmp(context->behaviour, "per-channel") == 0)
        context->tensors[0].quantization = (struct abi_quantization){1, 1, {.axis = {3, 8}}};
    if (strcmp(context->behaviour, "dies-read") == 0) abort();
    while (strcmp(context->behaviour, "hangs-read") == 0) pause();
    return context;
}

/* Tells the options of a context, or of a list of them. */
static void tell(const char *whose, const void **config) {
    for (; config != NULL && *config != NULL; config++) {
        const struct abi_context_option *option = *config;
        const struct abi_htp_context_option *custom = option->as.custom;
        if (option->option != ABI_CONTEXT_CUSTOM)
            say(ABI_LOG_WARN, "%s: standard %u = %llu", whose, option->option,
                (unsigned long long)option->as.number);
        else
            say(ABI_LOG_WARN, "%s: custom %u = %llu", whose, custom->option,
                (unsigned long long)custom->as.number);
    }
}

static void *chatter(void *thread) {
    for (int i = 0; i < LINES; i++)
        say(ABI_LOG_INFO, "thread %d line %d %0200d\n", (int)(intptr_t)thread, i, i);
    return NULL;
}

static void *speak_late(void *nothing) {
    usleep(50000);
    say(ABI_LOG_ERROR, "spoken late");
    return nothing;
}

static abi_error create(abi_handle backend, abi_handle device, const void **config,
                        const void *binary, uint64_t size, abi_handle *handle, abi_handle profile) {
    (void)backend, (void)device, (void)profile;
    struct context *context = read_binary(binary, size);
    if (context == NULL) return 5000;
    const char *behaviour = context->behaviour;
    tell("context", config);
    if (strcmp(behaviour, "persistent") == 0) context->binary = binary;
    pthread_t threads[THREADS];
    if (strcmp(behaviour, "refuse") == 0) {
        free(context);
        say(ABI_LOG_ERROR, "<E> Failed to find available PD for contextId %d\n", 55);
        return (UINT64_C(7) << 32) | REFUSED; /* what lies above the code is to be ignored */
    } else if (strcmp(behaviour, "chatter") == 0) {
        for (intptr_t i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, chatter, (void *)i);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        say(ABI_LOG_ERROR, "the line that matters");
    } else if (strcmp(behaviour, "bytes") == 0) {
        char all[256];
        for (int i = 0; i < 255; i++) all[i] = (char)(i + 1);
        all[255] = 0;
        say(ABI_LOG_WARN, "%s", all);
        say(ABI_LOG_WARN, "%09000d", 1);
    } else if (strcmp(behaviour, "late") == 0) {
        pthread_create(&threads[0], NULL, speak_late, NULL);
        pthread_detach(threads[0]);
    }
    printf("the stand-in prints on stdout\n");
    fflush(stdout);
    *handle = context;
    return 0;
}

static abi_error execute(abi_handle graph, const struct abi_tensor *inputs, uint32_t input_count,
                         struct abi_tensor *outputs, uint32_t output_count, abi_handle profile,
                         abi_handle signal) {
    (void)input_count, (void)output_count, (void)profile, (void)signal;
    struct context *context = graph;
    const char *behaviour = context->behaviour;
    char *to = outputs[0].memory.data;
    bool registered = outputs[0].memory_type == ABI_MEMORY_HANDLE;
    uint32_t size = registered ? 4 * context->dimensions[0] : outputs[0].memory.size;
    context->executions++;
    if (strcmp(behaviour, "silent") == 0) return 0;
    if (context->binary != NULL && strncmp(context->binary, "stand-in persistent", 19) != 0)
        return 6004;
    if (strcmp(behaviour, "fail") == 0) return 6004;
    if (strcmp(behaviour, "crash") == 0) abort();
    while (strcmp(behaviour, "hang") == 0) pause();
    memcpy(to, inputs[0].memory.data, size);
    if (strcmp(behaviour, "overflow") == 0) to[size] = to[size + 9] = 1;
    if (strcmp(behaviour, "underflow") == 0) to[-1] = 1;
    if (strcmp(behaviour, "drift") == 0 && context->executions == 3) to[size - 1] ^= 1;
    return 0;
}

/* A handle is where the buffer lies. */
static abi_error memory_register(abi_handle context, const struct abi_memory_descriptor *descriptor,
                                 uint32_t count, abi_handle *handle) {
    (void)context, (void)count;
    say(ABI_LOG_WARN, "fd %d", descriptor->as.dma_buf.fd);
    *handle = descriptor->as.dma_buf.data;
    return 0;
}

static abi_error memory_deregister(const abi_handle *handles, uint32_t count) {
    (void)handles, (void)count;
    return 0;
}

static abi_error retrieve(abi_handle context, const char *name, abi_handle *graph) {
    if (strcmp(name, "copy") != 0) return 6001;
    *graph = context;
    return 0;
}

static abi_error message(abi_error error, const char **text) {
    static char said[64];
    snprintf(said, sizeof said, "STAND_IN_ERROR: this is %u", (unsigned)(error & 0xffff));
    *text = error == 5000 ? "Not a stand-in's binary" : said;
    if (getenv("STAND_IN_DIES_ASKED") != NULL) abort();
    return 0;
}

static abi_error context_free(abi_handle context, abi_handle profile) {
    (void)profile;
    free(context);
    return 0;
}

static abi_error create_list(abi_handle backend, abi_handle device,
                             const struct abi_context_params **each, const void **config,
                             abi_handle signal) {
    (void)signal;
    tell("list", config);
    for (; *each != NULL; each++) {
        abi_handle context = NULL;
        abi_error code = create(backend, device, (*each)->config, (*each)->binary, (*each)->size,
                                &context, NULL);
        (*each)->notify(context, NULL, NULL, ABI_NOTIFY_CONTEXT, (*each)->parameter, code);
    }
    return 0;
}

static abi_error build_id(const char **id) {
    *id = "stand-in 1";
    return 0;
}

/* --- votes for power: STAND_IN_POWER is `none`, `other`, `refuse` or `crash` ----------------------- */

enum { CLIENT = 7 };

static bool powered(const char *behaviour) {
    const char *wanted = getenv("STAND_IN_POWER");
    return wanted != NULL && strcmp(wanted, behaviour) == 0;
}

static abi_error create_client(uint32_t device, uint32_t core, uint32_t *client) {
    *client = CLIENT + device + core;
    return 0;
}

static abi_error destroy_client(uint32_t client) {
    say(ABI_LOG_WARN, "client %u is gone", client);
    return 0;
}

static abi_error set_power(uint32_t client, const struct abi_power_config **configs) {
    for (; *configs != NULL; configs++) {
        const struct abi_power_config *config = *configs;
        if (config->option == ABI_POWER_DCVS_V3)
            say(ABI_LOG_WARN, "client %u: scaling %u, mode %u, sleep %u, bus %u-%u, core %u-%u",
                config->as.dcvs.client == client ? client : 0, config->as.dcvs.scaling,
                config->as.dcvs.mode, config->as.dcvs.sleep_latency_us, config->as.dcvs.bus.least,
                config->as.dcvs.bus.most, config->as.dcvs.core.least, config->as.dcvs.core.most);
        else
            say(ABI_LOG_WARN, "client %u: option %u is %u us", client, config->option,
                config->as.us);
        if (powered("crash")) abort();
        if (powered("refuse") && config->option == ABI_POWER_RPC_POLLING_TIME) return 1000;
    }
    return 0;
}

static abi_error infrastructure(const struct abi_htp_infrastructure **given) {
    static const struct abi_htp_infrastructure power = {
        ABI_INFRASTRUCTURE_PERF, create_client, destroy_client, set_power, NULL};
    static const struct abi_htp_infrastructure other = {.type = 9};
    *given = powered("other") ? &other : &power;
    return powered("none") ? 1000 : 0;
}

static struct abi_backend_provider provider = {
    .backend_id = 99,
    .name = "STAND_IN",
    .core = {2, 0, 0},
    .api = STAND_IN_API};

abi_error QnnInterface_getProviders(const struct abi_backend_provider ***list, uint32_t *count) {
    static const struct abi_backend_provider *providers[] = {&provider};
    provider.api.device_infrastructure = infrastructure;
    if (getenv("STAND_IN_LISTS") != NULL) {
        provider.core.minor = ABI_CORE_MINOR_WITH_LIST;
        provider.api.context_create_list = create_list;
    }
    if (getenv("STAND_IN_MEMORY") != NULL) {
        provider.api.memory_register = memory_register;
        provider.api.memory_deregister = memory_deregister;
    }
    *list = providers;
    *count = 1;
    return 0;
}

static abi_error system_create(abi_handle *handle) {
    *handle = calloc(1, sizeof(struct context *));
    return 0;
}

static abi_error metadata(abi_handle handle, const void *binary, uint64_t size, const void **info) {
    struct context *context = read_binary(binary, size);
    if (context == NULL) return 30010;
    *(struct context **)handle = context;
    *info = &context->info;
    return 0;
}

static abi_error system_free(abi_handle handle) {
    struct context *context = *(struct context **)handle;
    /* Whoever kept a pointer into it is to notice. */
    if (context != NULL) memset(context, 0xee, sizeof *context);
    free(context);
    free(handle);
    return 0;
}
