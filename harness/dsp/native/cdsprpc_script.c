/* What libcdsprpc.so says of its own answers, and what it is told to answer. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cdsprpc.h"

enum { CALLS = 32 };

int said(const char *call, int answer, const char *words, ...) {
    char number[16], text[400];
    va_list more;
    va_start(more, words);
    vsnprintf(text, sizeof text, words, more);
    va_end(more);
    snprintf(number, sizeof number, "%#x", (unsigned)answer);
    if (dsp_folder() != NULL) tell_harness("kernel", call, number, text, "libcdsprpc (simulated): ");
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

static void kill_one(struct pd *pd, void *context) {
    (void)context;
    pd_kill(pd);
}

bool scripted(const char *call, int *answer) {
    const char *script = getenv("QNN_SCRIPTED_RPC");
    if (script == NULL) return false;
    char key[80];
    snprintf(key, sizeof key, "%s@%d=", call, count_call(call));
    const char *what = entry_of(script, key);
    snprintf(key, sizeof key, "%s=", call);
    if (what == NULL) what = entry_of(script, key);
    if (what == NULL) return false;
    if (strncmp(what, "crash", 5) == 0) abort();
    while (strncmp(what, "never", 5) == 0) pause();
    if (strncmp(what, "delay:", 6) == 0) {
        usleep(1000u * (unsigned)strtoul(what + 6, NULL, 10));
        return false;
    }
    bool death = strncmp(what, "die", 3) == 0;
    *answer = death ? DSP_EBADSTATE : (int)strtoul(what, NULL, 0);
    if (strncmp(what, "die-for-good", 12) == 0) gone_for_good = true;
    said(call, *answer, "as QNN_SCRIPTED_RPC says: %.*s", (int)strcspn(what, ";"), what);
    if (death) each_pd(kill_one, NULL);
    return true;
}

bool answered(const char *call, int *answer) {
    return scripted(call, answer) || dsp_folder() == NULL;
}
