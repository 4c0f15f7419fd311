/* Verbs without QNN: for the harness's own tests, which need a target that goes wrong on demand. */
#include "probe.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void fault_noop(const struct step *step, struct outcome *outcome) {
    (void)step;
    answer(outcome, 0);
}

void fault_sleep(const struct step *step, struct outcome *outcome) {
    uint64_t ms = step_number(step, "ms", 0);
    struct timespec pause = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&pause, &pause) != 0) continue;
    answer(outcome, 0);
}

void fault_crash(const struct step *step, struct outcome *outcome) {
    int number = (int)step_number(step, "signal", 0);
    signal(number, SIG_DFL);
    kill(getpid(), number);
    fail(outcome, "plan", "signal %d does not end a process", number);
}

void fault_hang(const struct step *step, struct outcome *outcome) {
    (void)step;
    (void)outcome;
    for (;;) pause();
}

/* Noise as a library makes it (to=stdout, to=stderr), or in the middle of the events. */
void fault_spew(const struct step *step, struct outcome *outcome) {
    static const char noise[64] = "noise \xff\x00\x1b[31m {\"event\":\"end\"} \r\n";
    const char *to = step_text(step, "to");
    bool events = to != NULL && strcmp(to, "events") == 0;
    int fd = to != NULL && strcmp(to, "stderr") == 0 ? STDERR_FILENO : STDOUT_FILENO;
    for (uint64_t left = step_number(step, "bytes", 0); left > 0;) {
        size_t length = left < sizeof noise ? (size_t)left : sizeof noise;
        if (events)
            event_noise(noise, length);
        else if (write(fd, noise, length) < 0)
            break;
        left -= length;
    }
    answer(outcome, 0);
}

void fault_exit(const struct step *step, struct outcome *outcome) {
    (void)outcome;
    _exit((int)step_number(step, "code", 0));
}
