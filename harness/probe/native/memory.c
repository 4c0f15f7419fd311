/* What this process occupies, as the kernel says. */
#include "probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

size_t proc_read(const char *path, char *text, size_t capacity) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t length = read(fd, text, capacity - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length > 0 ? (size_t)length : 0;
}

bool proc_bytes(const char *path, const char *label, uint64_t *bytes) {
    char text[4096];
    unsigned long long kilobytes;
    const char *line = proc_read(path, text, sizeof text) > 0 ? strstr(text, label) : NULL;
    if (line == NULL || sscanf(line + strlen(label), " %llu", &kilobytes) != 1) return false;
    *bytes = kilobytes * 1024;
    return true;
}

struct memory_use memory_use(enum memory_detail detail) {
    struct memory_use use = {0};
    char text[256];
    unsigned long long pages;
    if (detail >= MEMORY_RSS && proc_read("/proc/self/statm", text, sizeof text) > 0 &&
        sscanf(text, "%*u %llu", &pages) == 1) {
        use.rss_known = true;
        use.rss_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    /* Kernels before 4.14 and some sandboxes have no rollup: then PSS stays unknown. */
    if (detail >= MEMORY_PSS)
        use.pss_known = proc_bytes("/proc/self/smaps_rollup", "\nPss:", &use.pss_bytes);
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
