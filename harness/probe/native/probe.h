/* What the probe's source files share: bounds, the plan, one step's outcome, output, files. */
#ifndef PROBE_H
#define PROBE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "json.h"

enum {
    PLAN_BYTES_MAX = 8 << 20,
    PLAN_LINE_MAX = 16384,
    PLAN_STEPS_MAX = 65536,
    STEP_FIELDS_MAX = 64,
    CONTEXTS_MAX = 8192,
    GRAPHS_MAX = 256,
    TENSORS_MAX = 512,
    RANK_MAX = 16,
    NAME_BYTES_MAX = 512,
    LOG_LINE_MAX = 4096,
    REPEATS_MAX = 100000,
    REPEATS_LISTED = 1000,
    MESSAGE_MAX = 1024,
    SYMBOL_MAX = 96,
};
#define FILE_BYTES_DEFAULT_MAX (UINT64_C(4) << 30)

enum {
    EXIT_DONE = 0,
    EXIT_STEP_FAILED = 1,
    EXIT_BAD_PLAN = 2,
    EXIT_DEADLINE = 124,
    EXIT_OUTPUT = 125, /* nobody takes what the probe says */
};

/* --- plan.c --- */

enum verb {
    VERB_BACKEND_LOAD,
    VERB_SYSTEM_LOAD,
    VERB_LOG_CREATE,
    VERB_BACKEND_CREATE,
    VERB_DEVICE_CREATE,
    VERB_CONTEXT_INSPECT,
    VERB_CONTEXT_LOAD,
    VERB_EXECUTE,
    VERB_CONTEXT_FREE,
    VERB_CONTEXT_LOAD_LIST,
    VERB_IO_BIND,
    VERB_IO_RUN,
    VERB_IO_RELEASE,
    VERB_MEMORY_SAMPLE,
    VERB_DEVICE_FREE,
    VERB_BACKEND_FREE,
    VERB_LOG_FREE,
    VERB_ORT_LOAD,
    VERB_ORT_ENV,
    VERB_ORT_REGISTER_EP,
    VERB_ORT_SESSION,
    VERB_ORT_PLACEMENT,
    VERB_ORT_RUN,
    VERB_ORT_SESSION_FREE,
    VERB_ORT_UNREGISTER_EP,
    VERB_ORT_ENV_FREE,
    VERB_CLEANUP,
    VERB_NOOP,
    VERB_SLEEP,
    VERB_CRASH,
    VERB_HANG,
    VERB_SPEW,
    VERB_EXIT,
};

struct field {
    const char *key, *value;
    uint64_t number; /* of a numeric field: read before a library can change the locale */
    double real;
};

struct step {
    enum verb verb;
    const char *verb_name;
    uint32_t field_count;
    const struct field *fields;
};

enum memory_detail { MEMORY_OFF, MEMORY_RSS, MEMORY_PSS };

struct plan {
    uint64_t deadline_ms, linger_ms, max_log_bytes;
    uint32_t log_level; /* 0: no log */
    enum memory_detail memory;
    uint32_t step_count;
    struct step *steps;
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
void event_close(void); /* writes what event_open began; both in one thread */
void event_deadline(void); /* for the watchdog: never waits for long; keeps the lock */
void event_call(const char *api); /* the step goes on to this call */
void event_answer(abi_error code); /* an error came back; asking what it means may crash */
void event_noise(const char *bytes, size_t length); /* for fault tests: no event at all */
abi_log_callback log_line;
uint64_t log_dropped_in_step(void), log_dropped_total(void);
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

__attribute__((format(printf, 3, 4))) void fail(struct outcome *outcome, const char *error,
                                                const char *format, ...);
void answer(struct outcome *outcome, abi_error code); /* adds symbol and text if it is an error */

/* --- memory.c --- */

struct memory_use {
    bool rss_known, pss_known;
    uint64_t rss_bytes, pss_bytes;
};
struct memory_use memory_use(enum memory_detail detail);

/* --- threads.c --- */

void event_threads(int fd); /* for the watchdog: what every thread but it is doing */

/* --- files.c --- */

struct buffer {
    uint8_t *data;
    uint64_t size;
    uint8_t *area; /* the whole mapping, guards included */
    uint64_t area_size;
};
bool buffer_make(struct buffer *buffer, uint64_t size, struct outcome *outcome);
void buffer_fill(struct buffer *buffer); /* with what no output should be */
uint64_t buffer_damage(const struct buffer *buffer); /* guard bytes changed around the data */
void buffer_free(struct buffer *buffer);
bool file_read(const char *path, struct buffer *into, struct outcome *outcome); /* exact size */
bool file_load(const char *path, uint64_t max_bytes, struct buffer *buffer,
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
};

struct qnn {
    const struct abi_backend_api *api;
    const struct abi_system_api *system;
    struct abi_version core_version, backend_version;
    uint32_t log_level;
    abi_handle log, backend, device;
    struct context contexts[CONTEXTS_MAX];
    struct binary_metadata *binaries;
};
extern struct qnn qnn;

typedef void verb_function(const struct step *step, struct outcome *outcome);
verb_function backend_load, system_load, log_create, backend_create, device_create;
verb_function context_inspect, context_load, execute;
verb_function context_free, device_free, backend_free, log_free;
verb_function context_load_list, io_bind, io_run, io_release, memory_sample;
verb_function ort_load, ort_env, ort_register_ep, ort_session, ort_placement, ort_run;
verb_function ort_session_free, ort_unregister_ep, ort_env_free;
verb_function fault_noop, fault_sleep, fault_crash, fault_hang, fault_spew, fault_exit;
/* What is known of a file, inspecting it if nothing is; NULL and a failed outcome if it cannot. */
const struct binary_metadata *metadata_of(const char *file, struct outcome *outcome);

/* --- tensors.c --- */

uint64_t tensor_bytes(const struct abi_tensor *tensor); /* 0: unknown width, dynamic or absurd */
const char *data_type_name(uint32_t data_type);
void tensor_describe(struct json *json, const struct abi_tensor *tensor);

struct comparison {
    uint64_t elements, beyond, first, nan;
    double max_abs, first_value, first_expected;
};
bool tensor_compare(uint32_t data_type, const uint8_t *got, const uint8_t *expected,
                    uint64_t bytes, double tolerance, struct comparison *comparison);

#endif
