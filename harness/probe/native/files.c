/* Files and buffers: sizes known before anything is allocated, guards around every buffer. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILL_BYTE = 0xc3, LARGE_BYTES = 4 << 20 };

static uint64_t page_bytes(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

bool buffer_make(struct buffer *buffer, uint64_t size, struct outcome *outcome) {
    uint64_t page = page_bytes();
    *buffer = (struct buffer){0};
    if (size > UINT64_MAX / 2)
        return fail(outcome, "memory", "%llu bytes are too many", (unsigned long long)size);
    uint64_t area_size = (size + page - 1) / page * page + 2 * page;
    /* Not malloc: what is freed must leave the resident set, or memory figures mean nothing. */
    void *area = mmap(NULL, area_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        return fail(outcome, "memory", "cannot allocate %llu bytes: %s", (unsigned long long)size,
                    strerror(errno));
#ifdef MADV_HUGEPAGE
    /* Otherwise page faults take longer than execution does. */
    if (area_size >= LARGE_BYTES) madvise(area, area_size, MADV_HUGEPAGE);
#endif
    *buffer = (struct buffer){(uint8_t *)area + page, size, area, area_size};
    memset(buffer->area, GUARD_BYTE, page);
    memset(buffer->data + size, GUARD_BYTE, area_size - page - size);
    return true;
}

void buffer_fill(struct buffer *buffer) { memset(buffer->data, FILL_BYTE, buffer->size); }

uint64_t buffer_damage(const struct buffer *buffer) {
    uint64_t damage = 0;
    for (const uint8_t *at = buffer->area; at < buffer->data; at++) damage += *at != GUARD_BYTE;
    const uint8_t *end = buffer->area + buffer->area_size;
    for (const uint8_t *at = buffer->data + buffer->size; at < end; at++)
        damage += *at != GUARD_BYTE;
    return damage;
}

void buffer_free(struct buffer *buffer) {
    if (buffer->area != NULL) munmap(buffer->area, buffer->area_size);
    *buffer = (struct buffer){0};
}

/* Opens a regular file of at most `max_bytes`; -1 and a failed outcome if there is none. */
static int open_file(const char *path, uint64_t max_bytes, uint64_t *size,
                     struct outcome *outcome) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hold us up */
    if (fd < 0 || fstat(fd, &status) < 0) {
        fail(outcome, "file", "cannot open %s: %s", path, strerror(errno));
    } else if (!S_ISREG(status.st_mode)) {
        fail(outcome, "file", "%s is not a regular file", path);
    } else if ((uint64_t)status.st_size > max_bytes) {
        fail(outcome, "file", "%s has %lld bytes, the limit is %llu", path,
             (long long)status.st_size, (unsigned long long)max_bytes);
    } else {
        *size = (uint64_t)status.st_size;
        return fd;
    }
    if (fd >= 0) close(fd);
    return -1;
}

static bool read_exactly(int fd, const char *path, struct buffer *into, struct outcome *outcome) {
    for (uint64_t done = 0; done < into->size;) {
        uint64_t left = into->size - done;
        ssize_t got = read(fd, into->data + done, left < (1 << 30) ? left : (1 << 30));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return fail(outcome, "file", "cannot read %s: %s", path,
                        got == 0 ? "it became shorter meanwhile" : strerror(errno));
        done += (uint64_t)got;
    }
    return true;
}

bool file_load(const char *path, uint64_t max_bytes, struct buffer *buffer,
               struct outcome *outcome) {
    uint64_t size;
    *buffer = (struct buffer){0};
    int fd = open_file(path, max_bytes, &size, outcome);
    if (fd < 0) return false;
    bool fine = buffer_make(buffer, size, outcome) && read_exactly(fd, path, buffer, outcome);
    close(fd);
    if (!fine) buffer_free(buffer);
    return fine;
}

bool file_map(const char *path, uint64_t offset, uint64_t size, struct buffer *buffer,
              struct outcome *outcome) {
    static uint8_t nothing;
    uint64_t whole, before = offset % page_bytes();
    *buffer = (struct buffer){&nothing, 0, NULL, 0};
    int fd = open_file(path, UINT64_MAX, &whole, outcome);
    if (fd < 0) return false;
    if (size == 0 && offset < whole) size = whole - offset;
    bool fine = offset <= whole && size <= whole - offset;
    if (!fine) {
        fail(outcome, "size", "%s has %llu bytes, and not %llu from byte %llu on", path,
             (unsigned long long)whole, (unsigned long long)size, (unsigned long long)offset);
    } else if (size > 0) {
        void *area = mmap(NULL, before + size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd,
                          (off_t)(offset - before));
        fine = area != MAP_FAILED;
        if (fine)
            *buffer = (struct buffer){(uint8_t *)area + before, size, area, before + size};
        else
            fail(outcome, "memory", "cannot map %s: %s", path, strerror(errno));
    }
    close(fd);
    return fine;
}

bool file_read(const char *path, struct buffer *into, struct outcome *outcome) {
    uint64_t size;
    int fd = open_file(path, UINT64_MAX, &size, outcome);
    if (fd < 0) return false;
    bool fine = size == into->size;
    if (fine)
        fine = read_exactly(fd, path, into, outcome);
    else
        fail(outcome, "size", "%s has %llu bytes, its tensor has %llu", path,
             (unsigned long long)size, (unsigned long long)into->size);
    close(fd);
    return fine;
}

bool file_write(const char *path, const uint8_t *data, uint64_t size, struct outcome *outcome) {
    char part[4096];
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        return fail(outcome, "file", "path too long: %.200s", path);
    struct stat there; /* to rename over a device node would succeed, and take it away */
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return fail(outcome, "file", "cannot write %s: it is there and is not a regular file",
                    path);
    unlink(part); /* whatever it is: a FIFO would hold us up */
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    bool fine = fd >= 0;
    for (uint64_t done = 0; fine && done < size;) {
        uint64_t left = size - done;
        ssize_t put = write(fd, data + done, left < (1 << 30) ? left : (1 << 30));
        if (put < 0 && errno == EINTR) continue;
        fine = put > 0;
        done += fine ? (uint64_t)put : 0;
    }
    int problem = errno;
    if (fd >= 0 && close(fd) < 0 && fine) {
        problem = errno;
        fine = false;
    }
    if (fine && rename(part, path) < 0) {
        problem = errno;
        fine = false;
    }
    if (fine) return true;
    fail(outcome, "file", "cannot write %s: %s", path, strerror(problem));
    unlink(part);
    return false;
}
