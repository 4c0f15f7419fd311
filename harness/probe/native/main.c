/* The probe: carries out a plan read from stdin, and says on stdout what came of every step.
 *
 * An event is written before a step is tried and another one after it, so that whoever listens
 * knows the step even if the library crashes or never comes back. */
#include "probe.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#ifndef PROBE_SOURCE
#define PROBE_SOURCE "unknown"
#endif

#if defined(__ANDROID__) && defined(__aarch64__)
#define TARGET "android-arm64"
#elif defined(__linux__) && defined(__aarch64__)
#define TARGET "linux-arm64"
#elif defined(__linux__) && defined(__x86_64__)
#define TARGET "linux-x64"
#else
#error "the ABI is declared for 64-bit Android and Linux only"
#endif

#define PROTOCOL 2
enum { PLAN_SECONDS = 60, LOOKS = 16 };

/* What --version prints. It stands in the file as it is, so that the host can read it without
 * running what was built for another machine. */
#define TEXT_OF_(number) #number
#define TEXT_OF(number) TEXT_OF_(number)
static const char identity[] =
    "qnn-probe protocol=" TEXT_OF(PROTOCOL) " source=" PROBE_SOURCE " target=" TARGET;

struct qnn qnn;
static struct plan plan;

bool fail(struct outcome *outcome, const char *error, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(outcome->message, sizeof outcome->message, format, args);
    va_end(args);
    outcome->error = error;
    return false;
}

bool require(bool fine, struct outcome *outcome, const char *why) {
    return fine || fail(outcome, "plan", "%s", why);
}

bool offered(bool there, struct outcome *outcome, const char *function) {
    return there || fail(outcome, "symbol", "the interface has no %s", function);
}

bool to_free(bool there, struct outcome *outcome) {
    if (!there) outcome->skipped = "there is nothing to free";
    return there;
}

void answer_since(uint64_t started_us, struct outcome *outcome, abi_error code) {
    outcome->duration_us = now_us() - started_us;
    answer(outcome, code);
}

/* The library's own words for a code: "SYMBOL: text". */
void answer(struct outcome *outcome, abi_error code) {
    const char *text = NULL;
    outcome->called = true;
    outcome->code = code & 0xffff;
    if (code != 0 && outcome->code == 0) outcome->code = 0xffff; /* never a success by truncation */
    if (code == 0 || qnn.api == NULL || qnn.api->error_message == NULL) return;
    event_answer(outcome->code);
    if (qnn.api->error_message(code, &text) != 0 || text == NULL) return;
    size_t symbol = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (symbol > 0 && symbol < sizeof outcome->symbol && (!text[symbol] || text[symbol] == ':')) {
        memcpy(outcome->symbol, text, symbol);
        text += symbol + strspn(text + symbol, ": ");
    }
    snprintf(outcome->message, sizeof outcome->message, "%s", text);
}

/* Sleeps until the deadline, and looks now and then whether anybody takes what we print. */
static void *watch(void *nothing) {
    (void)nothing;
    uint64_t began_ms = clock_us(CLOCK_MONOTONIC) / 1000;
    uint32_t unread = 0;
    for (uint32_t look = 1; look <= LOOKS; look++) {
        uint64_t at_ms = began_ms + plan.deadline_ms / LOOKS * look;
        if (look == LOOKS) at_ms = began_ms + plan.deadline_ms;
        struct timespec until = {.tv_sec = (time_t)(at_ms / 1000),
                                 .tv_nsec = (long)(at_ms % 1000) * 1000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) continue;
        if (output_unread()) unread++;
    }
    event_deadline(LOOKS, unread);
    struct timespec linger = {.tv_sec = (time_t)(plan.linger_ms / 1000),
                              .tv_nsec = (long)(plan.linger_ms % 1000) * 1000000};
    while (nanosleep(&linger, &linger) != 0) continue; /* a debugger may look at us meanwhile */
    _exit(EXIT_DEADLINE);
}

static void start_watchdog(void) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all); /* the library's signals are not for this thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, watch, NULL) != 0) _exit(EXIT_OUTPUT);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_detach(thread);
}

static void write_memory(struct json *json, const char *when, const struct memory_use *use) {
    char key[32];
    snprintf(key, sizeof key, "rss_%s_bytes", when);
    if (use->rss_known) json_u64(json, key, use->rss_bytes);
    snprintf(key, sizeof key, "pss_%s_bytes", when);
    if (use->pss_known) json_u64(json, key, use->pss_bytes);
}

static void write_context(struct json *json, const struct step *step) {
    if (step_text(step, "context") == NULL) return;
    json_u64(json, "context", step_number(step, "context", 0));
}

static void write_begin(uint32_t number, const struct step *step) {
    struct json *json = event_open("begin");
    json_u64(json, "step", number);
    json_text(json, "verb", step->verb->name);
    if (step->verb->api != NULL) json_text(json, "api", step->verb->api);
    write_context(json, step);
    const char *file = step_text(step, "file");
    if (file == NULL) file = step_text(step, "lib");
    if (file != NULL) json_text(json, "file", file);
    json_u64(json, "t_us", now_us());
    event_close();
}

static void write_skip(uint32_t number, const struct step *step, const char *reason) {
    struct json *json = event_open("skip");
    json_u64(json, "step", number);
    json_text(json, "verb", step->verb->name);
    write_context(json, step);
    json_text(json, "reason", reason);
    event_close();
}

static void write_end(uint32_t number, const struct outcome *outcome,
                      const struct memory_use *before, const struct memory_use *after) {
    uint64_t dropped = log_dropped(true);
    struct json *json = event_open("end");
    json_u64(json, "step", number);
    if (outcome->error != NULL || !outcome->called)
        json_null(json, "code");
    else
        json_u64(json, "code", outcome->code);
    if (outcome->error != NULL) json_text(json, "error", outcome->error);
    if (outcome->symbol[0] != '\0') json_text(json, "symbol", outcome->symbol);
    if (outcome->message[0] != '\0') json_text(json, "message", outcome->message);
    json_u64(json, "duration_us", outcome->duration_us);
    write_memory(json, "before", before);
    write_memory(json, "after", after);
    if (dropped > 0) json_u64(json, "log_dropped", dropped);
    json_u64(json, "t_us", now_us());
    const struct json *data = &outcome->data;
    if (data->overflow)
        json_bool(json, "data_dropped", true);
    else if (data->length > 1) {
        json_raw(json, ",\"data\":", 8);
        json_raw(json, data->text, data->length);
        json_raw(json, "}", 1);
    }
    event_close();
}

/* Carries out one step; false if it failed. */
static bool carry_out(uint32_t number, const struct step *step) {
    static char data[1 << 20];
    static struct outcome outcome;
    static struct memory_use last;
    static bool last_known;
    memset(&outcome, 0, sizeof outcome);
    json_reset(&outcome.data, data, sizeof data - 1);
    json_open(&outcome.data, NULL, '{');
    enum memory_detail detail = step->verb->memory ? plan.memory : MEMORY_OFF;
    /* Between two steps nothing happens, and asking for PSS costs a millisecond. */
    struct memory_use before = last_known && detail == plan.memory ? last : memory_use(detail);
    output_step(number);
    write_begin(number, step);
    if (step->verb->function != NULL)
        step->verb->function(step, &outcome);
    else
        fail(&outcome, "unsupported", "this probe is not linked with ExecuTorch");
    if (outcome.skipped != NULL) {
        write_skip(number, step, outcome.skipped);
    } else {
        struct memory_use after = memory_use(detail);
        write_end(number, &outcome, &before, &after);
        last = after;
        last_known = detail == plan.memory;
    }
    output_step(-1);
    return outcome.skipped != NULL || (outcome.error == NULL && outcome.code == 0);
}

static uint32_t carry_out_all(void) {
    uint32_t failed = 0;
    bool skipping = false, cleaning = false;
    for (uint32_t i = 0; i < plan.step_count; i++) {
        const struct step *step = &plan.steps[i];
        if (strcmp(step->verb->name, "cleanup") == 0) {
            cleaning = true;
            skipping = false;
            write_skip(i, step, "marker");
        } else if (skipping) {
            write_skip(i, step, "an earlier step failed");
        } else if (!carry_out(i, step)) {
            if (failed++ == 0) event_libraries(&plan);
            skipping = !cleaning;
        }
    }
    return failed;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--version") == 0) return puts(identity) < 0;
    pid_t parent = getppid();
    output_open();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return EXIT_OUTPUT; /* it went before we could ask to go with it */

    struct json *json = event_open("start");
    json_u64(json, "probe", PROTOCOL);
    json_text(json, "source", PROBE_SOURCE);
    json_i64(json, "pid", getpid());
    json_text(json, "target", TARGET);
    json_u64(json, "time_us", clock_us(CLOCK_REALTIME));
    event_close();

    alarm(PLAN_SECONDS); /* until the plan has said what its deadline is */
    bool whole = plan_read(STDIN_FILENO, &plan);
    alarm(0);
    if (!whole) {
        json = event_open("plan-error");
        json_u64(json, "line", plan.bad_line);
        json_text(json, "message", plan.problem);
        json_bool(json, "damaged", plan.damaged);
        event_close();
        return EXIT_BAD_PLAN;
    }
    /* From here on it is ours to carry out; by a clock that the device's shell can read, too. */
    json = event_open("plan");
    json_u64(json, "steps", plan.step_count);
    json_u64(json, "plan_crc", plan.crc);
    json_u64(json, "boot_us", clock_us(CLOCK_BOOTTIME));
    event_close();
    start_watchdog();
    output_limit_log(plan.max_log_bytes);
    qnn.log_level = plan.log_level;
    qnn.power = plan.power;
    uint32_t failed = carry_out_all();

    uint64_t dropped = log_dropped(false);
    json = event_open("done");
    json_u64(json, "steps", plan.step_count);
    json_u64(json, "failed", failed);
    json_u64(json, "log_dropped", dropped);
    json_u64(json, "elapsed_us", now_us());
    event_close();
    return failed > 0 ? EXIT_STEP_FAILED : EXIT_DONE;
}
