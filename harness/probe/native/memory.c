/* What this process occupies, as the kernel says. */
#include "probe.h"

#include <dlfcn.h>
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

#ifdef __ANDROID__
enum { PURGE_ALL = -104, PURGE = -101 }; /* of bionic's mallopt: from API 34 and 28 on */

void memory_trim(void) {
    int (*tune)(int, int);
    *(void **)&tune = dlsym(RTLD_DEFAULT, "mallopt"); /* from API 26 on */
    if (tune != NULL && tune(PURGE_ALL, 0) == 0) tune(PURGE, 0);
}
#else
void memory_trim(void) {
    int (*trim)(size_t);
    *(void **)&trim = dlsym(RTLD_DEFAULT, "malloc_trim"); /* glibc's */
    if (trim != NULL) trim(0);
}
#endif
