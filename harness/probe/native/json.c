/* JSON text from arbitrary bytes: always valid UTF-8, always one line. */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void json_reset(struct json *json, char *text, size_t capacity) {
    json->text = text;
    json->capacity = capacity;
    json->length = 0;
    json->overflow = false;
}

void json_raw(struct json *json, const char *text, size_t length) {
    if (json->overflow || length > json->capacity - json->length) {
        json->overflow = true;
        return;
    }
    memcpy(json->text + json->length, text, length);
    json->length += length;
}

static void put(struct json *json, const char *text) { json_raw(json, text, strlen(text)); }

/* Length of the valid UTF-8 sequence at `at`, 0 if there is none (overlong forms, surrogates and
 * values above U+10FFFF are not valid). */
static size_t utf8_length(const unsigned char *at, size_t left) {
    if (at[0] < 0x80) return 1;
    size_t length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4 || length > left) return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    if (at[0] == 0xe0 && at[1] < 0xa0) return 0;
    if (at[0] == 0xed && at[1] > 0x9f) return 0;
    if (at[0] == 0xf0 && at[1] < 0x90) return 0;
    if (at[0] == 0xf4 && at[1] > 0x8f) return 0;
    return length;
}

static void put_string(struct json *json, const char *bytes, size_t length) {
    const unsigned char *text = (const unsigned char *)bytes;
    put(json, "\"");
    for (size_t i = 0; i < length;) {
        size_t step = utf8_length(text + i, length - i);
        if (step == 0) {
            put(json, "\\ufffd");
            i++;
        } else if (step > 1) {
            json_raw(json, bytes + i, step);
            i += step;
        } else {
            char escaped[8] = {0};
            if (text[i] == '"' || text[i] == '\\')
                snprintf(escaped, sizeof escaped, "\\%c", text[i]);
            else if (text[i] < 0x20 || text[i] == 0x7f)
                snprintf(escaped, sizeof escaped, "\\u%04x", text[i]);
            else
                escaped[0] = (char)text[i];
            put(json, escaped);
            i++;
        }
    }
    put(json, "\"");
}

static void put_key(struct json *json, const char *key) {
    char last = json->length ? json->text[json->length - 1] : '{';
    if (last != '{' && last != '[') put(json, ",");
    if (key == NULL) return;
    put_string(json, key, strlen(key));
    put(json, ":");
}

void json_open(struct json *json, const char *key, char bracket) {
    if (json->length) put_key(json, key);
    json_raw(json, &bracket, 1);
}

void json_close(struct json *json, char bracket) { json_raw(json, &bracket, 1); }

void json_bytes(struct json *json, const char *key, const char *bytes, size_t length) {
    put_key(json, key);
    put_string(json, bytes, length);
}

void json_text(struct json *json, const char *key, const char *text) {
    if (text == NULL)
        json_null(json, key);
    else
        json_bytes(json, key, text, strlen(text));
}

static void put_value(struct json *json, const char *key, const char *value) {
    put_key(json, key);
    put(json, value);
}

void json_u64(struct json *json, const char *key, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    put_value(json, key, text);
}

void json_i64(struct json *json, const char *key, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    put_value(json, key, text);
}

void json_real(struct json *json, const char *key, double value) {
    if (!isfinite(value)) {
        json_null(json, key);
        return;
    }
    char text[40];
    snprintf(text, sizeof text, "%.9g", value);
    /* A library may have set a locale with another decimal mark. */
    for (char *at = text; *at; at++)
        if (*at == ',') *at = '.';
    put_value(json, key, text);
}

void json_bool(struct json *json, const char *key, bool value) {
    put_value(json, key, value ? "true" : "false");
}

void json_null(struct json *json, const char *key) { put_value(json, key, "null"); }
