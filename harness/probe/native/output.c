/* Events: one write(2) each on a private copy of stdout, from any thread, behind one lock. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    int fd;
    uint64_t opened_us;
    struct json json;
    char text[(1 << 20) + (1 << 16)]; /* a step's data at its largest, and what goes around it */
    atomic_llong step;
    atomic_ullong count; /* of events so far */
    uint64_t log_max, log_used, step_log_used, step_dropped, dropped;
} output = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .step = -1, .log_max = 1 << 20};

uint64_t clock_us(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void put_step(struct json *json) {
    long long step = atomic_load(&output.step);
    if (step < 0)
        json_null(json, "step");
    else
        json_i64(json, "step", step);
}

uint64_t now_us(void) { return clock_us(CLOCK_MONOTONIC) - output.opened_us; }

void output_open(void) {
    output.opened_us = clock_us(CLOCK_MONOTONIC);
    output.fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    if (output.fd < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) _exit(EXIT_OUTPUT);
}

void output_limit_log(uint64_t max_bytes) { output.log_max = max_bytes; }

void output_step(int64_t step) {
    pthread_mutex_lock(&output.lock);
    atomic_store(&output.step, step);
    output.step_log_used = 0;
    output.step_dropped = 0;
    pthread_mutex_unlock(&output.lock);
}

static void write_all(const char *text, size_t length) {
    while (length > 0) {
        ssize_t done = write(output.fd, text, length);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && errno == EAGAIN) { /* whoever gave us the descriptor made it so */
            struct pollfd writable = {.fd = output.fd, .events = POLLOUT};
            poll(&writable, 1, 1000);
            continue;
        }
        if (done < 0) _exit(EXIT_OUTPUT); /* nobody could ever read what we find out */
        text += done;
        length -= (size_t)done;
    }
}

struct json *event_open(const char *event) {
    pthread_mutex_lock(&output.lock);
    json_reset(&output.json, output.text, sizeof output.text);
    json_raw(&output.json, "\x1e", 1);
    json_raw(&output.json, "{", 1);
    json_text(&output.json, "event", event);
    return &output.json;
}

void event_seal(struct json *json) {
    char seal[24];
    json_u64(json, "n", atomic_fetch_add(&output.count, 1));
    uint32_t crc = checksum(0, json->text + 1, json->length - 1); /* without the mark */
    int length = snprintf(seal, sizeof seal, ",\"crc\":\"%08x\"}\n", (unsigned)crc);
    json_raw(json, seal, (size_t)length);
}

void event_close(void) {
    event_seal(&output.json);
    write_all(output.text, output.json.length);
    pthread_mutex_unlock(&output.lock);
}

void event_call(const char *api) {
    struct json *json = event_open("call");
    json_i64(json, "step", atomic_load(&output.step));
    json_text(json, "api", api);
    json_u64(json, "t_us", now_us());
    event_close();
}

void event_answer(abi_error code) {
    struct json *json = event_open("answer");
    json_i64(json, "step", atomic_load(&output.step));
    json_u64(json, "code", code);
    event_close();
}

void event_noise(const char *bytes, size_t length) {
    pthread_mutex_lock(&output.lock);
    write_all(bytes, length);
    pthread_mutex_unlock(&output.lock);
}

bool output_unread(void) {
    struct pollfd fds[] = {{.fd = output.fd, .events = POLLOUT},
                           {.fd = STDERR_FILENO, .events = POLLOUT}};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (poll(&fds[i], 1, 0) == 0) return true;
    return false;
}

void event_deadline(uint32_t looks, uint32_t unread) {
    /* The step's own thread may hang in write(2) with the lock held: then go without it. */
    struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    for (int i = 0; i < 50 && pthread_mutex_trylock(&output.lock) != 0; i++)
        nanosleep(&pause, NULL);
    char text[200];
    struct json json;
    json_reset(&json, text, sizeof text);
    static const char begin[] = "\x1e{\"event\":\"deadline\"";
    json_raw(&json, begin, sizeof begin - 1);
    put_step(&json);
    json_u64(&json, "t_us", now_us());
    json_u64(&json, "looks", looks);
    json_u64(&json, "unread", unread);
    event_seal(&json);
    struct pollfd writable = {.fd = output.fd, .events = POLLOUT};
    if (poll(&writable, 1, 1000) <= 0) return;
    write_all(text, json.length);
    event_threads(output.fd); /* behind it: should the kernel not answer, that much is told */
}

static const char *level_name(uint32_t level) {
    static const char *const names[] = {"unknown", "error", "warn", "info", "verbose", "debug"};
    return names[level < sizeof names / sizeof *names ? level : 0];
}

void log_line(const char *format, uint32_t level, uint64_t timestamp, va_list args) {
    (void)timestamp; /* its unit differs between libraries; t_us is ours */
    char text[LOG_LINE_MAX];
    int full = vsnprintf(text, sizeof text, format ? format : "", args);
    if (full < 0) full = 0;
    size_t length = (size_t)full < sizeof text ? (size_t)full : sizeof text - 1;
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r')) length--;

    uint64_t now = now_us();
    struct json *json = event_open("log");
    /* A quarter is kept for errors, so that chatter never displaces the line that matters; and no
     * step takes more than half, so that a later one still has room. */
    uint64_t limit = level == ABI_LOG_ERROR ? output.log_max : output.log_max / 4 * 3;
    if (output.log_used + length > limit || output.step_log_used + length > limit / 2) {
        output.dropped++;
        output.step_dropped++;
        pthread_mutex_unlock(&output.lock);
        return;
    }
    output.log_used += length;
    output.step_log_used += length;
    put_step(json);
    json_text(json, "level", level_name(level));
    json_u64(json, "t_us", now);
    json_bytes(json, "text", text, length);
    if ((size_t)full >= sizeof text) json_bool(json, "cut", true);
    event_close();
}

uint64_t log_dropped(bool in_step) {
    pthread_mutex_lock(&output.lock);
    uint64_t dropped = in_step ? output.step_dropped : output.dropped;
    pthread_mutex_unlock(&output.lock);
    return dropped;
}
