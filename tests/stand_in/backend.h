/* What every stand-in for a backend has: its log, handles of nothing, and how it is found. */
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include "abi.h"

#define EXPORTED __attribute__((visibility("default")))

static abi_log_callback *callback;

static void say(uint32_t level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (callback != NULL) callback(format, level, 0, args);
    va_end(args);
}

static abi_error log_create(abi_log_callback *given, uint32_t level, abi_handle *log) {
    (void)level;
    callback = given;
    *log = &callback;
    return 0;
}

static abi_error make(abi_handle log, const void **config, abi_handle *handle) {
    (void)log, (void)config;
    *handle = &callback;
    return 0;
}

static abi_error forget(abi_handle handle) {
    (void)handle;
    return 0;
}

/* the functions of a backend by the names that each stand-in gives them */
#define STAND_IN_API                                                                               \
    {.backend_create = make,                                                                       \
     .backend_build_id = build_id,                                                                 \
     .backend_free = forget,                                                                       \
     .context_create_from_binary = create,                                                         \
     .context_free = context_free,                                                                 \
     .graph_retrieve = retrieve,                                                                   \
     .graph_execute = execute,                                                                     \
     .log_create = log_create,                                                                     \
     .log_free = forget,                                                                           \
     .device_create = make,                                                                        \
     .device_free = forget,                                                                        \
     .error_message = message}

static abi_error metadata(abi_handle handle, const void *binary, uint64_t size, const void **info);
static abi_error system_create(abi_handle *handle);
static abi_error system_free(abi_handle handle);

EXPORTED abi_error QnnSystemInterface_getProviders(const struct abi_system_provider ***list,
                                                   uint32_t *count) {
    static const struct abi_system_provider provider = {
        .name = "STAND_IN_SYSTEM",
        .api = {.context_create = system_create, .metadata = metadata, .context_free = system_free}};
    static const struct abi_system_provider *providers[] = {&provider};
    *list = providers;
    *count = 1;
    return 0;
}
