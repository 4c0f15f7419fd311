/* Memory that both sides see: pages of files that each maps, never copies. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cdsprpc.h"

enum { MAX_DMA_HANDLES = 4096, MAX_MAP_FLAG = 16, RESERVED_MAP_FLAG = 1 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the buffers and DMA handles */
static struct buffer *buffers;
static size_t buffer_count;
static struct {
    int fd;
    uint32_t size;
} handles[MAX_DMA_HANDLES];
static long handle_count;

/* --- buffers of this process --- */

static struct buffer *buffer_of(const void *base) {
    for (size_t at = 0; at < buffer_count; at++)
        if (buffers[at].base == base) return &buffers[at];
    return NULL;
}

static bool keep_buffer(struct buffer buffer) {
    struct buffer *more = realloc(buffers, (buffer_count + 1) * sizeof *more);
    if (more == NULL) return false;
    buffers = more;
    buffers[buffer_count++] = buffer;
    return true;
}

bool buffer_at(const void *address, size_t size, struct buffer *found) {
    const char *first = address;
    bool there = false;
    pthread_mutex_lock(&mutex);
    for (size_t at = 0; at < buffer_count && !there; at++) {
        struct buffer *one = &buffers[at];
        there = first >= one->base && first < one->base + one->size &&
                size <= one->size - (size_t)(first - one->base);
        if (there) *found = *one;
    }
    pthread_mutex_unlock(&mutex);
    return there;
}

static int unmap(struct pd *pd, struct mapping *mapping) {
    struct wire_request request = {.kind = WIRE_UNMAP, .fd = mapping->fd};
    int error = pd_control(pd, request, -1, NULL);
    pd->mapped_bytes -= mapping->size;
    *mapping = pd->mappings[--pd->mapping_count];
    return error;
}

static struct mapping *mapping_of(struct pd *pd, int fd) {
    for (size_t at = 0; at < pd->mapping_count; at++)
        if (pd->mappings[at].fd == fd) return &pd->mappings[at];
    return NULL;
}

/* What a call mapped ends with the buffer; what the client asked for stays until it says so. */
static void forget_fd(struct pd *pd, void *context) {
    pthread_mutex_lock(&pd->mutex);
    struct mapping *mapping = mapping_of(pd, *(int *)context);
    if (mapping != NULL && !mapping->asked) unmap(pd, mapping);
    pthread_mutex_unlock(&pd->mutex);
}

static void release_buffer(void *base, bool free_it) {
    pthread_mutex_lock(&mutex);
    struct buffer *found = buffer_of(base);
    bool last = found != NULL && (free_it ? found->ours : --found->users == 0 && !found->ours);
    struct buffer gone = {.fd = -1};
    if (last) {
        gone = *found;
        *found = buffers[--buffer_count];
    }
    pthread_mutex_unlock(&mutex);
    if (!last) return;
    each_pd(forget_fd, &gone.fd);
    if (!gone.ours) return;
    munmap(gone.base, gone.size);
    close(gone.fd);
}

/* Contexts need more files than a shell of this computer may have open; Android's may have more. */
static void allow_many_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= MAX_FILES) return;
    limit.rlim_cur = limit.rlim_max < MAX_FILES ? limit.rlim_max : MAX_FILES;
    setrlimit(RLIMIT_NOFILE, &limit);
}

EXPORTED void *rpcmem_alloc2(int heap, uint32_t flags, size_t size) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int answer = 0;
    (void)heap, (void)flags;
    if (size == 0 || scripted("alloc", &answer)) return NULL;
    pthread_once(&once, allow_many_files);
    size_t whole = (size + 4095) & ~(size_t)4095;
    int fd = memfd_create("rpcmem", MFD_CLOEXEC);
    if (fd < 0) return NULL;
    void *base = MAP_FAILED;
    if (ftruncate(fd, (off_t)whole) == 0)
        base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pthread_mutex_lock(&mutex);
    bool kept = base != MAP_FAILED && keep_buffer((struct buffer){base, whole, fd, 0, true});
    pthread_mutex_unlock(&mutex);
    if (kept) return base;
    if (base != MAP_FAILED) munmap(base, whole);
    close(fd);
    return NULL;
}

EXPORTED void *rpcmem_alloc(int heap, uint32_t flags, int size) {
    return size > 0 ? rpcmem_alloc2(heap, flags, (size_t)size) : NULL;
}

EXPORTED void rpcmem_free(void *data) { release_buffer(data, true); }

EXPORTED int rpcmem_to_fd(void *data) {
    int answer = -1;
    if (scripted("fd", &answer)) return answer;
    pthread_mutex_lock(&mutex);
    struct buffer *found = buffer_of(data);
    if (found != NULL) answer = found->fd;
    pthread_mutex_unlock(&mutex);
    return answer;
}

EXPORTED void rpcmem_init(void) {}
EXPORTED void rpcmem_deinit(void) {}

/* Tells which file a buffer is of; without a file (-1) it is forgotten. */
EXPORTED void remote_register_buf_attr2(void *data, size_t size, int fd, int attributes) {
    (void)attributes;
    if (data == NULL || size == 0) return;
    if (fd < 0) {
        release_buffer(data, false);
        return;
    }
    pthread_mutex_lock(&mutex);
    struct buffer *found = buffer_of(data);
    if (found != NULL)
        found->users++;
    else
        keep_buffer((struct buffer){data, size, fd, 1, false});
    pthread_mutex_unlock(&mutex);
}

EXPORTED void remote_register_buf_attr(void *data, int size, int fd, int attributes) {
    if (size > 0) remote_register_buf_attr2(data, (size_t)size, fd, attributes);
}

EXPORTED int remote_register_dma_handle(int fd, uint32_t size) {
    int answer = 0;
    if (scripted("dma", &answer)) return answer;
    if (fd < 0) return AEE_EBADPARM;
    pthread_mutex_lock(&mutex);
    long at = 0, most = limits()->handles < MAX_DMA_HANDLES ? limits()->handles : MAX_DMA_HANDLES;
    while (at < handle_count && handles[at].fd != fd) at++;
    bool room = at < most;
    if (room) {
        handles[at].fd = fd;
        handles[at].size = size;
        if (at == handle_count) handle_count++;
    }
    pthread_mutex_unlock(&mutex);
    return room ? 0 : said("dma", AEE_EINVHANDLE, "fd %d is one handle more than %ld", fd, most);
}

/* The size that a fd was registered with; a call that names it uses the handle up. */
uint32_t take_dma_handle(int fd) {
    uint32_t size = 0;
    pthread_mutex_lock(&mutex);
    for (long at = 0; at < handle_count && size == 0; at++)
        if (handles[at].fd == fd) {
            size = handles[at].size;
            handles[at] = handles[--handle_count];
        }
    pthread_mutex_unlock(&mutex);
    return size;
}

/* --- what a protection domain has mapped --- */

/* Whether an error only tells that the DSP's process is no more. */
static bool is_death(int error) {
    return error == AEE_ENOSUCH || error == AEE_ECONNRESET || error == DSP_EBADSTATE;
}

/* Maps a fd unless it is; `asked` by the client, else because a call names it. With the mutex. */
static int map_locked(struct pd *pd, const char *call, int fd, size_t size, uint32_t flags,
                      bool asked) {
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) return AEE_EBADPARM;
    struct mapping *there = mapping_of(pd, fd);
    bool same = there != NULL && there->device == status.st_dev && there->inode == status.st_ino;
    if (same && !asked) return 0;
    if (there != NULL && there->asked && asked) return AEE_EALREADY;
    if (there != NULL) unmap(pd, there);
    if (size == 0) size = (size_t)status.st_size;
    size_t most = (size_t)limits()->mapped_mb << 20;
    if (size > most || pd->mapped_bytes > most - size)
        return said(call, AEE_EFAILED, "fd %d of %zu bytes does not fit: %zu of %zu are mapped", fd,
                    size, pd->mapped_bytes, most);
    struct mapping *more =
        realloc(pd->mappings, (pd->mapping_count + 1) * sizeof *pd->mappings);
    if (more == NULL) return AEE_ENOMEMORY;
    pd->mappings = more;
    struct wire_request request = {.kind = WIRE_MAP, .fd = fd, .flags = flags, .length = size};
    int error = pd_control(pd, request, fd, NULL);
    if (is_death(error)) return error;
    if (error != 0) return said(call, error, "the DSP's process does not map fd %d", fd);
    pd->mapped_bytes += size;
    more[pd->mapping_count++] =
        (struct mapping){fd, 0, asked, status.st_dev, status.st_ino, size};
    return 0;
}

int map_fd(struct pd *pd, const char *call, int fd, size_t size, uint32_t flags, bool asked) {
    pthread_mutex_lock(&pd->mutex);
    int error = map_locked(pd, call, fd, size, flags, asked);
    pthread_mutex_unlock(&pd->mutex);
    return error;
}

int refer_to_mapping(struct pd *pd, int fd, uint64_t end, int change) {
    int error = 0;
    pthread_mutex_lock(&pd->mutex);
    struct mapping *mapping = mapping_of(pd, fd);
    if (mapping == NULL || !mapping->asked)
        error = AEE_ENOSUCHMAP;
    else if (mapping->references + change < 0 || end > mapping->size)
        error = AEE_EBADPARM;
    else
        mapping->references += change;
    pthread_mutex_unlock(&pd->mutex);
    return error;
}

/* The driver's errors all become AEE_EFAILED here, as in the public library. */
EXPORTED int fastrpc_mmap(int domain, int fd, void *address, int offset, size_t size, int flags) {
    int answer = 0;
    (void)address;
    if (dsp_folder() != NULL && (fd < 0 || offset != 0 || flags < 0 || flags > MAX_MAP_FLAG ||
                                 flags == RESERVED_MAP_FLAG || size == 0))
        return AEE_EBADPARM;
    if (!answered("map", &answer)) {
        struct pd *pd = session_pd(domain);
        answer = pd == NULL ? AEE_ENOTINITIALIZED
                            : map_fd(pd, "map", fd, size, (uint32_t)flags, true);
        pd_release(pd);
    }
    return is_death(answer) ? AEE_EFAILED : answer;
}

EXPORTED int fastrpc_munmap(int domain, int fd, void *address, size_t size) {
    int answer = 0;
    (void)address, (void)size;
    if (answered("unmap", &answer)) return answer;
    struct pd *pd = session_pd(domain);
    if (pd == NULL) return AEE_ENOTINITIALIZED;
    pthread_mutex_lock(&pd->mutex);
    struct mapping *found = mapping_of(pd, fd);
    if (found == NULL || !found->asked)
        answer = AEE_ENOSUCHMAP;
    else
        answer = found->references > 0 ? AEE_EBADPARM : unmap(pd, found);
    pthread_mutex_unlock(&pd->mutex);
    pd_release(pd);
    return is_death(answer) ? 0 : answer; /* it died with its process */
}
