/* What this process occupies, as the kernel says. */
#include "probe.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_small(const char *path, char *text, size_t capacity) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t length = read(fd, text, capacity - 1);
    close(fd);
    if (length <= 0) return false;
    text[length] = '\0';
    return true;
}

struct memory_use memory_use(enum memory_detail detail) {
    struct memory_use use = {0};
    char text[2048];
    unsigned long long pages, kilobytes;
    if (detail >= MEMORY_RSS && read_small("/proc/self/statm", text, sizeof text) &&
        sscanf(text, "%*u %llu", &pages) == 1) {
        use.rss_known = true;
        use.rss_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    /* Kernels before 4.14 and some sandboxes have no rollup: then PSS stays unknown. */
    if (detail >= MEMORY_PSS && read_small("/proc/self/smaps_rollup", text, sizeof text)) {
        const char *line = strstr(text, "\nPss:");
        if (line != NULL && sscanf(line, "\nPss: %llu", &kilobytes) == 1) {
            use.pss_known = true;
            use.pss_bytes = kilobytes * 1024;
        }
    }
    return use;
}
