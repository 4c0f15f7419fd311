/* Libraries, log, backend and device: what comes before the first context. */
#include "probe.h"

#include <dlfcn.h>
#include <string.h>

/* NO_DEVICES: QNN_DEVICE_ERROR_UNSUPPORTED_FEATURE, the same number as COMMON_ERROR_NOT_SUPPORTED. A
 * backend may give it (that of the CPU does), and then works without a device handle. */
enum { NO_DEVICES = 1000 };
enum { DEVICE_CONFIG_SOC = 0, DEVICE_CONFIG_ARCH = 1, PROVIDERS_LISTED = 8, CORE_MAJOR = 2 };

static void describe_version(struct json *json, const char *key,
                             const struct abi_version *version) {
    json_open(json, key, '[');
    json_u64(json, NULL, version->major);
    json_u64(json, NULL, version->minor);
    json_u64(json, NULL, version->patch);
    json_close(json, ']');
}

void *library_open(const struct step *step, const char *symbol, struct outcome *outcome) {
    const char *path = step_text(step, "lib");
    uint64_t started = now_us();
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    outcome->duration_us = now_us() - started;
    if (library == NULL) {
        const char *why = dlerror();
        fail(outcome, "dlopen", "%s", why != NULL ? why : "dlopen failed without a reason");
        return NULL;
    }
    void *function = dlsym(library, symbol);
    if (function == NULL) fail(outcome, "symbol", "%s has no %s", path, symbol);
    event_call(symbol);
    return function;
}

/* The interfaces that a library of QNN's offers; false and a failed outcome if it gives none. */
static bool list_providers(const struct step *step, const char *symbol, const void *const **list,
                           uint32_t *count, struct outcome *outcome) {
    abi_providers *providers;
    *(void **)&providers = library_open(step, symbol, outcome);
    if (providers == NULL) return false;
    uint64_t started = now_us();
    abi_error code = providers(list, count);
    outcome->duration_us += now_us() - started;
    answer(outcome, code);
    return code == 0;
}

void backend_load(const struct step *step, struct outcome *outcome) {
    if (!require(qnn.api == NULL, outcome, "a backend is loaded already")) return;
    const void *const *list = NULL;
    uint32_t count = 0;
    if (!list_providers(step, "QnnInterface_getProviders", &list, &count, outcome)) return;
    const struct abi_backend_provider *chosen = NULL;
    struct json *data = &outcome->data;
    json_open(data, "providers", '[');
    for (uint32_t i = 0; i < count && i < PROVIDERS_LISTED; i++) {
        const struct abi_backend_provider *one = list[i];
        json_open(data, NULL, '{');
        json_text(data, "name", one->name);
        json_u64(data, "backend_id", one->backend_id);
        describe_version(data, "core_api", &one->core);
        describe_version(data, "backend_api", &one->backend);
        json_close(data, '}');
        if (chosen == NULL && one->core.major == CORE_MAJOR) chosen = one;
    }
    json_close(data, ']');
    if (chosen == NULL) {
        fail(outcome, "symbol", "none of %u providers has core API %d", count, CORE_MAJOR);
        return;
    }
    json_text(data, "provider", chosen->name);
    qnn.api = &chosen->api;
    qnn.core_version = chosen->core;
    qnn.backend_version = chosen->backend;
    const char *build = NULL;
    if (qnn.api->backend_build_id != NULL && qnn.api->backend_build_id(&build) == 0)
        json_text(data, "build_id", build);
}

void system_load(const struct step *step, struct outcome *outcome) {
    if (!require(qnn.system == NULL, outcome, "a system library is loaded already")) return;
    const void *const *list = NULL;
    uint32_t count = 0;
    if (!list_providers(step, "QnnSystemInterface_getProviders", &list, &count, outcome)) return;
    if (count == 0) {
        fail(outcome, "symbol", "no provider");
        return;
    }
    const struct abi_system_provider *first = list[0];
    qnn.system = &first->api;
    json_text(&outcome->data, "provider", first->name);
    describe_version(&outcome->data, "system_api", &first->version);
}

static bool backend_loaded(struct outcome *outcome) {
    return require(qnn.api != NULL, outcome, "no backend library is loaded");
}

void log_create(const struct step *step, struct outcome *outcome) {
    (void)step;
    if (!backend_loaded(outcome) ||
        !require(qnn.log == NULL, outcome, "there is a log already") ||
        !offered(qnn.api->log_create != NULL, outcome, "logCreate"))
        return;
    if (qnn.log_level == 0) {
        outcome->skipped = "log_level=off";
        return;
    }
    uint64_t started = now_us();
    abi_error code = qnn.api->log_create(log_line, qnn.log_level, &qnn.log);
    answer_since(started, outcome, code);
    if (code != 0) qnn.log = NULL;
}

void backend_create(const struct step *step, struct outcome *outcome) {
    (void)step;
    if (!backend_loaded(outcome) ||
        !require(qnn.backend == NULL, outcome, "there is a backend already") ||
        !offered(qnn.api->backend_create != NULL, outcome, "backendCreate"))
        return;
    uint64_t started = now_us();
    abi_error code = qnn.api->backend_create(qnn.log, NULL, &qnn.backend);
    answer_since(started, outcome, code);
    if (code != 0) qnn.backend = NULL;
}

/* The HTP backend's device option and what follows it. The union behind the option word starts at
 * byte 8, in HTP API 5.49 (QNN 2.49.40) at byte 4; measured on 5.47 to 5.51. A SoC is one word and
 * goes to both places. An arch follows a device id, so that one layout has to be chosen. */
struct htp_device_option {
    uint32_t words[6];
};

static struct htp_device_option soc_option(uint32_t soc) {
    return (struct htp_device_option){{DEVICE_CONFIG_SOC, soc, soc}};
}

static struct htp_device_option arch_option(uint32_t arch) {
    bool early = qnn.backend_version.major == 5 && qnn.backend_version.minor == 49;
    if (early) return (struct htp_device_option){{DEVICE_CONFIG_ARCH, 0, arch}};
    return (struct htp_device_option){{DEVICE_CONFIG_ARCH, 0, 0, arch}};
}

void device_create(const struct step *step, struct outcome *outcome) {
    if (!backend_loaded(outcome) ||
        !require(qnn.device == NULL, outcome, "there is a device already") ||
        !offered(qnn.api->device_create != NULL, outcome, "deviceCreate"))
        return;
    struct htp_device_option options[2];
    struct abi_device_config entries[2];
    const void *list[3] = {NULL};
    uint32_t count = 0;
    if (step_text(step, "soc") != NULL)
        options[count++] = soc_option((uint32_t)step_number(step, "soc", 0));
    if (step_text(step, "arch") != NULL)
        options[count++] = arch_option((uint32_t)step_number(step, "arch", 0));
    for (uint32_t i = 0; i < count; i++) {
        entries[i] = (struct abi_device_config){.option = 0, .custom = &options[i]};
        list[i] = &entries[i];
    }
    uint64_t started = now_us();
    abi_error code = qnn.api->device_create(qnn.log, count > 0 ? list : NULL, &qnn.device);
    outcome->duration_us = now_us() - started;
    if (code != 0) qnn.device = NULL;
    if (code == NO_DEVICES && count == 0)
        outcome->skipped = "this backend has no devices (1000)";
    else
        answer(outcome, code);
    if (code == 0) power_vote(qnn.power, &outcome->data);
}

/* Frees `*handle` through `function`, if there is anything to free. */
static void free_handle(abi_handle *handle, abi_error (*function)(abi_handle),
                        struct outcome *outcome) {
    if (!to_free(*handle != NULL, outcome) ||
        !offered(function != NULL, outcome, "such function"))
        return;
    uint64_t started = now_us();
    abi_error code = function(*handle);
    answer_since(started, outcome, code);
    *handle = NULL; /* after an error, too: nobody may use it again */
}

void device_free(const struct step *step, struct outcome *outcome) {
    (void)step;
    power_release(&outcome->data);
    free_handle(&qnn.device, qnn.device != NULL ? qnn.api->device_free : NULL, outcome);
}

void backend_free(const struct step *step, struct outcome *outcome) {
    (void)step;
    free_handle(&qnn.backend, qnn.backend != NULL ? qnn.api->backend_free : NULL, outcome);
}

void log_free(const struct step *step, struct outcome *outcome) {
    (void)step;
    free_handle(&qnn.log, qnn.log != NULL ? qnn.api->log_free : NULL, outcome);
}
