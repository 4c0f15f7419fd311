/* What a process holds at one moment: its pages, and the shared buffers that are not the probe's.
 *
 * Backends keep what they share with a DSP in DMA-BUFs (FastRPC) or memfds. Each counts once,
 * whether by its descriptor or, if that was closed, by its mapping. */
#include "run.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { BUFFERS_MAX = 4096, LINE_MAX_BYTES = 1024, LOOK_AGAIN_US = 10000 };

bool bound_owns(uint64_t device, uint64_t inode); /* bound.c */

struct found {
    uint64_t device, inode, bytes;
    bool dma_buf;
};

static struct found buffers[BUFFERS_MAX];
static uint32_t buffer_count;

/* Kernels before 5.3 give all DMA-BUFs one inode of the anonymous file system. */
static void take(uint64_t device, uint64_t inode, uint64_t bytes, bool dma_buf, bool distinct) {
    if (bound_owns(device, inode)) return;
    for (uint32_t i = 0; distinct && i < buffer_count; i++) {
        if (buffers[i].device != device || buffers[i].inode != inode) continue;
        if (buffers[i].bytes < bytes) buffers[i].bytes = bytes;
        return;
    }
    if (buffer_count == BUFFERS_MAX) return;
    buffers[buffer_count++] = (struct found){device, inode, bytes, dma_buf};
}

/* "size:" of a DMA-BUF's fdinfo; 0 if it does not say. */
static uint64_t fdinfo_size(int fd) {
    char path[64], line[LINE_MAX_BYTES];
    unsigned long long size = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "re");
    while (file != NULL && size == 0 && fgets(line, sizeof line, file) != NULL)
        sscanf(line, "size: %llu", &size);
    if (file != NULL) fclose(file);
    return size;
}

static void take_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char target[256];
        struct stat status;
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        if (length <= 0) continue;
        target[length] = '\0';
        bool dma_buf = strstr(target, "dmabuf") != NULL, memfd = strncmp(target, "/memfd:", 7) == 0;
        int fd = atoi(entry->d_name);
        if ((!dma_buf && !memfd) || fstat(fd, &status) < 0) continue;
        uint64_t said = dma_buf ? fdinfo_size(fd) : 0;
        bool anonymous = strncmp(target, "anon_inode:", 11) == 0;
        take(status.st_dev, status.st_ino, said ? said : (uint64_t)status.st_size, dma_buf,
             !anonymous);
    }
    if (folder != NULL) closedir(folder);
}

static void take_mappings(void) {
    char line[LINE_MAX_BYTES];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long long begin, end, inode;
        unsigned high, low;
        bool dma_buf = strstr(line, "dmabuf") != NULL;
        if (!dma_buf && strstr(line, "/memfd:") == NULL) continue;
        if (sscanf(line, "%llx-%llx %*s %*s %x:%x %llu", &begin, &end, &high, &low, &inode) != 5)
            continue;
        if (strstr(line, "anon_inode:") == NULL)
            take(makedev(high, low), inode, end - begin, dma_buf, true);
    }
    if (maps != NULL) fclose(maps);
}

static uint64_t look(uint64_t *dma_bufs) {
    uint64_t shared = 0;
    *dma_bufs = buffer_count = 0;
    take_descriptors();
    take_mappings();
    for (uint32_t i = 0; i < buffer_count; i++) {
        shared += buffers[i].bytes;
        if (buffers[i].dma_buf) *dma_bufs += buffers[i].bytes;
    }
    return shared;
}

/* `back_ms`: a backend may give its buffers back in a thread of its own, which comes late where all
 * cores are busy. So long it has until no more is held than at the first sample. */
void memory_sample(const struct step *step, struct outcome *outcome) {
    static uint64_t first = UINT64_MAX;
    struct json *data = &outcome->data;
    const char *allocator = shared_allocator(); /* first: it may load a library */
    uint64_t dma_bufs, until = now_us() + step_number(step, "back_ms", 0) * 1000;
    uint64_t shared = look(&dma_bufs);
    for (; shared > first && now_us() < until; shared = look(&dma_bufs)) usleep(LOOK_AGAIN_US);
    if (first == UINT64_MAX) first = shared;
    struct memory_use use = memory_use(MEMORY_PSS);
    json_text(data, "label", step_text(step, "label"));
    if (use.rss_known) json_u64(data, "rss_bytes", use.rss_bytes);
    if (use.pss_known) json_u64(data, "pss_bytes", use.pss_bytes);
    json_u64(data, "shared_bytes", shared);
    json_u64(data, "dma_buf_bytes", dma_bufs);
    json_u64(data, "shared_count", buffer_count);
    json_text(data, "allocator", allocator);
    outcome->called = true; /* nothing of the library's, and nothing that can fail */
}
