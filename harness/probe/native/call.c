/* Any function of the interface with any arguments, right or wrong: what an error code is had by.
 *
 * The arguments are small expressions:
 *
 *     12, 0x7fff      a number
 *     'text'          a pointer to the text
 *     [A B ...]       a pointer to cells of 8 bytes, each an argument of its own
 *     ?64             a pointer to so many zero bytes
 *     name, &name     a variable of 8 bytes, a pointer to it; `backend`, `device`, `log` and
 *                     `context` (number 0) begin as the handles that other steps made
 *     name=A          the same, set to A; name+8: 8 more; name.3: cell 3 behind the pointer in it
 *     @file, #file    a pointer to the bytes of the file that the step names, its size
 *
 * What is allocated stays until the process ends: a library may keep it. */
#include "probe.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS_MAX = 64, VARIABLES_MAX = 32, VALUE_CELLS_MAX = 12 };
/* Entries that every library with this core API has (71 at 2.32, measured), and the system's. */
enum { BACKEND_SLOTS = 71, SYSTEM_SLOTS = 4 };

typedef uint64_t cell;
struct value_cells { /* a structure by value, or arguments behind the sixth: both on the stack */
    cell at[VALUE_CELLS_MAX];
};

struct reader {
    const char *at;
    const struct buffer *file;
    bool wrong;
};

static struct variable {
    char name[32];
    cell value;
} variables[VARIABLES_MAX];

static cell *variable(const char *name, size_t length) {
    static const char *const known[] = {"backend", "device", "log", "context"};
    if (length >= sizeof variables[0].name) return NULL;
    if (variables[0].name[0] == '\0') {
        cell values[] = {(cell)qnn.backend, (cell)qnn.device, (cell)qnn.log,
                         (cell)qnn.contexts[0].handle};
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            snprintf(variables[i].name, sizeof variables[i].name, "%s", known[i]);
            variables[i].value = values[i];
        }
    }
    for (size_t i = 0; i < VARIABLES_MAX; i++) {
        struct variable *one = &variables[i];
        if (one->name[0] == '\0') memcpy(one->name, name, length);
        if (strlen(one->name) == length && memcmp(one->name, name, length) == 0)
            return &one->value;
    }
    return NULL;
}

/* Zeroed memory that nobody gives back. */
static void *keep(uint64_t size) {
    static struct kept {
        struct kept *next;
        cell memory[];
    } *all;
    struct kept *one = calloc(1, sizeof *one + size);
    if (one == NULL) return NULL;
    one->next = all;
    all = one;
    return one->memory;
}

static cell refuse(struct reader *reader) {
    reader->wrong = true;
    return 0;
}

static cell read_argument(struct reader *reader) {
    while (*reader->at == ' ') reader->at++;
    char first = *reader->at;
    if (isdigit((unsigned char)first)) return strtoull(reader->at, (char **)&reader->at, 0);
    if (first == '\'') {
        const char *end = strchr(++reader->at, '\'');
        char *text = end != NULL ? keep((uint64_t)(end - reader->at) + 1) : NULL;
        if (text == NULL) return refuse(reader);
        memcpy(text, reader->at, (size_t)(end - reader->at));
        reader->at = end + 1;
        return (cell)text;
    }
    if (first == '?') {
        reader->at++;
        cell size = strtoull(reader->at, (char **)&reader->at, 0);
        return size > 0 && size <= 64 << 20 ? (cell)keep(size) : refuse(reader);
    }
    if (first == '[') {
        cell *cells = keep((CELLS_MAX + 1) * sizeof *cells);
        size_t count = 0;
        for (reader->at++; !reader->wrong; count++) {
            while (*reader->at == ' ') reader->at++;
            if (*reader->at == ']') break;
            if (cells == NULL || count == CELLS_MAX) return refuse(reader);
            cells[count] = read_argument(reader);
        }
        reader->at++;
        return (cell)cells;
    }
    if (first == '@' || first == '#') {
        if (strncmp(reader->at + 1, "file", 4) != 0) return refuse(reader);
        reader->at += 5;
        return first == '@' ? (cell)reader->file->data : reader->file->size;
    }
    if (first == '&') reader->at++;
    size_t length = strspn(reader->at, "abcdefghijklmnopqrstuvwxyz_");
    cell *found = length > 0 ? variable(reader->at, length) : NULL;
    if (found == NULL) return refuse(reader);
    reader->at += length;
    if (first == '&') return (cell)found;
    if (*reader->at == '=') {
        reader->at++;
        return *found = read_argument(reader);
    }
    if (*reader->at == '+') {
        reader->at++;
        return *found + strtoull(reader->at, (char **)&reader->at, 0);
    }
    if (*reader->at != '.') return *found;
    reader->at++;
    cell number = strtoull(reader->at, (char **)&reader->at, 10);
    return *found != 0 && number <= CELLS_MAX ? ((const cell *)*found)[number] : refuse(reader);
}

static bool read_whole(const char *text, const struct buffer *file, cell *value,
                       struct outcome *outcome) {
    struct reader reader = {.at = text, .file = file};
    *value = read_argument(&reader);
    if (!reader.wrong && *reader.at == '\0') return true;
    return fail(outcome, "plan", "not an argument: '%.200s'", text);
}

/* Integers and pointers only. The first six travel in registers (of arm64 eight), the rest on the
 * stack, where x86-64 has a large structure by value as well; arm64 passes a pointer to one. */
static abi_error call_it(void *function, const cell *a, const struct value_cells *value) {
#if defined(__aarch64__)
    typedef abi_error wide(cell, cell, cell, cell, cell, cell, cell, cell, cell, cell);
    if (value != NULL)
        return ((wide *)function)(a[0], (cell)value, 0, 0, 0, 0, 0, 0, 0, 0);
    return ((wide *)function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
#else
    typedef abi_error wide(cell, cell, cell, cell, cell, cell, struct value_cells);
    struct value_cells rest = {{0}};
    memcpy(rest.at, a + 6, (ARGUMENTS_MAX - 6) * sizeof *a);
    return ((wide *)function)(a[0], a[1], a[2], a[3], a[4], a[5], value != NULL ? *value : rest);
#endif
}

void raw_call(const struct step *step, struct outcome *outcome) {
    cell arguments[ARGUMENTS_MAX] = {0}, given = 0, data = 0, size = 0;
    const char *file = step_text(step, "file"), *value = step_text(step, "value");
    bool system = step_text(step, "system") != NULL;
    uint64_t slot = step_number(step, "slot", 0);
    struct buffer bytes = {0};
    void *const *table = system ? (void *const *)qnn.system : (void *const *)qnn.api;
    if (table == NULL || slot >= (system ? SYSTEM_SLOTS : BACKEND_SLOTS)) {
        fail(outcome, "plan", "no library with an entry %llu", (unsigned long long)slot);
        return;
    }
    if (file != NULL && !file_load(file, FILE_BYTES_DEFAULT_MAX, &bytes, outcome)) return;
    for (uint32_t i = 0; i < ARGUMENTS_MAX; i++) {
        const char *text = step_numbered(step, "arg.", i);
        if (text != NULL && !read_whole(text, &bytes, &arguments[i], outcome)) return;
    }
    if (value != NULL && !read_whole(value, &bytes, &given, outcome)) return;
    event_call(step_text(step, "api"));
    if (table[slot] == NULL) {
        fail(outcome, "symbol", "the interface has no entry %llu", (unsigned long long)slot);
        return;
    }
    uint64_t started = now_us();
    abi_error code = call_it(table[slot], arguments, (const struct value_cells *)given);
    answer_since(started, outcome, code);
    const char *save = step_text(step, "save");
    if (code != 0 || save == NULL) return;
    if (read_whole("data", &bytes, &data, outcome) && read_whole("size", &bytes, &size, outcome))
        file_write(save, (const uint8_t *)data, size, outcome);
}
