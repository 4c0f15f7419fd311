/* Profiles: what the backend says of its own time and copies, when it loads and executes. */
#include "run.h"

#include <string.h>

/* What is beyond either is left out and counted: an event that is too long loses all its data. */
enum { EVENTS_MAX = 4096, DEPTH_MAX = 4 };
#define FULL(json) ((json)->length > (json)->capacity / 4 * 3)

abi_handle profile_open(const char *level, struct outcome *outcome) {
    abi_handle profile = NULL;
    if (level == NULL) return NULL;
    uint32_t wanted = strcmp(level, "detailed") == 0 ? ABI_PROFILE_DETAILED : ABI_PROFILE_BASIC;
    json_text(&outcome->data, "profile", level);
    /* Without a profile the execution still has something to say: no failure. */
    abi_error code = qnn.api->profile_create != NULL
                         ? qnn.api->profile_create(qnn.backend, wanted, &profile)
                         : 1000;
    if (code == 0) return profile;
    json_u64(&outcome->data, "profile_code", code & 0xffff);
    return NULL;
}

struct told {
    uint32_t events, cut;
};

static void describe(uint64_t event, uint32_t depth, struct told *told, struct json *json) {
    const struct abi_backend_api *api = qnn.api;
    struct abi_profile_event said = {0};
    if (told->events == EVENTS_MAX || FULL(json)) {
        told->cut++;
        return;
    }
    if (api->profile_data == NULL || api->profile_data(event, &said) != 0) return;
    told->events++;
    json_open(json, NULL, '{');
    json_u64(json, "type", said.type);
    json_u64(json, "unit", said.unit);
    json_u64(json, "value", said.value);
    if (said.name != NULL)
        json_bytes(json, "name", said.name, strnlen(said.name, NAME_BYTES_MAX));
    json_u64(json, "depth", depth);
    json_close(json, '}');
    const uint64_t *events = NULL;
    uint32_t inside = 0;
    if (depth >= DEPTH_MAX || api->profile_sub_events == NULL ||
        api->profile_sub_events(event, &events, &inside) != 0)
        return;
    for (uint32_t i = 0; i < inside; i++) describe(events[i], depth + 1, told, json);
}

void profile_close(abi_handle profile, struct outcome *outcome) {
    const struct abi_backend_api *api = qnn.api;
    const uint64_t *events = NULL;
    uint32_t count = 0;
    struct told told = {0};
    if (profile == NULL) return;
    json_open(&outcome->data, "profile_events", '[');
    if (api->profile_events != NULL && api->profile_events(profile, &events, &count) == 0)
        for (uint32_t i = 0; i < count; i++) describe(events[i], 0, &told, &outcome->data);
    json_close(&outcome->data, ']');
    if (told.cut > 0) json_u64(&outcome->data, "profile_cut", told.cut);
    if (api->profile_free != NULL) api->profile_free(profile);
}
