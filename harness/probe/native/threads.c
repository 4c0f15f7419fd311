/* What each thread is doing, as the kernel tells it, for whoever has to explain a hang.
 *
 * Neither locks nor allocates: the thread that hangs may hold any lock, that of malloc included. */
#include "probe.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS_MAX = 64, FILE_MAX = 1024, CHUNK = 4096 };

struct kernel_entry { /* getdents64(2); libc hides it behind readdir, which allocates */
    uint64_t inode;
    int64_t offset;
    unsigned short size;
    unsigned char type;
    char name[];
};

static size_t read_file(const char *tid, const char *name, char text[FILE_MAX]) {
    char path[80];
    snprintf(path, sizeof path, "/proc/self/task/%.20s/%s", tid, name);
    size_t length = proc_read(path, text, FILE_MAX);
    while (length > 0 && text[length - 1] == '\n') text[--length] = '\0';
    return length;
}

static void write_thread(struct json *json, const char *tid) {
    static const char *const files[] = {"wchan", "syscall", "stack"};
    char text[FILE_MAX], state;
    unsigned long long user, system;
    json_open(json, NULL, '{');
    json_u64(json, "tid", strtoull(tid, NULL, 10));
    if (read_file(tid, "comm", text) > 0) json_text(json, "name", text);
    const char *behind = read_file(tid, "stat", text) > 0 ? strrchr(text, ')') : NULL;
    if (behind != NULL && sscanf(behind, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
                                 &state, &user, &system) == 3) {
        json_bytes(json, "state", &state, 1);
        json_u64(json, "cpu_ticks", user + system);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (read_file(tid, files[i], text) > 0) json_text(json, files[i], text);
    json_close(json, '}');
}

/* Gives up when nobody reads: so much is taken without waiting once poll has said so. */
static void write_patiently(int fd, const char *text, size_t length) {
    while (length > 0) {
        struct pollfd writable = {.fd = fd, .events = POLLOUT};
        if (poll(&writable, 1, 500) <= 0) return;
        ssize_t done = write(fd, text, length < CHUNK ? length : CHUNK);
        if (done <= 0) return;
        text += done;
        length -= (size_t)done;
    }
}

void event_threads(int fd) {
    static char text[256 << 10];
    static _Alignas(struct kernel_entry) char entries[CHUNK];
    static struct json json;
    unsigned long own = (unsigned long)syscall(SYS_gettid);
    uint64_t count = 0;
    int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    json_reset(&json, text, sizeof text);
    static const char begin[] = "\x1e{\"event\":\"threads\"";
    json_raw(&json, begin, sizeof begin - 1);
    json_open(&json, "threads", '[');
    for (long got; (got = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;)
        for (long at = 0; at < got;) {
            const struct kernel_entry *entry = (const struct kernel_entry *)(entries + at);
            at += entry->size;
            if (entry->name[0] < '0' || entry->name[0] > '9') continue;
            if (strtoul(entry->name, NULL, 10) == own) continue;
            if (count++ < THREADS_MAX) write_thread(&json, entry->name);
        }
    close(folder);
    json_close(&json, ']');
    json_u64(&json, "count", count);
    event_seal(&json);
    if (!json.overflow) write_patiently(fd, text, json.length);
}
