/* A stand-in for libQnnHtp and libQnnSystem on Android, for tests only: it is no backend.
 *
 * There is no QNN library for Android here, so it answers for the context binaries that it was
 * built with (known_contexts.h, made by tests/android/runtimes.py of what the real libraries say of
 * them). It executes what is easy: an 8-bit Relu as such, and else the outputs that are expected, as
 * far as they are known. BUILD is the build that it says it is; BUDGET how many bytes of contexts
 * it takes, counted as the real one counts them.
 *
 * What it is to do besides stands in /data/local/tmp/stand_in.conf, as key=value with newlines:
 *
 *   code=N          graphExecute answers N
 *   crash=CALL      a crash in load or execute ...
 *   hang=CALL       never back from it
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"

struct known {
    uint64_t size;
    uint32_t adler, input_count, output_count;
    uint64_t bytes;
    const char *graph_name;
    struct abi_tensor *inputs, *outputs;
    const unsigned char *const *expected;
};

#include "known_contexts.h"

#define CONF "/data/local/tmp/stand_in.conf"

enum { NO_MEMORY = 1002, NOT_MINE = 5000, NO_GRAPH = 6001, UFIXED8 = 0x0408 };

static char told[512];
static uint64_t used;
static unsigned loads;

static bool is(const char *words) {
    const char *at = strstr(told, words);
    return at != NULL && (at == told || at[-1] == '\n');
}

static void misbehave(const char *call) {
    char words[64];
    snprintf(words, sizeof words, "crash=%s\n", call);
    if (is(words)) *(volatile int *)8 = 1;
    snprintf(words, sizeof words, "hang=%s\n", call);
    while (is(words)) pause();
}

static void listen_to_tests(void) {
    FILE *file = fopen(CONF, "re");
    if (file == NULL) return;
    told[fread(told, 1, sizeof told - 1, file)] = '\0';
    fclose(file);
}

static const struct known *find(const unsigned char *binary, uint64_t size) {
    for (const struct known *one = KNOWN; one->size != 0; one++) {
        uint32_t low = 1, high = 0;
        if (one->size != size) continue;
        for (uint64_t i = 0; i < size; i++) {
            low = (low + binary[i]) % 65521;
            high = (high + low) % 65521;
        }
        if (one->adler == (high << 16 | low)) return one;
    }
    return NULL;
}

static abi_error create(abi_handle backend, abi_handle device, const void **config,
                        const void *binary, uint64_t size, abi_handle *context, abi_handle profile) {
    (void)backend, (void)device, (void)config, (void)profile;
    misbehave("load");
    const struct known *known = find(binary, size);
    if (known == NULL) return NOT_MINE;
    loads++;
    if (used + known->bytes > BUDGET) {
        say(ABI_LOG_ERROR,
            " <E> Failed to find available PD for contextId %u on deviceId 0 coreId 0with context "
            "size estimate %llu",
            loads, (unsigned long long)known->bytes);
        say(ABI_LOG_ERROR, " <E> context create from binary failed on contextId %u", loads);
        say(ABI_LOG_ERROR, " <E> Fail to create context from binary with err %d", NO_MEMORY);
        return NO_MEMORY;
    }
    used += known->bytes;
    const struct known **made = malloc(sizeof *made);
    if (made == NULL) return NO_MEMORY;
    *made = known;
    *context = made;
    return 0;
}

static abi_error context_free(abi_handle context, abi_handle profile) {
    (void)profile;
    used -= (*(const struct known **)context)->bytes;
    free(context);
    return 0;
}

static abi_error retrieve(abi_handle context, const char *name, abi_handle *graph) {
    if (strcmp(name, (*(const struct known **)context)->graph_name) != 0) return NO_GRAPH;
    *graph = context;
    return 0;
}

static abi_error execute(abi_handle graph, const struct abi_tensor *inputs, uint32_t input_count,
                         struct abi_tensor *outputs, uint32_t output_count, abi_handle profile,
                         abi_handle signal) {
    (void)profile, (void)signal;
    const struct known *known = *(const struct known **)graph;
    const char *code = strstr(told, "code=");
    misbehave("execute");
    if (code != NULL) {
        say(ABI_LOG_ERROR, " <E> the stand-in was told to answer %s", code);
        return strtoull(code + 5, NULL, 10);
    }
    if (input_count != known->input_count || output_count != known->output_count) return NO_GRAPH;
    for (uint32_t i = 0; i < output_count; i++) {
        unsigned char *to = outputs[i].memory.data;
        const unsigned char *from = inputs[0].memory.data;
        int32_t zero = -known->inputs[0].quantization.as.scale_offset.offset;
        if (known->expected[i] != NULL) {
            memcpy(to, known->expected[i], outputs[i].memory.size);
        } else if (known->inputs[0].data_type == UFIXED8 && i == 0 &&
                   inputs[0].memory.size == outputs[0].memory.size) {
            for (uint32_t b = 0; b < outputs[0].memory.size; b++)
                to[b] = from[b] > zero ? from[b] : (unsigned char)zero;
        }
    }
    return 0;
}

static abi_error build_id(const char **id) {
    *id = BUILD;
    return 0;
}

static abi_error message(abi_error error, const char **text) {
    static char said[64];
    snprintf(said, sizeof said, "the stand-in answered %u", (unsigned)(error & 0xffff));
    *text = said;
    return 0;
}

EXPORTED abi_error QnnInterface_getProviders(const struct abi_backend_provider ***list,
                                             uint32_t *count) {
    static const struct abi_backend_provider provider = {
        .backend_id = 6,
        .name = "STAND_IN_FOR_TESTS",
        .core = {2, 40, 0},
        .api = STAND_IN_API};
    static const struct abi_backend_provider *providers[] = {&provider};
    listen_to_tests();
    *list = providers;
    *count = 1;
    return 0;
}

/* --- libQnnSystem --- */

struct opened {
    struct abi_graph_info graph;
    struct abi_htp_context_blob blob;
    struct abi_binary_info_3 info;
};

static abi_error system_create(abi_handle *handle) {
    *handle = calloc(1, sizeof(struct opened));
    return *handle == NULL ? NO_MEMORY : 0;
}

static abi_error metadata(abi_handle handle, const void *binary, uint64_t size, const void **info) {
    struct opened *opened = handle;
    const struct known *known = find(binary, size);
    if (known == NULL) return NOT_MINE;
    opened->graph = (struct abi_graph_info){.version = 1,
                                            .name = known->graph_name,
                                            .input_count = known->input_count,
                                            .inputs = known->inputs,
                                            .output_count = known->output_count,
                                            .outputs = known->outputs};
    opened->blob = (struct abi_htp_context_blob){1, 73};
    opened->info = (struct abi_binary_info_3){.version = 3,
                                              .backend_id = 6,
                                              .build_id = BUILD,
                                              .graph_count = 1,
                                              .graphs = &opened->graph,
                                              .metadata_size = sizeof opened->blob,
                                              .metadata = &opened->blob};
    *info = &opened->info;
    return 0;
}

static abi_error system_free(abi_handle handle) {
    free(handle);
    return 0;
}
