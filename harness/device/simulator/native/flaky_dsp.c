/* A stand-in for a DSP that crashes now and then, for simulated devices of a farm only.
 *
 * Preloaded into all that such a device runs, it stands between libQnnHtp and whoever opens it. The
 * backend stays the real one; of the processes that use it, one in four meets a crash: from one of
 * its first loads or executions on, each ends with 1007, as after a restart of the DSP, which takes
 * all that was on it. The next process finds the DSP back. Which processes these are follows from
 * the device's name and how many there were. Log and error text say that it is a stand-in. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* places in the table of QNN's interface, which is append-only, and how much of it is kept */
enum { CREATE_FROM_BINARY = 13, EXECUTE = 21, LOG_CREATE = 25, ERROR_MESSAGE = 48, ENTRIES = 71 };
enum { HTP = 6, RESTARTED = 1007, ONE_IN = 4, FIRST_CALLS = 3, LOG_ERROR = 1 };
#define SAYS "SSR detected: the DSP restarted (a stand-in: this simulated device has a flaky DSP)"

typedef uint64_t answer;
typedef void log_callback(const char *format, uint32_t level, uint64_t time, va_list args);
typedef answer list_providers(const void *const **list, uint32_t *count);
typedef answer create_from_binary(void *, void *, const void **, const void *, uint64_t, void **,
                                  void *);
typedef answer execute(void *, const void *, uint32_t, void *, uint32_t, void *, void *);
typedef answer log_create(log_callback *, uint32_t, void **);
typedef answer error_message(answer, const char **);

static struct provider {
    uint32_t id;
    const char *name;
    uint32_t versions[6];
    void *calls[ENTRIES];
} real, ours;
static const void *const offered[] = {&ours};
static log_callback *told;
static unsigned calls_left; /* until it crashes; 0: it never does */
static int crashed;

static void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (told != NULL) told(format, LOG_ERROR, 0, args);
    va_end(args);
}

static int gone(void) {
    if (calls_left > 0 && __sync_sub_and_fetch(&calls_left, 1) == 0) {
        crashed = 1;
        say("%s", SAYS);
    }
    return crashed;
}

static answer create(void *backend, void *device, const void **config, const void *binary,
                     uint64_t size, void **context, void *profile) {
    if (gone()) return RESTARTED;
    create_from_binary *call = (create_from_binary *)real.calls[CREATE_FROM_BINARY];
    return call(backend, device, config, binary, size, context, profile);
}

static answer run(void *graph, const void *inputs, uint32_t input_count, void *outputs,
                  uint32_t output_count, void *profile, void *signal) {
    if (gone()) return RESTARTED;
    execute *call = (execute *)real.calls[EXECUTE];
    return call(graph, inputs, input_count, outputs, output_count, profile, signal);
}

static answer open_log(log_callback *callback, uint32_t level, void **log) {
    told = callback;
    return ((log_create *)real.calls[LOG_CREATE])(callback, level, log);
}

static answer message(answer code, const char **text) {
    if ((code & 0xffff) != RESTARTED || !crashed)
        return ((error_message *)real.calls[ERROR_MESSAGE])(code, text);
    *text = SAYS;
    return 0;
}

/* How many processes used the DSP so far, and of which device, decides whether it crashes. */
static void draw(void) {
    char path[4096];
    struct stat kept;
    const char *home = getenv("HOME");
    if (home == NULL || snprintf(path, sizeof path, "%s/.dsp-uses", home) >= (int)sizeof path) return;
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return;
    uint32_t mixed = 2166136261u;
    if (write(file, ".", 1) == 1 && fstat(file, &kept) == 0) {
        for (const char *at = strrchr(home, '/'); at != NULL && *at; at++)
            mixed = (mixed ^ (unsigned char)*at) * 16777619u;
        mixed = (mixed ^ (uint32_t)kept.st_size) * 2654435761u;
        mixed ^= mixed >> 15;
        if (mixed % ONE_IN == 0) calls_left = 1 + mixed / ONE_IN % FIRST_CALLS;
    }
    close(file);
}

static answer offer(const void *const **list, uint32_t *count) {
    *list = offered;
    *count = 1;
    return 0;
}

static void *stood_in_for(void *found) {
    const void *const *list = NULL;
    uint32_t count = 0;
    if (((list_providers *)found)(&list, &count) != 0 || count != 1) return found;
    if (((const struct provider *)list[0])->id != HTP) return found;
    if (ours.calls[EXECUTE] == NULL) draw();
    memcpy(&real, list[0], sizeof real);
    ours = real;
    ours.calls[CREATE_FROM_BINARY] = (void *)create;
    ours.calls[EXECUTE] = (void *)run;
    ours.calls[LOG_CREATE] = (void *)open_log;
    ours.calls[ERROR_MESSAGE] = (void *)message;
    return (void *)offer;
}

/* The last call must stay a jump: where a symbol is looked for depends on who asks. */
__attribute__((visibility("default"))) void *dlsym(void *library, const char *name) {
    static void *(*looked_up)(void *, const char *);
    if (looked_up == NULL)
        *(void **)&looked_up = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (looked_up == NULL) return NULL;
    if (strcmp(name, "QnnInterface_getProviders") == 0) {
        void *found = looked_up(library, name);
        return found == NULL ? NULL : stood_in_for(found);
    }
    return looked_up(library, name);
}
