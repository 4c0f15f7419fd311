/* Reads and checks a whole plan before anything of it is carried out. */
#include "probe.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT IS_TEXT, 0, 0, NULL
#define REAL IS_REAL, 0, 0, NULL
#define NUMBER IS_NUMBER, 0, UINT64_MAX, NULL
#define BELOW(count) IS_NUMBER, 0, (count) - 1, NULL
#define ONE_TO(most) IS_NUMBER, 1, most, NULL
#define ONE_OF(words) IS_WORD, 0, 0, words
#define MUST(key, kind) {key, true, kind},
#define MAY(key, kind) {key, false, kind},
#define LIST(key, count) {key, false, IS_TEXT, 0, (count) - 1, NULL},
#define NUMBERS(key, count) {key, false, IS_NUMBER, 0, (count) - 1, NULL},
#define NO_FIELDS
static const struct verb verbs[] = {
#define VERB(name, function, api, memory, fields) {name, function, api, memory, {fields {0}}},
#define LINE(name, fields) {name, NULL, NULL, false, {fields {0}}},
#include "verbs.h"
};

enum { HEADER_MAX = 64 };
static char plan_text[HEADER_MAX + PLAN_BYTES_MAX + 1];
static struct field *fields;
static size_t field_total;

__attribute__((format(printf, 3, 4))) static bool refuse(struct plan *plan, uint32_t line,
                                                         const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(plan->problem, sizeof plan->problem, format, args);
    va_end(args);
    plan->bad_line = line;
    return false;
}

static bool to_number(const char *text, uint64_t *number) {
    if (!isdigit((unsigned char)text[0]) || strlen(text) > 19) return false;
    char *end;
    *number = strtoull(text, &end, 10);
    return *end == '\0';
}

static bool to_real(const char *text, double *real) {
    char *end;
    if (!isdigit((unsigned char)text[0])) return false; /* no sign, no nan, no inf */
    *real = strtod(text, &end);
    return *end == '\0' && *real < 1e300;
}

/* Undoes percent-encoding in place. */
static bool decode(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        if (!isxdigit((unsigned char)from[1]) || !isxdigit((unsigned char)from[2])) return false;
        char digits[3] = {from[1], from[2], 0};
        *to = (char)strtoul(digits, NULL, 16);
        if (*to++ == '\0') return false;
        from += 2;
    }
    *to = '\0';
    return true;
}

/* The number of `text` among the words. */
static bool to_word(const char *text, const char *words, uint64_t *number) {
    size_t length = strlen(text);
    for (*number = 0; words != NULL; ++*number) {
        const char *end = strchr(words, ' ');
        size_t here = end != NULL ? (size_t)(end - words) : strlen(words);
        if (here == length && memcmp(words, text, length) == 0) return true;
        words = end != NULL ? end + 1 : NULL;
    }
    return false;
}

static const struct rule *find_rule(const struct verb *verb, const char *key) {
    for (const struct rule *rule = verb->rules; rule->key != NULL; rule++) {
        size_t length = strlen(rule->key);
        bool numbered = rule->key[length - 1] == '.';
        if (strncmp(rule->key, key, length + !numbered) != 0) continue;
        const char *digits = key + length;
        uint64_t number;
        if (!numbered || (to_number(digits, &number) && number <= rule->most &&
                          (digits[0] != '0' || digits[1] == '\0')))
            return rule;
    }
    return NULL;
}

/* Reads what the field's text says; false and a problem if its rule does not allow it. */
static bool parse_value(struct plan *plan, uint32_t line, const struct rule *rule,
                        struct field *field) {
    const char *key = field->key, *value = field->value;
    if (rule->kind == IS_WORD && !to_word(value, rule->words, &field->number))
        return refuse(plan, line, "'%.80s' is none of %s: '%.80s'", key, rule->words, value);
    if ((rule->kind == IS_NUMBER && !to_number(value, &field->number)) ||
        (rule->kind == IS_REAL && !to_real(value, &field->real)))
        return refuse(plan, line, "'%.80s' is not a number: '%.80s'", key, value);
    bool numbered = rule->key[strlen(rule->key) - 1] == '.'; /* then the bounds are its number's */
    if (rule->kind == IS_NUMBER && !numbered &&
        (field->number < rule->least || field->number > rule->most))
        return refuse(plan, line, "'%.80s' must be %" PRIu64 " to %" PRIu64 ": '%.80s'", key,
                      rule->least, rule->most, value);
    return true;
}

/* Splits `rest` into fields of `verb` that follow all others; false and a problem if it cannot. */
static bool parse_fields(struct plan *plan, uint32_t line, const struct verb *verb, char *rest,
                         struct step *step) {
    step->fields = fields + field_total;
    step->field_count = 0;
    while (rest != NULL) {
        char *next = strchr(rest, ' ');
        if (next != NULL) *next++ = '\0';
        char *value = strchr(rest, '=');
        if (value == NULL) return refuse(plan, line, "not key=value: '%.80s'", rest);
        *value++ = '\0';
        const struct rule *rule = find_rule(verb, rest);
        if (rule == NULL) return refuse(plan, line, "%s has no field '%.80s'", verb->name, rest);
        if (step_text(step, rest) != NULL) return refuse(plan, line, "'%.80s' given twice", rest);
        if (!decode(value) || *value == '\0')
            return refuse(plan, line, "bad value of '%.80s'", rest);
        struct field field = {.key = rest, .value = value};
        if (!parse_value(plan, line, rule, &field)) return false;
        if (step->field_count == STEP_FIELDS_MAX) return refuse(plan, line, "too many fields");
        fields[field_total++] = field;
        step->field_count++;
        rest = next;
    }
    for (const struct rule *rule = verb->rules; rule->key != NULL; rule++)
        if (rule->required && step_text(step, rule->key) == NULL)
            return refuse(plan, line, "%s needs '%s'", verb->name, rule->key);
    return true;
}

static bool parse_settings(struct plan *plan, uint32_t line, const struct verb *verb, char *rest) {
    struct step step = {0};
    if (plan->step_count > 0) return refuse(plan, line, "set comes before the first step");
    if (plan->has_settings) return refuse(plan, line, "set is given twice");
    plan->has_settings = true;
    if (!parse_fields(plan, line, verb, rest, &step)) return false;
    plan->deadline_ms = step_number(&step, "deadline_ms", plan->deadline_ms);
    plan->linger_ms = step_number(&step, "linger_ms", plan->linger_ms);
    plan->max_log_bytes = step_number(&step, "max_log_bytes", plan->max_log_bytes);
    plan->log_level = (uint32_t)step_number(&step, "log_level", plan->log_level);
    plan->power = (uint32_t)step_number(&step, "power", plan->power);
    plan->memory = (enum memory_detail)step_number(&step, "memory", plan->memory);
    return true;
}

static bool parse_line(struct plan *plan, uint32_t line, char *text) {
    char *rest = strchr(text, ' ');
    if (rest != NULL) *rest++ = '\0';
    const struct verb *verb = verbs, *end = verbs + sizeof verbs / sizeof *verbs;
    while (verb < end && strcmp(verb->name, text) != 0) verb++;
    if (verb == end) return refuse(plan, line, "no verb '%.80s'", text);
    if (strcmp(text, "set") == 0) return parse_settings(plan, line, verb, rest);
    if (plan->step_count == PLAN_STEPS_MAX) return refuse(plan, line, "too many steps");
    struct step *step = &plan->steps[plan->step_count];
    *step = (struct step){.verb = verb};
    if (!parse_fields(plan, line, verb, rest, step)) return false;
    plan->step_count++;
    return true;
}

/* What the first line says of the rest: exactly as the harness writes it, or false. */
static bool parse_header(const char *text, uint64_t *bytes, uint32_t *crc) {
    char again[HEADER_MAX];
    if (sscanf(text, "probe-plan 2 bytes=%20" SCNu64 " crc32=%8" SCNx32, bytes, crc) != 2)
        return false;
    snprintf(again, sizeof again, "probe-plan 2 bytes=%" PRIu64 " crc32=%08" PRIx32, *bytes, *crc);
    return strcmp(text, again) == 0;
}

/* Reads the plan to its end, as its first line says, and no further: not every shell can send EOF.
 * The text behind that line; NULL if it is not what was sent, which is no fault of the plan. */
static char *receive(int fd, struct plan *plan) {
    size_t length = 0, wanted = sizeof plan_text - 1;
    char *body = NULL;
    while (body == NULL || length < wanted) {
        ssize_t got = read(fd, plan_text + length, wanted - length);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) refuse(plan, 0, "cannot read stdin: %s", strerror(errno));
        if (got == 0) refuse(plan, 0, "stdin ended after %zu bytes, before the plan did", length);
        if (got <= 0) return NULL;
        length += (size_t)got;
        char *newline = body == NULL ? memchr(plan_text, '\n', length) : NULL;
        if (newline != NULL) {
            uint64_t bytes;
            *newline = '\0';
            body = newline + 1;
            bool known = parse_header(plan_text, &bytes, &plan->crc);
            if (!known || bytes > PLAN_BYTES_MAX) {
                refuse(plan, 1, "not the first line of a plan: '%.80s'", plan_text);
                return NULL;
            }
            wanted = (size_t)(body - plan_text) + bytes;
        } else if (body == NULL && length >= HEADER_MAX) {
            refuse(plan, 1, "not a plan: its first line does not end");
            return NULL;
        }
    }
    plan->body_bytes = wanted - (size_t)(body - plan_text);
    if (length > wanted || checksum(0, body, plan->body_bytes) != plan->crc) {
        refuse(plan, 0, "%zu bytes came, and are not what their first line says", length);
        return NULL;
    }
    plan->damaged = false;
    return body;
}

bool plan_read(int fd, struct plan *plan) {
    *plan = (struct plan){
        .deadline_ms = 600000, .max_log_bytes = 1 << 20, .log_level = 2, .memory = MEMORY_PSS,
        .damaged = true};
    plan->steps = calloc(PLAN_STEPS_MAX, sizeof *plan->steps);
    fields = calloc(PLAN_BYTES_MAX / 4 + STEP_FIELDS_MAX, sizeof *fields); /* "k=v " is shortest */
    if (plan->steps == NULL || fields == NULL) return refuse(plan, 0, "out of memory");
    char *text = receive(fd, plan);
    if (text == NULL) return false;
    char *end = text + plan->body_bytes;
    for (uint32_t line = 2; text < end; line++) {
        char *newline = memchr(text, '\n', (size_t)(end - text));
        if (newline == NULL) return refuse(plan, line, "a line without an end");
        if (newline - text >= PLAN_LINE_MAX) return refuse(plan, line, "line too long");
        *newline = '\0';
        if (strlen(text) != (size_t)(newline - text)) return refuse(plan, line, "a NUL byte");
        if (!parse_line(plan, line, text)) return false;
        text = newline + 1;
    }
    return true;
}

static const struct field *find_field(const struct step *step, const char *key) {
    for (uint32_t i = 0; i < step->field_count; i++)
        if (strcmp(step->fields[i].key, key) == 0) return &step->fields[i];
    return NULL;
}

const char *step_text(const struct step *step, const char *key) {
    const struct field *field = find_field(step, key);
    return field != NULL ? field->value : NULL;
}

const char *step_numbered(const struct step *step, const char *prefix, uint32_t number) {
    char key[32];
    snprintf(key, sizeof key, "%s%u", prefix, number);
    return step_text(step, key);
}

uint64_t step_number(const struct step *step, const char *key, uint64_t otherwise) {
    const struct field *field = find_field(step, key);
    return field != NULL ? field->number : otherwise;
}

double step_real(const struct step *step, const char *key, double otherwise) {
    const struct field *field = find_field(step, key);
    return field != NULL ? field->real : otherwise;
}
