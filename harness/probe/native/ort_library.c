/* ONNX Runtime itself: its library, its environment with the log, plug-in libraries of EPs. */
#include "ort.h"

#include <stdio.h>
#include <string.h>

enum { STATUS_TEXT_MAX = 16384, DEVICES_LISTED = 16, PROVIDERS_LISTED = 32 };

struct ort_state ort;

static void say(uint32_t level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    log_line(format, level, 0, args);
    va_end(args);
}

/* ORT's severities, 0 to 4: verbose, info, warning, error, fatal. The QNN EP passes on what the
 * backend logs, errors too, as verbose lines that begin with QNN's own mark: "<E> ...". Those of
 * the GPU backend have no mark. */
static uint32_t level_of(int severity, const char *place, const char *message) {
    static const uint32_t levels[] = {ABI_LOG_VERBOSE, ABI_LOG_INFO, ABI_LOG_WARN};
    static const char marks[] = "EWIVD"; /* in the order of the levels, which begin at 1 */
    static const char *const errors[] = {"GPU ERROR:", "QNN ERROR:", "Cannot "};
    message += strspn(message, " \t");
    /* Why the QNN EP refuses a node, which it says in verbose lines only. */
    if (strncmp(message, "Validation FAILED", 17) == 0) return ABI_LOG_WARN;
    if (message[0] == '<' && message[1] != '\0' && message[2] == '>') {
        const char *mark = strchr(marks, message[1]);
        if (mark != NULL) return (uint32_t)(mark - marks) + ABI_LOG_ERROR;
    }
    if (place != NULL && strstr(place, "QnnLogging") != NULL)
        for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
            if (strncmp(message, errors[i], strlen(errors[i])) == 0) return ABI_LOG_ERROR;
    return severity >= 0 && severity < 3 ? levels[severity] : ABI_LOG_ERROR;
}

static void take_log(void *param, int severity, const char *category, const char *id,
                     const char *place, const char *message) {
    (void)param, (void)category, (void)id;
    const char *said = message != NULL ? message : "";
    uint32_t level = level_of(severity, place, said);
    if (level > qnn.log_level) return;
    int length = (int)strnlen(said, LOG_LINE_MAX);
    while (length > 0 && strchr("\r\n", said[length - 1]) != NULL) length--;
    if (place != NULL && place[0] != '\0')
        say(level, "%.*s [%s]", length, said, place);
    else
        say(level, "%.*s", length, said);
}

static int severity_of(uint32_t log_level) {
    static const int severities[] = {4, 3, 2, 1, 0, 0};
    return severities[log_level < 6 ? log_level : 5];
}

static const char *code_name(int code) {
    static const char *const names[] = {
        "ORT_OK",           "ORT_FAIL",           "ORT_INVALID_ARGUMENT",
        "ORT_NO_SUCHFILE",  "ORT_NO_MODEL",       "ORT_ENGINE_ERROR",
        "ORT_RUNTIME_EXCEPTION", "ORT_INVALID_PROTOBUF", "ORT_MODEL_LOADED",
        "ORT_NOT_IMPLEMENTED", "ORT_INVALID_GRAPH", "ORT_EP_FAIL",
        "ORT_MODEL_LOAD_CANCELED", "ORT_MODEL_REQUIRES_COMPILATION", "ORT_NOT_FOUND",
    };
    return code >= 0 && code < (int)(sizeof names / sizeof *names) ? names[code] : "";
}

bool ort_fine(ort_status status, struct outcome *outcome) {
    outcome->called = true;
    if (status == NULL) return true;
    int code = ort.api->error_code(status);
    outcome->code = code > 0 && code <= 0xffff ? (abi_error)code : 0xffff;
    event_answer(outcome->code);
    const char *text = ort.api->error_message(status);
    snprintf(outcome->symbol, sizeof outcome->symbol, "%s", code_name(code));
    snprintf(outcome->message, sizeof outcome->message, "%s", text != NULL ? text : "");
    /* What matters may be at the end of it. */
    if (text != NULL && strlen(text) >= sizeof outcome->message)
        json_bytes(&outcome->data, "status_text", text, strnlen(text, STATUS_TEXT_MAX));
    ort.api->release_status(status);
    return false;
}

bool ort_has_env(struct outcome *outcome) {
    return require(ort.env != NULL, outcome, "there is no ORT environment");
}

struct api_base {
    const union ort_api *(*get)(uint32_t version);
    const char *(*version)(void);
};

void ort_load(const struct step *step, struct outcome *outcome) {
    const struct api_base *(*base_of)(void);
    if (!require(ort.api == NULL, outcome, "an ORT library is loaded already")) return;
    *(void **)&base_of = library_open(step, "OrtGetApiBase", outcome);
    if (base_of == NULL) return;
    uint64_t started = now_us();
    const struct api_base *base = base_of();
    if (base == NULL) {
        fail(outcome, "symbol", "OrtGetApiBase gave nothing");
        return;
    }
    json_text(&outcome->data, "version", base->version());
    event_call("GetApi");
    uint32_t version = ORT_API_NEWEST;
    while (version >= ORT_API_OLDEST && (ort.api = base->get(version)) == NULL) version--;
    outcome->duration_us += now_us() - started;
    if (ort.api == NULL) {
        fail(outcome, "symbol", "it has none of the API versions %d to %d", ORT_API_OLDEST,
             ORT_API_NEWEST);
        return;
    }
    ort.api_version = version;
    json_u64(&outcome->data, "api_version", version);
    outcome->called = true;
}

void ort_env(const struct step *step, struct outcome *outcome) {
    if (!require(ort.api != NULL, outcome, "no ORT library is loaded") ||
        !require(ort.env == NULL, outcome, "there is an ORT environment already"))
        return;
    uint64_t started = now_us();
    /* A lower one than the plan's level: whatever is below that is dropped here, see level_of. */
    int severity = (int)step_number(step, "severity", (uint64_t)severity_of(qnn.log_level));
    ort_status status = ort.api->create_env(take_log, NULL, severity, "probe", &ort.env);
    outcome->duration_us = now_us() - started;
    if (!ort_fine(status, outcome)) {
        ort.env = NULL;
        return;
    }
    char **names = NULL;
    int count = 0;
    event_call("GetAvailableProviders");
    if (!ort_fine(ort.api->providers(&names, &count), outcome)) return;
    json_open(&outcome->data, "providers", '[');
    for (int i = 0; i < count && i < PROVIDERS_LISTED; i++)
        json_text(&outcome->data, NULL, names[i]);
    json_close(&outcome->data, ']');
    ort_fine(ort.api->release_providers(names, count), outcome);
}

static bool takes_plugins(struct outcome *outcome) {
    if (ort.api_version >= ORT_API_PLUGIN) return true;
    return fail(outcome, "unsupported",
                "this ORT has API %u and takes no plug-in libraries (API %d)", ort.api_version,
                ORT_API_PLUGIN);
}

ort_handle const *ort_devices(size_t *count, struct outcome *outcome) {
    ort_handle const *devices = NULL;
    *count = 0;
    if (!takes_plugins(outcome)) return NULL;
    event_call("GetEpDevices");
    if (!ort_fine(ort.api->ep_devices(ort.env, &devices, count), outcome)) return NULL;
    return devices;
}

void ort_register_ep(const struct step *step, struct outcome *outcome) {
    static const char *const kinds[] = {"cpu", "gpu", "npu"};
    const char *name = step_text(step, "name");
    if (!ort_has_env(outcome) || !takes_plugins(outcome)) return;
    uint64_t started = now_us();
    ort_status status = ort.api->register_library(ort.env, name, step_text(step, "lib"));
    outcome->duration_us = now_us() - started;
    if (!ort_fine(status, outcome)) return;
    ort.registered++;
    size_t count, own = 0;
    ort_handle const *devices = ort_devices(&count, outcome);
    if (devices == NULL) return;
    struct json *data = &outcome->data;
    json_open(data, "devices", '[');
    for (size_t i = 0; i < count; i++) {
        const char *ep = ort.api->ep_name(devices[i]);
        own += ep != NULL && strcmp(ep, name) == 0;
        if (i >= DEVICES_LISTED) continue;
        int kind = ort.api->hardware_type(ort.api->ep_hardware(devices[i]));
        json_open(data, NULL, '{');
        json_text(data, "ep", ep);
        json_text(data, "vendor", ort.api->ep_vendor(devices[i]));
        json_text(data, "hardware", kind >= 0 && kind < 3 ? kinds[kind] : "other");
        json_close(data, '}');
    }
    json_close(data, ']');
    if (own == 0)
        fail(outcome, "no-device", "the plug-in is registered and offers no device of %s", name);
}

void ort_unregister_ep(const struct step *step, struct outcome *outcome) {
    if (!to_free(ort.env != NULL && ort.registered > 0, outcome)) return;
    uint64_t started = now_us();
    ort_status status = ort.api->unregister_library(ort.env, step_text(step, "name"));
    outcome->duration_us = now_us() - started;
    ort.registered--;
    ort_fine(status, outcome);
}

void ort_env_free(const struct step *step, struct outcome *outcome) {
    (void)step;
    if (!to_free(ort.env != NULL, outcome)) return;
    uint64_t started = now_us();
    ort.api->release_env(ort.env);
    outcome->duration_us = now_us() - started;
    outcome->called = true;
    ort.env = NULL;
}
