/* What a simulated board's DSP is told to be, what it is told to answer, and what it says of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cdsprpc.h"

enum { MAX_SAID_BYTES = 1 << 16, CALLS = 32 };

static const struct {
    const char *name;
    size_t at;
} LIMITS[] = {
    {"arch", offsetof(struct limits, arch)},
    {"sessions", offsetof(struct limits, sessions)},
    {"handles", offsetof(struct limits, handles)},
    {"mapped_mb", offsetof(struct limits, mapped_mb)},
    {"vtcm_mb", offsetof(struct limits, vtcm_mb)},
    {"hvx_threads", offsetof(struct limits, hvx_threads)},
    {"unsigned_pd", offsetof(struct limits, unsigned_pd)},
};

/* Sessions: the context banks compute-cb@1 to @8 of the CDSP in the kernel's device trees of
   SM8450 to SM8650. Handles: as many DMA handles as the public library keeps. Mapped: what 32 bits
   of address reach. */
static struct limits told = {73, 8, 256, 4096, 8, 4, 1};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_limits(void) {
    char path[MAX_PATH], key[32];
    long value;
    snprintf(path, sizeof path, "%s/limits", dsp_folder());
    FILE *file = fopen(path, "re");
    while (file != NULL && fscanf(file, "%31s %ld", key, &value) == 2)
        for (size_t i = 0; i < sizeof LIMITS / sizeof *LIMITS; i++)
            if (strcmp(key, LIMITS[i].name) == 0)
                memcpy((char *)&told + LIMITS[i].at, &value, sizeof value);
    if (file != NULL) fclose(file);
}

const char *dsp_folder(void) {
    const char *folder = getenv("QNN_DSP");
    return folder != NULL && *folder != '\0' ? folder : NULL;
}

const struct limits *limits(void) {
    if (dsp_folder() != NULL) pthread_once(&once, read_limits);
    return &told;
}

int said(const char *call, int answer, const char *words, ...) {
    char line[512], path[MAX_PATH];
    int used = snprintf(line, sizeof line, "kernel\t%s\t%#x\t", call, (unsigned)answer);
    va_list more;
    va_start(more, words);
    int added = vsnprintf(line + used, sizeof line - (size_t)used - 1, words, more);
    va_end(more);
    size_t length = strnlen(line, sizeof line - 2);
    if (added < 0 || dsp_folder() == NULL) return answer;
    for (size_t i = (size_t)used; i < length; i++)
        if ((unsigned char)line[i] < ' ') line[i] = '?';
    line[length++] = '\n';
    dprintf(STDERR_FILENO, "libcdsprpc (simulated): %.*s", (int)length, line);
    snprintf(path, sizeof path, "%s/said", dsp_folder());
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    struct stat status;
    if (file >= 0 && fstat(file, &status) == 0 && status.st_size < MAX_SAID_BYTES &&
        write(file, line, length) < 0)
        dprintf(STDERR_FILENO, "libcdsprpc (simulated): %s: %s\n", path, strerror(errno));
    if (file >= 0) close(file);
    return answer;
}

/* --- answers on demand -------------------------------------------------------------------------
 *
 * QNN_SCRIPTED_RPC is a list of `call[@n]=answer;`, where n counts the calls of that name from 1,
 * and answer is a number, `crash` (of the client), `delay:MS`, `never`, `die` (the DSP's processes
 * are killed, a later open begins one anew) or `die-for-good`. What no entry names goes on.
 */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const char *name;
    int count;
} calls[CALLS];
static volatile bool gone_for_good;

bool dsp_is_gone_for_good(void) { return gone_for_good; }

static int count_call(const char *name) {
    int at = 0;
    pthread_mutex_lock(&counting);
    while (at < CALLS - 1 && calls[at].name != NULL && strcmp(calls[at].name, name) != 0) at++;
    calls[at].name = name;
    int count = ++calls[at].count;
    pthread_mutex_unlock(&counting);
    return count;
}

static const char *entry_of(const char *script, const char *key) {
    for (const char *at = script; *at; at++)
        if ((at == script || at[-1] == ';') && strncmp(at, key, strlen(key)) == 0)
            return at + strlen(key);
    return NULL;
}

enum told scripted(const char *call, int *answer) {
    const char *script = getenv("QNN_SCRIPTED_RPC");
    if (script == NULL) return TOLD_NOTHING;
    char key[80];
    snprintf(key, sizeof key, "%s@%d=", call, count_call(call));
    const char *what = entry_of(script, key);
    snprintf(key, sizeof key, "%s=", call);
    if (what == NULL) what = entry_of(script, key);
    if (what == NULL) return TOLD_NOTHING;
    if (strncmp(what, "crash", 5) == 0) abort();
    while (strncmp(what, "never", 5) == 0) pause();
    if (strncmp(what, "delay:", 6) == 0) {
        usleep(1000u * (unsigned)strtoul(what + 6, NULL, 10));
        return TOLD_NOTHING;
    }
    bool death = strncmp(what, "die", 3) == 0;
    *answer = death ? DSP_EBADSTATE : (int)strtoul(what, NULL, 0);
    if (strncmp(what, "die-for-good", 12) == 0) gone_for_good = true;
    said(call, *answer, "as QNN_SCRIPTED_RPC says: %.*s", (int)strcspn(what, ";"), what);
    return death ? TOLD_DEATH : TOLD_ANSWER;
}
