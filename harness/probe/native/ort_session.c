/* Sessions: created from a model file with the case's options, and released. */
#include "ort.h"

#include <stdlib.h>
#include <string.h>

/* Pages that belong to no file: what a leak is made of, while the pages of a library that are there
 * come and go with what is called. Unknown to kernels before 4.5. */
static void report_anonymous(struct json *data, const char *key) {
    uint64_t bytes;
    if (proc_bytes("/proc/self/status", "\nRssAnon:", &bytes)) json_u64(data, key, bytes);
}

struct pairs { /* options as ORT takes them: `prefix.N=key=value` of a step */
    char *text[STEP_FIELDS_MAX];
    const char *keys[STEP_FIELDS_MAX], *values[STEP_FIELDS_MAX];
    size_t count;
};

static void pairs_free(struct pairs *pairs) {
    for (size_t i = 0; i < pairs->count; i++) free(pairs->text[i]);
}

static bool pairs_read(struct pairs *pairs, const struct step *step, const char *prefix,
                       struct outcome *outcome) {
    *pairs = (struct pairs){0};
    for (uint32_t i = 0; i < STEP_FIELDS_MAX; i++) {
        const char *field = step_numbered(step, prefix, i);
        if (field == NULL) return true;
        char *text = strdup(field), *value = text != NULL ? strchr(text, '=') : NULL;
        if (value == NULL) {
            fail(outcome, "plan", "%s%u is not key=value", prefix, i);
            free(text);
            return false;
        }
        *value++ = '\0';
        pairs->text[i] = text;
        pairs->keys[i] = text;
        pairs->values[i] = value;
        pairs->count = i + 1;
    }
    return true;
}

static uint32_t data_type_of(int ort_type) {
    static const uint32_t codes[] = {0,      0x0232, 0x0108, 0x0008, 0x0116, 0x0016, 0x0032,
                                     0x0064, 0,      0x0508, 0x0216, 0x0264, 0x0132, 0x0164};
    size_t known = sizeof codes / sizeof *codes;
    return ort_type >= 0 && (size_t)ort_type < known ? codes[ort_type] : 0;
}

/* One input or output of a session; a tensor whose shape is not fixed stays without a data type. */
static bool describe(ort_handle session, size_t index, bool input, struct ort_tensor *into,
                     struct outcome *outcome) {
    ort_handle allocator, type = NULL, info = NULL;
    const union ort_api *api = ort.api;
    char *name = NULL;
    size_t rank = 0;
    if (!ort_fine(api->default_allocator(&allocator), outcome)) return false;
    if (!ort_fine((input ? api->input_name : api->output_name)(session, index, allocator, &name),
                  outcome))
        return false;
    into->name = strdup(name);
    if (!ort_fine(api->allocator_free(allocator, name), outcome)) return false;
    if (into->name == NULL) return fail(outcome, "memory", "out of memory");
    if (!ort_fine((input ? api->input_type : api->output_type)(session, index, &type), outcome))
        return false;
    bool fine = ort_fine(api->tensor_info(type, &info), outcome);
    if (fine && info != NULL) {
        fine = ort_fine(api->element_type(info, &into->type), outcome) &&
               ort_fine(api->rank(info, &rank), outcome);
        bool fixed = fine && rank <= RANK_MAX;
        if (fixed) fine = ort_fine(api->dimensions(info, into->shape, rank), outcome);
        for (size_t i = 0; fine && fixed && i < rank; i++) {
            fixed = into->shape[i] > 0 && into->shape[i] <= UINT32_MAX;
            into->dimensions[i] = fixed ? (uint32_t)into->shape[i] : 0;
        }
        into->tensor = (struct abi_tensor){.id = (uint32_t)index,
                                           .name = into->name,
                                           .data_type = fixed ? data_type_of(into->type) : 0,
                                           .rank = rank <= RANK_MAX ? (uint32_t)rank : 0,
                                           .dimensions = into->dimensions,
                                           .quantization = {.definition = ABI_UNDEFINED}};
    }
    api->release_type(type);
    return fine;
}

static bool describe_all(struct ort_session *session, bool input, struct outcome *outcome) {
    size_t count = 0;
    ort_status status = input ? ort.api->input_count(session->handle, &count)
                              : ort.api->output_count(session->handle, &count);
    if (!ort_fine(status, outcome)) return false;
    if (count > TENSORS_MAX)
        return fail(outcome, "unsupported", "%zu tensors, at most %d are possible", count,
                    TENSORS_MAX);
    struct ort_tensor *tensors = calloc(count + 1, sizeof *tensors);
    if (tensors == NULL) return fail(outcome, "memory", "out of memory");
    *(input ? &session->inputs : &session->outputs) = tensors;
    *(input ? &session->input_count : &session->output_count) = (uint32_t)count;
    struct json *data = &outcome->data;
    json_open(data, input ? "inputs" : "outputs", '[');
    bool fine = true;
    for (size_t i = 0; fine && i < count; i++) {
        fine = describe(session->handle, i, input, &tensors[i], outcome);
        if (fine) tensor_describe(data, &tensors[i].tensor, &tensors[i].tensor.quantization);
    }
    json_close(data, ']');
    return fine;
}

static void forget(struct ort_session *session) {
    for (uint32_t i = 0; i < session->input_count; i++) free(session->inputs[i].name);
    for (uint32_t i = 0; i < session->output_count; i++) free(session->outputs[i].name);
    free(session->inputs);
    free(session->outputs);
    *session = (struct ort_session){0};
}

/* `ep` of a step: an EP of a plug-in library by its name, or `builtin:NAME`. */
static bool append_ep(const struct step *step, const char *ep, const struct pairs *pairs,
                      ort_handle options, struct outcome *outcome) {
    static const char builtin[] = "builtin:";
    if (strncmp(ep, builtin, sizeof builtin - 1) == 0) {
        event_call("SessionOptionsAppendExecutionProvider");
        return ort_fine(ort.api->append_provider(options, ep + sizeof builtin - 1, pairs->keys,
                                                 pairs->values, pairs->count),
                        outcome);
    }
    uint64_t wanted = step_number(step, "device", 0), seen = 0;
    size_t count;
    ort_handle chosen = NULL;
    ort_handle const *devices = ort_devices(&count, outcome);
    if (devices == NULL) return false;
    for (size_t i = 0; i < count; i++) {
        const char *name = ort.api->ep_name(devices[i]);
        if (name != NULL && strcmp(name, ep) == 0 && seen++ == wanted) chosen = devices[i];
    }
    if (chosen == NULL)
        return fail(outcome, "no-device", "%s has no device of number %llu: it has %llu", ep,
                    (unsigned long long)wanted, (unsigned long long)seen);
    event_call("SessionOptionsAppendExecutionProvider_V2");
    return ort_fine(ort.api->append_devices(options, ort.env, &chosen, 1, pairs->keys,
                                            pairs->values, pairs->count),
                    outcome);
}

static bool set_options(const struct step *step, ort_handle options, struct outcome *outcome) {
    struct pairs pairs;
    uint64_t threads = step_number(step, "threads", 0);
    if (threads > 0) {
        event_call("SetIntraOpNumThreads");
        if (!ort_fine(ort.api->set_threads(options, (int)threads), outcome)) return false;
    }
    bool fine = pairs_read(&pairs, step, "session.", outcome);
    if (pairs.count > 0) event_call("AddSessionConfigEntry");
    for (size_t i = 0; fine && i < pairs.count; i++)
        fine = ort_fine(ort.api->set_option(options, pairs.keys[i], pairs.values[i]), outcome);
    pairs_free(&pairs);
    const char *ep = step_text(step, "ep"); /* none: the CPU */
    if (!fine) return false;
    fine = pairs_read(&pairs, step, "provider.", outcome) &&
           (ep == NULL || append_ep(step, ep, &pairs, options, outcome));
    pairs_free(&pairs);
    return fine;
}

void ort_session(const struct step *step, struct outcome *outcome) {
    struct ort_session *session = &ort.sessions[step_number(step, "context", 0)];
    ort_handle options = NULL;
    if (!ort_has_env(outcome) ||
        !require(session->handle == NULL, outcome, "this session exists already"))
        return;
    report_anonymous(&outcome->data, "anonymous_before_bytes");
    if (!ort_fine(ort.api->create_options(&options), outcome)) return;
    if (set_options(step, options, outcome)) {
        event_call("CreateSession");
        uint64_t started = now_us();
        ort_status status = ort.api->create_session(ort.env, step_text(step, "file"), options,
                                                    &session->handle);
        outcome->duration_us = now_us() - started;
        if (!ort_fine(status, outcome)) session->handle = NULL;
    }
    ort.api->release_options(options);
    if (session->handle == NULL) return;
    ort.alive++;
    event_call("SessionGetInputTypeInfo");
    if (describe_all(session, true, outcome)) describe_all(session, false, outcome);
}

struct ort_session *ort_session_of(const struct step *step, struct outcome *outcome) {
    struct ort_session *session = &ort.sessions[step_number(step, "context", 0)];
    return require(session->handle != NULL, outcome, "there is no such session") ? session : NULL;
}

void ort_session_free(const struct step *step, struct outcome *outcome) {
    struct ort_session *session = &ort.sessions[step_number(step, "context", 0)];
    if (!to_free(session->handle != NULL, outcome)) return;
    uint64_t started = now_us();
    ort.api->release_session(session->handle);
    outcome->duration_us = now_us() - started;
    outcome->called = true;
    forget(session);
    if (--ort.alive == 0) memory_trim();
    report_anonymous(&outcome->data, "anonymous_bytes");
}
