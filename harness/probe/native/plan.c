/* Reads and checks a whole plan before anything of it is carried out. */
#include "probe.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { TEXT, NUMBER, REAL };

struct rule {
    const char *key; /* one that ends in a dot is followed by a number: input.0 */
    enum kind kind;
    bool required;
};

struct verb_rule {
    const char *name;
    struct rule rules[12]; /* in the order of enum verb */
};

static const struct verb_rule verbs[] = {
    {"backend-load", {{"lib", TEXT, true}}},
    {"system-load", {{"lib", TEXT, true}}},
    {"log-create", {{0}}},
    {"backend-create", {{0}}},
    {"device-create", {{"soc", NUMBER, false}, {"arch", NUMBER, false}}},
    {"context-inspect",
     {{"context", NUMBER, false}, {"file", TEXT, true}, {"max_bytes", NUMBER, false}}},
    {"context-load",
     {{"context", NUMBER, true},
      {"file", TEXT, true},
      {"max_bytes", NUMBER, false},
      {"group", NUMBER, false},
      {"max_spill_fill", NUMBER, false}}},
    {"execute",
     {{"context", NUMBER, true},
      {"graph", NUMBER, true},
      {"input.", TEXT, false},
      {"expect.", TEXT, false},
      {"save.", TEXT, false},
      {"tolerance", REAL, false},
      {"repeat", NUMBER, false}}},
    {"context-free", {{"context", NUMBER, true}}},
    {"context-load-list",
     {{"first", NUMBER, true}, {"file.", TEXT, false}, {"share", NUMBER, false}}},
    {"io-bind",
     {{"context", NUMBER, true},
      {"graph", NUMBER, true},
      {"memory", TEXT, true},
      {"input.", TEXT, false},
      {"expect.", TEXT, false}}},
    {"io-run",
     {{"context", NUMBER, true},
      {"tolerance", REAL, false},
      {"repeat", NUMBER, false},
      {"profile", TEXT, false}}},
    {"io-release", {{"context", NUMBER, true}}},
    {"memory-sample", {{"label", TEXT, true}}},
    {"device-free", {{0}}},
    {"backend-free", {{0}}},
    {"log-free", {{0}}},
    {"ort-load", {{"lib", TEXT, true}}},
    {"ort-env", {{"severity", NUMBER, false}}},
    {"ort-register-ep", {{"name", TEXT, true}, {"lib", TEXT, true}}},
    {"ort-session",
     {{"context", NUMBER, true},
      {"file", TEXT, true},
      {"ep", TEXT, false},
      {"device", NUMBER, false},
      {"threads", NUMBER, false},
      {"session.", TEXT, false},
      {"provider.", TEXT, false}}},
    {"ort-placement", {{"context", NUMBER, true}, {"whole", TEXT, false}}},
    {"ort-run",
     {{"context", NUMBER, true},
      {"input.", TEXT, false},
      {"expect.", TEXT, false},
      {"save.", TEXT, false},
      {"tolerance", REAL, false},
      {"repeat", NUMBER, false}}},
    {"ort-session-free", {{"context", NUMBER, true}}},
    {"ort-unregister-ep", {{"name", TEXT, true}}},
    {"ort-env-free", {{0}}},
    {"cleanup", {{0}}},
    {"noop", {{0}}},
    {"sleep", {{"ms", NUMBER, true}}},
    {"crash", {{"signal", NUMBER, true}}},
    {"hang", {{0}}},
    {"spew", {{"bytes", NUMBER, true}, {"to", TEXT, false}}},
    {"exit", {{"code", NUMBER, true}}},
};

static const struct verb_rule settings = {
    "set",
    {{"deadline_ms", NUMBER, false},
     {"linger_ms", NUMBER, false},
     {"log_level", TEXT, false},
     {"max_log_bytes", NUMBER, false},
     {"memory", TEXT, false}},
};

static char plan_text[PLAN_BYTES_MAX];
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

static const struct rule *find_rule(const struct verb_rule *verb, const char *key) {
    for (const struct rule *rule = verb->rules; rule->key != NULL; rule++) {
        size_t length = strlen(rule->key);
        if (rule->key[length - 1] != '.') {
            if (strcmp(rule->key, key) == 0) return rule;
            continue;
        }
        uint64_t number;
        if (strncmp(rule->key, key, length) != 0) continue;
        const char *digits = key + length;
        if (to_number(digits, &number) && number < TENSORS_MAX &&
            (digits[0] != '0' || digits[1] == '\0'))
            return rule;
    }
    return NULL;
}

/* Splits `rest` into fields of `verb` that follow all others; false and a problem if it cannot. */
static bool parse_fields(struct plan *plan, uint32_t line, const struct verb_rule *verb, char *rest,
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
        if ((rule->kind == NUMBER && !to_number(value, &field.number)) ||
            (rule->kind == REAL && !to_real(value, &field.real)))
            return refuse(plan, line, "'%.80s' is not a number: '%.80s'", rest, value);
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

static bool choose(const char *text, const char *const *names, uint32_t *index) {
    for (uint32_t i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], text) != 0) continue;
        *index = i;
        return true;
    }
    return false;
}

static bool parse_settings(struct plan *plan, uint32_t line, char *rest) {
    static const char *const levels[] = {"off", "error", "warn", "info", "verbose", "debug", NULL};
    static const char *const details[] = {"off", "rss", "pss", NULL};
    struct step step = {0};
    if (!parse_fields(plan, line, &settings, rest, &step)) return false;
    plan->deadline_ms = step_number(&step, "deadline_ms", plan->deadline_ms);
    plan->linger_ms = step_number(&step, "linger_ms", plan->linger_ms);
    plan->max_log_bytes = step_number(&step, "max_log_bytes", plan->max_log_bytes);
    const char *level = step_text(&step, "log_level"), *memory = step_text(&step, "memory");
    uint32_t detail = plan->memory;
    if (level != NULL && !choose(level, levels, &plan->log_level))
        return refuse(plan, line, "no log_level '%.80s'", level);
    if (memory != NULL && !choose(memory, details, &detail))
        return refuse(plan, line, "no memory '%.80s'", memory);
    plan->memory = (enum memory_detail)detail;
    return true;
}

static bool parse_step(struct plan *plan, uint32_t line, const char *name, char *rest) {
    if (plan->step_count == PLAN_STEPS_MAX) return refuse(plan, line, "too many steps");
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(verbs[i].name, name) != 0) continue;
        struct step *step = &plan->steps[plan->step_count];
        *step = (struct step){.verb = (enum verb)i, .verb_name = verbs[i].name};
        if (!parse_fields(plan, line, &verbs[i], rest, step)) return false;
        if (step_number(step, "context", 0) >= CONTEXTS_MAX)
            return refuse(plan, line, "context must be below %d", CONTEXTS_MAX);
        plan->step_count++;
        return true;
    }
    return refuse(plan, line, "no verb '%.80s'", name);
}

/* One line without its newline; true in `last` for the line that ends the plan. */
static bool parse_line(struct plan *plan, uint32_t line, char *text, bool *last) {
    if (line == 1)
        return strcmp(text, "probe-plan 1") == 0 ||
               refuse(plan, 1, "not a plan of this version: '%.80s'", text);
    char *rest = strchr(text, ' ');
    if (rest != NULL) *rest++ = '\0';
    if (strcmp(text, "end") == 0) {
        uint64_t steps;
        *last = true;
        if (rest == NULL || strncmp(rest, "steps=", 6) != 0 || !to_number(rest + 6, &steps))
            return refuse(plan, line, "end needs steps=N");
        return steps == plan->step_count ||
               refuse(plan, line, "the plan has %u steps, its end says %.20s", plan->step_count,
                      rest + 6);
    }
    if (strcmp(text, "set") != 0) return parse_step(plan, line, text, rest);
    if (plan->step_count > 0) return refuse(plan, line, "set comes before the first step");
    return parse_settings(plan, line, rest);
}

bool plan_read(int fd, struct plan *plan) {
    *plan = (struct plan){
        .deadline_ms = 600000, .max_log_bytes = 1 << 20, .log_level = 2, .memory = MEMORY_PSS};
    plan->steps = calloc(PLAN_STEPS_MAX, sizeof *plan->steps);
    fields = calloc(PLAN_BYTES_MAX / 4 + STEP_FIELDS_MAX, sizeof *fields); /* "k=v " is shortest */
    if (plan->steps == NULL || fields == NULL) return refuse(plan, 0, "out of memory");
    size_t length = 0, start = 0, scanned = 0;
    uint32_t line = 1;
    for (;;) {
        char *newline = memchr(plan_text + scanned, '\n', length - scanned);
        scanned = newline != NULL ? (size_t)(newline - plan_text) + 1 : length;
        if (scanned - start > PLAN_LINE_MAX) return refuse(plan, line, "line too long");
        if (newline != NULL) {
            bool last = false;
            *newline = '\0';
            if (strlen(plan_text + start) != (size_t)(newline - plan_text) - start)
                return refuse(plan, line, "a NUL byte");
            if (!parse_line(plan, line, plan_text + start, &last)) return false;
            if (last) return true; /* without waiting for EOF: not every shell can send one */
            start = scanned;
            line++;
            continue;
        }
        if (length == sizeof plan_text) return refuse(plan, line, "plan too long");
        ssize_t got = read(fd, plan_text + length, sizeof plan_text - length);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return refuse(plan, line, "cannot read stdin: %s", strerror(errno));
        if (got == 0) return refuse(plan, line, "stdin ended before the plan did");
        length += (size_t)got;
    }
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
