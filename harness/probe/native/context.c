/* Contexts: loaded from a binary, freed. */
#include "run.h"

#include <stdlib.h>

void context_load(const struct step *step, struct outcome *outcome) {
    struct context *context = &qnn.contexts[step_number(step, "context", 0)];
    const char *file = step_text(step, "file");
    if (!require(qnn.backend != NULL, outcome, "there is no backend") ||
        !require(context->handle == NULL, outcome, "this context is loaded already") ||
        !offered(qnn.api->context_create_from_binary != NULL, outcome, "contextCreateFromBinary"))
        return;
    struct context_config config;
    if (!context_configure(step, &config, outcome)) return;
    struct buffer binary;
    uint64_t started = now_us();
    uint64_t limit = step_number(step, "max_bytes", FILE_BYTES_DEFAULT_MAX);
    if (!file_load(file, limit, &binary, outcome)) return;
    json_u64(&outcome->data, "size", binary.size);
    json_u64(&outcome->data, "read_us", now_us() - started);

    abi_handle handle = NULL, profile = profile_open(step_text(step, "profile"), outcome);
    started = now_us();
    abi_error code = qnn.api->context_create_from_binary(
        qnn.backend, qnn.device, config.list, binary.data, binary.size, &handle, profile);
    answer_since(started, outcome, code);
    profile_close(profile, outcome);
    uint64_t damage = buffer_damage(&binary);
    bool keeps = code == 0 && config.persistent;
    /* Else the library has taken what it needs: frameworks let go of the file here as well. */
    if (!keeps) buffer_free(&binary);
    if (code != 0) return;
    context->handle = handle;
    context->file = file;
    if (keeps) context->kept = binary;
    if (damage > 0)
        fail(outcome, "guard", "%llu bytes around the binary were overwritten",
             (unsigned long long)damage);
}

void context_free(const struct step *step, struct outcome *outcome) {
    struct context *context = &qnn.contexts[step_number(step, "context", 0)];
    if (!to_free(context->handle != NULL, outcome) ||
        !offered(qnn.api->context_free != NULL, outcome, "contextFree"))
        return;
    bound_forget(step_number(step, "context", 0));
    uint64_t started = now_us();
    abi_error code = qnn.api->context_free(context->handle, NULL);
    answer_since(started, outcome, code);
    free(context->graphs);
    buffer_free(&context->kept);
    *context = (struct context){0}; /* after an error, too: nobody may use it again */
}
