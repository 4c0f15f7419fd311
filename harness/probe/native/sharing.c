/* The options of contexts, and contexts that share: as a registered group, or loaded as one list. */
#include "run.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The last of the options, which are NULL-terminated as the library takes them. */
static struct abi_context_option *add(struct context_config *config, uint32_t option) {
    struct abi_context_option *added = &config->options[config->count];
    *added = (struct abi_context_option){.option = option};
    config->entries[config->count++] = added;
    config->list = config->entries;
    return added;
}

static struct abi_htp_context_option *add_custom(struct context_config *config, uint32_t option) {
    struct abi_htp_context_option *custom = &config->custom[config->count];
    *custom = (struct abi_htp_context_option){.option = option};
    add(config, ABI_CONTEXT_CUSTOM)->as.custom = custom;
    return custom;
}

/* Adds the step's custom.N and standard.N: those of a whole list, or those of each context. */
static void add_numbers(const struct step *step, struct context_config *config, bool of_list) {
    *config = (struct context_config){0};
    bool lists = step->verb->function == context_load_list;
    for (uint32_t i = 0; i < step->field_count; i++) {
        const struct field *field = &step->fields[i];
        bool custom = strncmp(field->key, "custom.", 7) == 0;
        if (!custom && strncmp(field->key, "standard.", 9) != 0) continue;
        uint32_t option = (uint32_t)strtoul(strchr(field->key, '.') + 1, NULL, 10);
        bool shared = custom && (option == ABI_HTP_SHARE_RESOURCES ||
                                 option == ABI_HTP_SHARE_RESOURCES_TYPE ||
                                 option == ABI_HTP_REUSED_IO_LIMIT);
        if ((lists && shared) != of_list) continue;
        if (custom) {
            add_custom(config, option)->as.number = field->number;
        } else {
            add(config, option)->as.number = field->number;
            if (option == ABI_CONTEXT_PERSISTENT_BINARY) config->persistent = field->number != 0;
        }
    }
}

bool context_configure(const struct step *step, struct context_config *config,
                       struct outcome *outcome) {
    add_numbers(step, config, false);
    if (step_text(step, "max_spill_fill") == NULL) return true;
    uint64_t own = step_number(step, "context", 0), head = step_number(step, "group", own);
    if (!require(head == own || qnn.contexts[head].handle != NULL, outcome,
                 "the group's first context is not loaded"))
        return false;
    struct abi_htp_context_option *group = add_custom(
        config, step_number(step, "concurrent", 0) ? ABI_HTP_REGISTER_CONCURRENT
                                                   : ABI_HTP_REGISTER_MULTI_CONTEXTS);
    group->as.group.first = head == own ? NULL : qnn.contexts[head].handle;
    group->as.group.max_spill_fill_bytes = step_number(step, "max_spill_fill", 0);
    json_u64(&outcome->data, "group", head);
    return true;
}

/* What the library tells from threads of its own. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t told;
    uint32_t pending;
    abi_error failed;
    abi_handle handles[LIST_MAX];
    bool known[LIST_MAX];
} list = {.lock = PTHREAD_MUTEX_INITIALIZER, .told = PTHREAD_COND_INITIALIZER};

static void notified(abi_handle context, abi_handle graph, const char *graph_name, uint32_t what,
                     void *parameter, abi_error status) {
    (void)graph, (void)graph_name;
    size_t at = (size_t)parameter - 1;
    pthread_mutex_lock(&list.lock);
    if (status != 0 && list.failed == 0) list.failed = status;
    if (what == ABI_NOTIFY_CONTEXT && at < LIST_MAX && !list.known[at]) {
        list.known[at] = true;
        list.handles[at] = status == 0 ? context : NULL;
        if (list.pending > 0) list.pending--;
        pthread_cond_signal(&list.told);
    }
    pthread_mutex_unlock(&list.lock);
}

static void create(const struct step *step, struct buffer *binaries, uint32_t count,
                   struct outcome *outcome) {
    struct abi_context_params each[LIST_MAX];
    const struct abi_context_params *all[LIST_MAX + 1] = {NULL};
    struct context_config of_list, of_each;
    add_numbers(step, &of_list, true);
    add_numbers(step, &of_each, false);
    uint64_t first = step_number(step, "first", 0);
    for (uint32_t i = 0; i < count; i++) {
        each[i] = (struct abi_context_params){.version = 1,
                                              .config = of_each.list,
                                              .binary = binaries[i].data,
                                              .size = binaries[i].size,
                                              .notify = notified,
                                              .parameter = (void *)(size_t)(i + 1)};
        all[i] = &each[i];
    }
    list.pending = count;
    list.failed = 0;
    memset(list.known, 0, sizeof list.known);
    memset(list.handles, 0, sizeof list.handles);
    uint64_t started = now_us();
    abi_error code = qnn.api->context_create_list(
        qnn.backend, qnn.device, all, of_list.list, NULL);
    pthread_mutex_lock(&list.lock);
    while (code == 0 && list.pending > 0) pthread_cond_wait(&list.told, &list.lock);
    if (code == 0) code = list.failed;
    pthread_mutex_unlock(&list.lock);
    outcome->duration_us = now_us() - started;
    for (uint32_t i = 0; i < count; i++) {
        if (list.handles[i] == NULL) continue;
        qnn.contexts[first + i].handle = list.handles[i];
        qnn.contexts[first + i].file = step_numbered(step, "file.", i);
        if (!of_each.persistent) continue;
        qnn.contexts[first + i].kept = binaries[i];
        binaries[i] = (struct buffer){0};
    }
    answer(outcome, code);
}

void context_load_list(const struct step *step, struct outcome *outcome) {
    static struct buffer binaries[LIST_MAX];
    uint64_t first = step_number(step, "first", 0);
    uint32_t count = 0;
    while (step_numbered(step, "file.", count) != NULL) count++;
    if (!require(qnn.backend != NULL, outcome, "there is no backend")) return;
    if (first + count > CONTEXTS_MAX) {
        fail(outcome, "plan", "the last context must be below %d", CONTEXTS_MAX);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        if (!require(qnn.contexts[first + i].handle == NULL, outcome,
                     "this context is loaded already"))
            return;
    bool there = qnn.core_version.minor >= ABI_CORE_MINOR_WITH_LIST &&
                 qnn.api->context_create_list != NULL;
    if (!offered(there, outcome, "contextCreateFromBinaryListAsync")) return;
    memset(binaries, 0, sizeof binaries);
    bool read = true;
    for (uint32_t i = 0; read && i < count; i++)
        read = file_load(step_numbered(step, "file.", i), FILE_BYTES_DEFAULT_MAX, &binaries[i],
                         outcome);
    if (read) create(step, binaries, count, outcome);
    json_u64(&outcome->data, "contexts", count);
    for (uint32_t i = 0; i < count; i++) buffer_free(&binaries[i]);
}
