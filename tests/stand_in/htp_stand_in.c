/* A stand-in for libQnnHtp, for tests only: the real simulator library with behaviours added.
 *
 * It is no backend. Contexts are loaded and graphs executed by the real library; around that it
 * does, on demand, what only a device does (registered memory, shared spill-fill buffers) or what
 * no library ought to do. What it is to do stands in STAND_IN, or in stand_in.conf beside it, as
 * key=value with commas or newlines between; STAND_IN_REAL and STAND_IN_SYSTEM name the real
 * libQnnHtp and libQnnSystem, else they are real_htp.so and real_system.so beside it.
 *
 *   execute_code=N      graphExecute answers N
 *   composed=1          graphs that come from no binary are executed, too
 *   outputs=zero        every output of these is nothing but zeros
 *   quick=1             a graph's executions with the same inputs repeat its first one's outputs
 *   memory=1            QnnMem, and I/O buffers (memfds) as documented for each memory type
 *   at_load=wrong       I/O is allocated at load where it must not be, and the other way round
 *   at_first=wrong      the same at the first inference
 *   copies=wrong        the profile tells of copies where there must be none, or of none
 *   slow_us=N           executions take so much longer
 *   slow_prepared_us=N  those of contexts that were prepared for memory handles do
 *   leak_bytes=N        freeing a context leaves so much on the heap
 *   leak=1              what a context had is not given back when it is freed
 *   late_ms=N           it is, by a thread that comes so much later
 *   grow_execute=N      every execution takes N more bytes until the context is freed
 *   group=right         contexts of a registered group share one buffer of the size first named,
 *                       also those that need more: what refuses them is the real thing's to show
 *   group=private       they say so, but each has its own
 *   group=clobber       executing one context spoils the next one's outputs
 *   list=1              createFromBinaryListAsync, sharing one buffer of the largest size
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi_memory.h"
#include "probe.h"

enum { CONTEXTS = 256, HANDLES = 1024, ENTRIES = 71, COPY_EVENT = 3900, EXPORTED_EVENTS = 256 };
#define COPY_EVENT_ID UINT64_C(0x7374616e642d696e)

struct share {
    int fd;
    void *data;
    uint64_t size;
};

struct held {
    abi_handle context, graph;
    bool prepared; /* for memory handles */
    uint64_t io_bytes, spill_bytes;
    struct share io, again, spill, grown[64];
    struct held *head; /* of its group */
    uint64_t group_bytes;
    bool in_group, executed;
    uint8_t *seen, *gave; /* the first execution's inputs and outputs, for quick=1 */
};

struct handle {
    int fd;
    void *data;
    uint64_t size;
};

static struct held contexts[CONTEXTS];
static struct handle handles[HANDLES];
static char config[4096];
static const struct abi_backend_api *real;
static const struct abi_system_api *system_api;
static uint64_t copies;
static bool spoil;

/* --- what it is told --- */

static const char *setting(const char *key) {
    static _Thread_local char value[64];
    for (const char *at = config; *at; at += strcspn(at, ",\n"), at += *at != '\0') {
        size_t length = strlen(key);
        if (strncmp(at, key, length) != 0 || at[length] != '=') continue;
        snprintf(value, sizeof value, "%.*s", (int)strcspn(at + length + 1, ",\n"),
                 at + length + 1);
        return value;
    }
    return "";
}

static bool is(const char *key, const char *value) { return strcmp(setting(key), value) == 0; }
static uint64_t number(const char *key) { return strtoull(setting(key), NULL, 10); }

/* --- memory that can be seen --- */

static void take(struct share *share, uint64_t size) {
    if (share->size > 0 || size == 0) return;
    share->fd = memfd_create("stand-in", MFD_CLOEXEC);
    if (share->fd < 0 || ftruncate(share->fd, (off_t)size) < 0) abort();
    share->data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, share->fd, 0);
    if (share->data == MAP_FAILED) abort();
    memset(share->data, 0, size);
    share->size = size;
}

static void *give_late(void *given) {
    struct share *share = given;
    usleep((useconds_t)number("late_ms") * 1000);
    munmap(share->data, share->size);
    close(share->fd);
    free(share);
    return NULL;
}

static void give(struct share *share) {
    if (share->size == 0 || number("leak")) return;
    struct share *given = malloc(sizeof *given);
    pthread_t thread;
    *given = *share;
    *share = (struct share){0};
    if (number("late_ms") == 0) {
        give_late(given);
    } else if (pthread_create(&thread, NULL, give_late, given) == 0) {
        pthread_detach(thread);
    }
}

/* --- contexts --- */

static struct held *find(abi_handle context) {
    for (int i = 0; i < CONTEXTS; i++)
        if (contexts[i].context == context) return &contexts[i];
    return NULL;
}

static struct held *find_graph(abi_handle graph) {
    for (int i = 0; i < CONTEXTS; i++)
        if (contexts[i].context != NULL && contexts[i].graph == graph) return &contexts[i];
    return NULL;
}

static void read_metadata(struct held *held, const void *binary, uint64_t size) {
    abi_handle handle = NULL;
    const void *info = NULL;
    if (system_api == NULL || system_api->context_create(&handle) != 0) return;
    if (system_api->metadata(handle, binary, size, &info) == 0 && *(const uint32_t *)info == 3) {
        const struct abi_binary_info_3 *body = info;
        for (uint32_t i = 0; i < body->graph_count; i++) {
            const struct abi_graph_info *graph = &body->graphs[i];
            const struct abi_htp_graph_blob *blob = graph->blob;
            for (uint32_t t = 0; t < graph->input_count; t++)
                held->io_bytes += tensor_bytes(&graph->inputs[t]);
            for (uint32_t t = 0; t < graph->output_count; t++)
                held->io_bytes += tensor_bytes(&graph->outputs[t]);
            if (graph->input_count > 0)
                held->prepared = graph->inputs[0].memory_type == ABI_MEMORY_HANDLE;
            if (blob != NULL && graph->blob_size >= ABI_HTP_GRAPH_BLOB_1_SIZE)
                held->spill_bytes = blob->spill_fill_bytes;
        }
    }
    system_api->context_free(handle);
}

static const struct abi_htp_context_option *group_of(const void **list) {
    for (; list != NULL && *list != NULL; list++) {
        const struct abi_context_option *entry = *list;
        const struct abi_htp_context_option *option = entry->as.custom;
        if (entry->option == ABI_CONTEXT_CUSTOM && option != NULL &&
            option->option == ABI_HTP_REGISTER_MULTI_CONTEXTS)
            return option;
    }
    return NULL;
}

static bool has_groups(void) { return *setting("group") != '\0'; }

static abi_error create(abi_handle backend, abi_handle device, const void **list,
                        const void *binary, uint64_t size, abi_handle *context,
                        abi_handle profile) {
    const struct abi_htp_context_option *group = has_groups() ? group_of(list) : NULL;
    struct held held = {0}, *head = group != NULL ? find(group->as.group.first) : NULL;
    if (group != NULL && group->as.group.first == NULL) head = NULL;
    read_metadata(&held, binary, size);
    uint64_t asked = group != NULL ? group->as.group.max_spill_fill_bytes : 0;
    uint64_t shared = head != NULL ? head->group_bytes : asked;
    abi_error code = real->context_create_from_binary(
        backend, device, group != NULL ? NULL : list, binary, size, context, profile);
    struct held *free_place = find(NULL);
    if (code != 0 || free_place == NULL) return code;
    held.context = *context;
    held.in_group = group != NULL;
    held.group_bytes = shared;
    *free_place = held;
    held.head = head != NULL ? head : free_place;
    free_place->head = held.head;
    if (number("memory") && held.prepared == is("at_load", "wrong"))
        take(&free_place->io, held.io_bytes);
    if (group == NULL || is("group", "private")) {
        if (has_groups() || number("list")) take(&free_place->spill, held.spill_bytes);
    } else if (head == NULL) {
        take(&free_place->spill, shared);
    }
    return 0;
}

static abi_error create_list(abi_handle backend, abi_handle device,
                             const struct abi_context_params **all, const void **list,
                             abi_handle signal) {
    (void)list, (void)signal;
    struct held *first = NULL;
    uint64_t largest = 0;
    if (!number("list")) return 1000;
    for (; *all != NULL; all++) {
        abi_handle context = NULL;
        abi_error code =
            create(backend, device, NULL, (*all)->binary, (*all)->size, &context, NULL);
        struct held *held = code == 0 ? find(context) : NULL;
        if (held != NULL) {
            give(&held->spill);
            if (first == NULL) first = held;
            largest = held->spill_bytes > largest ? held->spill_bytes : largest;
        }
        if ((*all)->notify != NULL)
            (*all)->notify(context, NULL, NULL, ABI_NOTIFY_CONTEXT, (*all)->parameter, code);
    }
    if (first != NULL) take(&first->spill, largest);
    return 0;
}

static abi_error release(abi_handle context, abi_handle profile) {
    static void *volatile lost;
    if (number("leak_bytes") && (lost = malloc(number("leak_bytes"))) != NULL)
        memset(lost, 1, number("leak_bytes"));
    struct held *held = find(context);
    if (held != NULL) {
        for (int i = 0; i < CONTEXTS; i++) {
            struct held *other = &contexts[i];
            if (other == held || other->context == NULL || other->head != held) continue;
            /* the group's buffer goes on with the next of it */
            if (other->spill.size == 0) {
                other->spill = held->spill;
                held->spill = (struct share){0};
            }
            for (int k = 0; k < CONTEXTS; k++)
                if (contexts[k].head == held) contexts[k].head = other;
            break;
        }
        give(&held->io);
        give(&held->again);
        give(&held->spill);
        for (uint32_t i = 0; i < 64; i++) give(&held->grown[i]);
        free(held->seen);
        free(held->gave);
        *held = (struct held){0};
    }
    return real->context_free(context, profile);
}

static abi_error retrieve(abi_handle context, const char *name, abi_handle *graph) {
    abi_error code = real->graph_retrieve(context, name, graph);
    struct held *held = find(context);
    if (code == 0 && held != NULL) held->graph = *graph;
    return code;
}

/* --- registered memory --- */

static abi_error enter(abi_handle context, const struct abi_memory_descriptor *descriptors,
                       uint32_t count, abi_handle *made) {
    if (!number("memory")) return real->memory_register(context, descriptors, count, made);
    for (uint32_t i = 0; i < count; i++) {
        const struct abi_memory_descriptor *one = &descriptors[i];
        int fd = one->buffer_type == ABI_BUFFER_ION ? one->as.ion.fd : one->as.dma_buf.fd;
        struct stat status;
        struct handle *place = handles;
        while (place < handles + HANDLES && place->data != NULL) place++;
        if (fstat(fd, &status) < 0 || place == handles + HANDLES) return 8003;
        uint64_t size = (uint64_t)status.st_size;
        void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED) return 8003;
        *place = (struct handle){.fd = fd, .data = data, .size = size};
        made[i] = place;
    }
    return 0;
}

static abi_error leave(const abi_handle *given, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct handle *handle = given[i];
        if (handle < handles || handle >= handles + HANDLES || handle->data == NULL) return 8001;
        munmap(handle->data, handle->size);
        *handle = (struct handle){0};
    }
    return 0;
}

/* The tensors as the real library takes them: raw, wherever their bytes are. */
static bool plain(const struct abi_tensor *from, uint32_t count, struct abi_tensor *to) {
    bool registered = false;
    for (uint32_t i = 0; i < count; i++) {
        to[i] = from[i];
        if (from[i].memory_type != ABI_MEMORY_HANDLE) continue;
        registered = true;
        to[i].memory_type = ABI_MEMORY_RAW;
        to[i].memory.data = ((struct handle *)from[i].memory.data)->data;
        to[i].memory.size = (uint32_t)tensor_bytes(&from[i]);
    }
    return registered;
}

/* --- execution --- */

static uint64_t copy_all(uint8_t *into, const struct abi_tensor *tensors, uint32_t count,
                         bool back, bool compare) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t size = tensors[i].memory.size;
        if (compare && memcmp(into + at, tensors[i].memory.data, size) != 0) return UINT64_MAX;
        if (!compare && into != NULL && back) memcpy(tensors[i].memory.data, into + at, size);
        if (!compare && into != NULL && !back) memcpy(into + at, tensors[i].memory.data, size);
        at += size;
    }
    return at;
}

static abi_error run_graph(abi_handle graph, const struct abi_tensor *inputs, uint32_t input_count,
                           struct abi_tensor *outputs, uint32_t output_count, abi_handle profile,
                           abi_handle signal) {
    static struct abi_tensor in[TENSORS_MAX], out[TENSORS_MAX];
    struct held *held = find_graph(graph);
    bool registered = plain(inputs, input_count, in);
    registered = plain(outputs, output_count, out) || registered;
    if (number("execute_code")) return number("execute_code");
    if (held == NULL && number("composed")) {
        abi_error code = real->graph_execute(graph, in, input_count, out, output_count, profile,
                                             signal);
        for (uint32_t i = 0; is("outputs", "zero") && i < output_count; i++)
            memset(out[i].memory.data, 0, out[i].memory.size);
        return code;
    }
    if (held == NULL) return 6001;
    bool first = !held->executed, documented = held->prepared && !registered;
    held->executed = true;
    copies = registered == is("copies", "wrong") ? input_count + output_count : 0;
    for (uint32_t i = 0; i < 64 && number("grow_execute") > 0; i++) {
        if (held->grown[i].size > 0) continue;
        take(&held->grown[i], number("grow_execute"));
        break;
    }
    if (number("memory") && first && documented != is("at_first", "wrong")) {
        take(held->io.size > 0 ? &held->again : &held->io, held->io_bytes);
    }
    if (number("slow_us")) usleep((useconds_t)number("slow_us"));
    if (number("slow_prepared_us") && held->prepared)
        usleep((useconds_t)number("slow_prepared_us"));
    abi_error code = 0;
    if (held->seen != NULL && copy_all(held->seen, in, input_count, false, true) != UINT64_MAX) {
        copy_all(held->gave, out, output_count, true, false);
    } else {
        code = real->graph_execute(graph, in, input_count, out, output_count, profile, signal);
        if (code == 0 && number("quick") && held->seen == NULL) {
            held->seen = malloc(copy_all(NULL, in, input_count, false, false) + 1);
            held->gave = malloc(copy_all(NULL, out, output_count, false, false) + 1);
            copy_all(held->seen, in, input_count, false, false);
            copy_all(held->gave, out, output_count, false, false);
        }
    }
    if (is("group", "clobber") && held->in_group) {
        if (spoil) ((uint8_t *)out[0].memory.data)[0] ^= 0x55;
        spoil = true;
    }
    return code;
}

/* --- profiles: the real events, and one that tells of copies --- */

static abi_error list_events(abi_handle profile, const uint64_t **events, uint32_t *count) {
    static uint64_t all[EXPORTED_EVENTS];
    const uint64_t *found = NULL;
    uint32_t number_found = 0;
    if (real->profile_events(profile, &found, &number_found) != 0) number_found = 0;
    if (number_found >= EXPORTED_EVENTS) number_found = EXPORTED_EVENTS - 1;
    for (uint32_t i = 0; i < number_found; i++) all[i] = found[i];
    all[number_found] = COPY_EVENT_ID;
    *events = all;
    *count = number_found + 1;
    return 0;
}

static abi_error describe_event(uint64_t event, struct abi_profile_event *data) {
    if (event != COPY_EVENT_ID)
        return real->profile_data(event, data);
    *data = (struct abi_profile_event){COPY_EVENT, 4, copies, "Copies of inputs and outputs"};
    return 0;
}

static abi_error inner_events(uint64_t event, const uint64_t **events, uint32_t *count) {
    if (event != COPY_EVENT_ID)
        return real->profile_sub_events(event, events, count);
    *count = 0;
    return 0;
}

/* --- the library's door --- */

/* A file in this library's own folder. */
static const char *beside(const char *name) {
    static char path[4096];
    Dl_info here = {.dli_fname = ""};
    dladdr((void *)config, &here);
    const char *slash = strrchr(here.dli_fname, '/');
    int length = slash != NULL ? (int)(slash - here.dli_fname) : 0;
    snprintf(path, sizeof path, "%.*s/%s", length, here.dli_fname, name);
    return path;
}

static void *open_real(const char *variable, const char *name, const char *symbol) {
    const char *path = getenv(variable);
    void *library = dlopen(path != NULL ? path : beside(name), RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fprintf(stderr, "stand-in: no real library: %s\n", dlerror());
    return library != NULL ? dlsym(library, symbol) : NULL;
}

static void read_config(void) {
    const char *told = getenv("STAND_IN");
    FILE *file = told == NULL ? fopen(beside("stand_in.conf"), "re") : NULL;
    if (told != NULL) snprintf(config, sizeof config, "%s", told);
    if (file == NULL) return;
    config[fread(config, 1, sizeof config - 1, file)] = '\0';
    fclose(file);
}

__attribute__((visibility("default"))) abi_error
QnnInterface_getProviders(const struct abi_backend_provider ***list, uint32_t *count) {
    static struct {
        struct abi_backend_provider head;
        void *rest[ENTRIES];
    } made;
    static const struct abi_backend_provider *providers[] = {&made.head};
    const void *const *found = NULL, *const *systems = NULL;
    uint32_t found_count = 0;
    read_config();
    abi_providers *get, *get_system;
    *(void **)&get = open_real("STAND_IN_REAL", "real_htp.so", "QnnInterface_getProviders");
    *(void **)&get_system =
        open_real("STAND_IN_SYSTEM", "real_system.so", "QnnSystemInterface_getProviders");
    uint32_t system_count = 0;
    if (get == NULL || get(&found, &found_count) != 0 || found_count == 0) return 4000;
    if (get_system != NULL && get_system(&systems, &system_count) == 0 && system_count > 0)
        system_api = &((const struct abi_system_provider *)systems[0])->api;
    real = &((const struct abi_backend_provider *)found[0])->api;
    memcpy(&made, found[0], offsetof(struct abi_backend_provider, api) + ENTRIES * sizeof(void *));
    made.head.name = "STAND_IN_FOR_TESTS";
    struct abi_backend_api *api = &made.head.api;
    api->context_create_from_binary = create;
    api->context_free = release;
    api->graph_retrieve = retrieve;
    api->graph_execute = run_graph;
    api->memory_register = enter;
    api->memory_deregister = leave;
    if (number("memory")) {
        api->profile_events = list_events;
        api->profile_data = describe_event;
        api->profile_sub_events = inner_events;
    }
    if (number("list")) api->context_create_list = create_list;
    *list = providers;
    *count = 1;
    return 0;
}
