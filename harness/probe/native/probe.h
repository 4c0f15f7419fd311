/* What the probe's source files share: bounds, the plan, one step's outcome, output, files. */
#ifndef PROBE_H
#define PROBE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "abi.h"
#include "json.h"

enum {
#define LIMIT(name, value) name = value,
#include "verbs.h"
    RANK_MAX = 16,
    NAME_BYTES_MAX = 512,
    LOG_LINE_MAX = 4096,
    REPEATS_LISTED = 4096, /* even */
    MESSAGE_MAX = 1024,
    SYMBOL_MAX = 96,
};
#define FILE_BYTES_DEFAULT_MAX (UINT64_C(4) << 30)

/* No library ends a process with one of these: seen without our last event, that event was lost. */
enum {
    EXIT_DONE = 86,
    EXIT_STEP_FAILED = 87,
    EXIT_BAD_PLAN = 88,
    EXIT_DEADLINE = 124,
    EXIT_OUTPUT = 125, /* nobody takes what the probe says */
};

/* --- checksum.c --- */

uint32_t checksum(uint32_t before, const void *data, size_t length); /* zlib's CRC-32; begins with 0 */

/* --- plan.c --- */

struct step;
struct outcome;
typedef void verb_function(const struct step *step, struct outcome *outcome);

struct verb {
    const char *name;
    verb_function *function; /* NULL: it is not linked, or the line has none */
    const char *api;         /* the first call that it makes */
    bool memory;             /* whether it can change memory */
    struct rule {
        const char *key; /* one that ends in a dot is followed by a number: input.0 */
        bool required;
        enum kind { IS_TEXT, IS_NUMBER, IS_REAL, IS_WORD } kind;
        uint64_t least, most; /* of a number; of what follows the dot */
        const char *words;    /* with spaces between them */
    } rules[14];
};

struct field {
    const char *key, *value;
    uint64_t number; /* read before a library can change the locale */
    double real;
};

struct step {
    const struct verb *verb;
    uint32_t field_count;
    const struct field *fields;
};

enum memory_detail { MEMORY_OFF, MEMORY_RSS, MEMORY_PSS };

struct plan {
    uint64_t deadline_ms, linger_ms, max_log_bytes;
    uint32_t log_level; /* 0: no log */
    uint32_t power;     /* the number of a profile; 0: no vote */
    enum memory_detail memory;
    bool has_settings; /* its line was there */
    uint32_t step_count;
    struct step *steps;
    size_t body_bytes; /* of the text behind its first line */
    uint32_t crc;      /* of that */
    bool damaged;      /* it did not arrive as it was sent: `problem` is none of the plan's */
    uint32_t bad_line; /* 1-based, of `problem` */
    char problem[256]; /* why plan_read returned false */
};

bool plan_read(int fd, struct plan *plan);
const char *step_text(const struct step *step, const char *key); /* NULL: not given */
const char *step_numbered(const struct step *step, const char *prefix, uint32_t number);
uint64_t step_number(const struct step *step, const char *key, uint64_t otherwise);
double step_real(const struct step *step, const char *key, double otherwise);

/* --- output.c: every event is one write(2) on the probe's own copy of stdout --- */

void output_open(void); /* from here on the library's stdout lands on stderr */
void output_limit_log(uint64_t max_bytes);
void output_step(int64_t step); /* whom log lines belong to; -1: nobody */
struct json *event_open(const char *event);
void event_close(void); /* numbers, seals and writes what event_open began; both in one thread */
void event_seal(struct json *json); /* number and checksum of an event, and its end */
bool output_unread(void); /* somebody who should read what we or the library print does not */
/* For the watchdog: never waits for long; keeps the lock. Of so many looks, output was unread at
 * some: then the process may have waited for its reader, and its deadline says nothing of it. */
void event_deadline(uint32_t looks, uint32_t unread);
void event_call(const char *api); /* the step goes on to this call */
void event_answer(abi_error code); /* an error came back; asking what it means may crash */
void event_noise(const char *bytes, size_t length); /* for fault tests: no event at all */
abi_log_callback log_line;
uint64_t log_dropped(bool in_step); /* lines that were too many: in this step, or in all */
uint64_t clock_us(clockid_t clock);
uint64_t now_us(void); /* monotonic, since output_open */

/* --- one step's outcome --- */

struct outcome {
    bool called;      /* `code` is the library's answer; else the probe itself failed */
    abi_error code;   /* 0: success */
    const char *error; /* what of the probe failed; NULL: nothing */
    const char *skipped; /* reason; NULL: was carried out */
    uint64_t duration_us;
    char symbol[SYMBOL_MAX], message[MESSAGE_MAX];
    struct json data;
};

__attribute__((format(printf, 3, 4))) bool fail(struct outcome *outcome, const char *error,
                                                const char *format, ...); /* false */
/* False and a failed outcome unless `fine`: the plan asks for what cannot be, for this reason. */
bool require(bool fine, struct outcome *outcome, const char *why);
/* The same unless the backend's interface has this function. */
bool offered(bool there, struct outcome *outcome, const char *function);
bool to_free(bool there, struct outcome *outcome); /* false and a skipped step if nothing is there */
void answer(struct outcome *outcome, abi_error code); /* adds symbol and text if it is an error */
/* The answer of a call that began then. */
void answer_since(uint64_t started_us, struct outcome *outcome, abi_error code);

/* --- memory.c --- */

struct memory_use {
    bool rss_known, pss_known;
    uint64_t rss_bytes, pss_bytes;
};
struct memory_use memory_use(enum memory_detail detail);
/* What a small file of the kernel's says, 0: nothing. Neither locks nor allocates. */
size_t proc_read(const char *path, char *text, size_t capacity);
/* What stands behind a label in such a file, as in "\nPss: 12 kB". */
bool proc_bytes(const char *path, const char *label, uint64_t *bytes);
/* Gives the kernel back what malloc holds of freed memory, where this libc can: how much that is
 * depends on which thread came first, hence on how busy the device is. */
void memory_trim(void);

/* --- libraries.c --- */

void event_libraries(const struct plan *plan); /* what the loader took; asks its lock */

/* --- threads.c --- */

void event_threads(int fd); /* for the watchdog: what every thread but it is doing */

/* --- files.c --- */

struct buffer {
    uint8_t *data;
    uint64_t size;
    uint8_t *area; /* the whole mapping, guards included */
    uint64_t area_size;
};
enum { GUARD_BYTE = 0xa5 };
bool buffer_make(struct buffer *buffer, uint64_t size, struct outcome *outcome);
void buffer_fill(struct buffer *buffer); /* with what no output should be */
uint64_t buffer_damage(const struct buffer *buffer); /* guard bytes changed around the data */
void buffer_free(struct buffer *buffer);
bool file_read(const char *path, struct buffer *into, struct outcome *outcome); /* exact size */
bool file_load(const char *path, uint64_t max_bytes, struct buffer *buffer,
               struct outcome *outcome);
/* `size` bytes from `offset` on (0: to the end), as they lie there: nothing is copied. */
bool file_map(const char *path, uint64_t offset, uint64_t size, struct buffer *buffer,
              struct outcome *outcome);
bool file_write(const char *path, const uint8_t *data, uint64_t size, struct outcome *outcome);

/* --- backend.c, inspect.c, context.c, execute.c, ort_*.c, faults.c: the verbs --- */

struct graph_metadata {
    char *name;
    uint32_t input_count, output_count;
    struct abi_tensor *inputs, *outputs; /* deep copies, without the library's memory */
};

struct binary_metadata {
    struct binary_metadata *next;
    char *file;
    uint32_t graph_count;
    struct graph_metadata *graphs;
};

struct context {
    abi_handle handle;
    const char *file;
    const struct binary_metadata *binary; /* from the first execution on */
    abi_handle *graphs;                   /* as many as `binary` has; NULL: not retrieved yet */
    struct buffer kept;                   /* its file, while the library uses that: else empty */
};

struct qnn {
    const struct abi_backend_api *api;
    const struct abi_system_api *system;
    struct abi_version core_version, backend_version;
    uint32_t log_level, power;
    abi_handle log, backend, device;
    struct context contexts[CONTEXTS_MAX];
    struct binary_metadata *binaries;
};
extern struct qnn qnn;

#define VERB(name, function, api, memory, fields) verb_function function;
#include "verbs.h"
/* executorch.cpp: only in a probe that is linked with ExecuTorch's libraries */
__attribute__((weak)) verb_function executorch_program, executorch_device, executorch_context;
__attribute__((weak)) verb_function executorch_run, executorch_free;
/* backend.c: dlopen of the step's `lib`, and the one symbol that leads to everything else. */
void *library_open(const struct step *step, const char *symbol, struct outcome *outcome);
/* What is known of a file, inspecting it if nothing is; NULL and a failed outcome if it cannot. */
const struct binary_metadata *metadata_of(const char *file, struct outcome *outcome);

/* --- power.c: both report the answer to each vote --- */

void power_vote(uint32_t profile, struct json *json); /* with a device */
void power_release(struct json *json);                /* before it is freed; if anything was voted */

/* --- tensors.c --- */

uint64_t tensor_bytes(const struct abi_tensor *tensor); /* 0: unknown width, dynamic or absurd */
const char *data_type_name(uint32_t data_type);
/* `told` is how the tensor is quantised, by the library's own words: `tensor` may be a copy. */
void tensor_describe(struct json *json, const struct abi_tensor *tensor,
                     const struct abi_quantization *told);

struct comparison {
    uint64_t elements, beyond, first, nan;
    double max_abs, first_value, first_expected;
};
bool tensor_compare(uint32_t data_type, const uint8_t *got, const uint8_t *expected,
                    uint64_t bytes, double tolerance, struct comparison *comparison);

#endif
