/* Buffers that a DSP can map: from FastRPC's rpcmem, a DMA-BUF heap, or else a memfd. */
#include "run.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/dma-heap.h, which not every C library brings along. */
struct heap_request {
    uint64_t bytes;
    uint32_t fd, fd_flags;
    uint64_t heap_flags;
};
#define HEAP_ALLOCATE _IOWR('H', 0, struct heap_request)

/* Qualcomm's rpcmem.h: the system heap, cached. The size of rpcmem_alloc is an int. */
enum { RPCMEM_HEAP = 25, RPCMEM_FLAGS = 1, RPCMEM_MAX = INT32_MAX };

enum allocator { UNKNOWN, RPCMEM, DMA_HEAP, MEMFD };

static struct {
    enum allocator which;
    int heap;
    void *(*alloc)(int heap, uint32_t flags, int size);
    void (*free)(void *data);
    int (*to_fd)(void *data);
} from = {.heap = -1};

static bool find_rpcmem(void) {
    void *library = dlopen("libcdsprpc.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return false;
    *(void **)&from.alloc = dlsym(library, "rpcmem_alloc");
    *(void **)&from.free = dlsym(library, "rpcmem_free");
    *(void **)&from.to_fd = dlsym(library, "rpcmem_to_fd");
    void (*start)(void);
    *(void **)&start = dlsym(library, "rpcmem_init"); /* older libraries need it */
    if (from.alloc == NULL || from.free == NULL || from.to_fd == NULL) return false;
    if (start != NULL) start();
    return true;
}

static bool find_heap(void) {
    static const char *const heaps[] = {"/dev/dma_heap/qcom,system", "/dev/dma_heap/system"};
    for (size_t i = 0; from.heap < 0 && i < sizeof heaps / sizeof *heaps; i++)
        from.heap = open(heaps[i], O_RDONLY | O_CLOEXEC);
    return from.heap >= 0;
}

const char *shared_allocator(void) {
    static const char *const names[] = {"", "rpcmem", "dma-heap", "memfd"};
    if (from.which == UNKNOWN) from.which = find_rpcmem() ? RPCMEM : find_heap() ? DMA_HEAP : MEMFD;
    return names[from.which];
}

static bool heap_make(struct shared *shared, const struct buffer *buffer) {
    struct heap_request request = {.bytes = buffer->area_size, .fd_flags = O_RDWR | O_CLOEXEC};
    if (ioctl(from.heap, HEAP_ALLOCATE, &request) < 0) return false;
    shared->fd = (int)request.fd;
    return true;
}

static bool memfd_make(struct shared *shared, const struct buffer *buffer) {
    shared->fd = (int)syscall(SYS_memfd_create, "qnn-probe", 1u /* MFD_CLOEXEC */);
    return shared->fd >= 0 && ftruncate(shared->fd, (off_t)buffer->area_size) == 0;
}

static bool map(const struct shared *shared, struct buffer *buffer) {
    void *data = mmap(NULL, buffer->area_size, PROT_READ | PROT_WRITE, MAP_SHARED, shared->fd, 0);
    buffer->area = data != MAP_FAILED ? data : NULL;
    return data != MAP_FAILED;
}

static bool rpcmem_make(struct shared *shared, struct buffer *buffer) {
    errno = ENOMEM; /* it does not say why it gives nothing */
    if (buffer->area_size > RPCMEM_MAX) return false;
    buffer->area = from.alloc(RPCMEM_HEAP, RPCMEM_FLAGS, (int)buffer->area_size);
    if (buffer->area == NULL) return false;
    shared->fd = from.to_fd(buffer->area);
    return shared->fd > 0;
}

bool shared_make(struct shared *shared, struct buffer *buffer, uint64_t size,
                 struct outcome *outcome) {
    const char *name = shared_allocator();
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    *shared = (struct shared){.fd = -1};
    *buffer = (struct buffer){.size = size, .area_size = (size / page + 2) * page};
    shared->buffer_type = from.which == RPCMEM ? ABI_BUFFER_ION : ABI_BUFFER_DMA_BUF;
    bool made = from.which == RPCMEM     ? rpcmem_make(shared, buffer)
                : from.which == DMA_HEAP ? heap_make(shared, buffer) && map(shared, buffer)
                                         : memfd_make(shared, buffer) && map(shared, buffer);
    if (!made) {
        int why = errno;
        shared_free(shared, buffer);
        return fail(outcome, "memory", "cannot allocate %llu bytes from %s: %s",
                    (unsigned long long)size, name, strerror(why));
    }
    buffer->data = buffer->area;   /* a descriptor has no offset: the only guard is behind it */
    memset(buffer->data, 0, size); /* every page is there before anything is measured */
    memset(buffer->data + size, GUARD_BYTE, buffer->area_size - size);
    return true;
}

/* A buffer is registered with one size only. */
static struct lent {
    struct shared shared;
    struct buffer buffer;
    uint32_t place, borrowers;
    struct lent *next;
} *lenders;

bool shared_borrow(uint32_t place, struct shared *shared, struct buffer *buffer, uint64_t size,
                   struct outcome *outcome) {
    struct lent *lent = lenders;
    while (lent != NULL && (lent->place != place || lent->buffer.size != size)) lent = lent->next;
    if (lent == NULL) {
        lent = calloc(1, sizeof *lent);
        if (lent == NULL) return fail(outcome, "memory", "out of memory");
        if (!shared_make(&lent->shared, &lent->buffer, size, outcome)) {
            free(lent);
            return false;
        }
        lent->place = place;
        lent->next = lenders;
        lenders = lent;
    }
    lent->borrowers++;
    *shared = lent->shared;
    *buffer = lent->buffer;
    shared->lent = lent;
    return true;
}

static void give_back(struct lent *lent) {
    if (--lent->borrowers > 0) return;
    struct lent **link = &lenders;
    while (*link != lent) link = &(*link)->next;
    *link = lent->next;
    shared_free(&lent->shared, &lent->buffer);
    free(lent);
}

void shared_free(struct shared *shared, struct buffer *buffer) {
    if (shared->lent != NULL) {
        give_back(shared->lent);
    } else if (from.which == RPCMEM) {
        if (buffer->area != NULL) from.free(buffer->area);
    } else {
        if (buffer->area != NULL) munmap(buffer->area, buffer->area_size);
        if (buffer->area_size > 0 && shared->fd >= 0) close(shared->fd);
    }
    *buffer = (struct buffer){0};
    *shared = (struct shared){.fd = -1};
}

bool shared_is_ours(uint64_t device, uint64_t inode, const struct shared *shared) {
    struct stat status;
    return fstat(shared->fd, &status) == 0 && (uint64_t)status.st_dev == device &&
           (uint64_t)status.st_ino == inode;
}
