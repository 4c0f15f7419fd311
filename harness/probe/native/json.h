/* Writes JSON into a buffer of fixed size; what does not fit sets `overflow` and is left out. */
#ifndef PROBE_JSON_H
#define PROBE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
    char *text;
    size_t capacity, length;
    bool overflow;
};

void json_reset(struct json *json, char *text, size_t capacity);
void json_raw(struct json *json, const char *text, size_t length);
void json_open(struct json *json, const char *key, char bracket); /* key NULL: within an array */
void json_close(struct json *json, char bracket);
void json_text(struct json *json, const char *key, const char *text); /* NULL text: null */
void json_bytes(struct json *json, const char *key, const char *bytes, size_t length);
void json_u64(struct json *json, const char *key, uint64_t value);
void json_i64(struct json *json, const char *key, int64_t value);
void json_real(struct json *json, const char *key, double value); /* not finite: null */
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);

#endif
