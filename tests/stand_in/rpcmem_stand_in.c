/* A stand-in for libcdsprpc, for tests only: rpcmem over memfds. There is no DSP behind it. */
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BUFFERS = 1024 };

static struct {
    void *data;
    size_t size;
    int fd;
} buffers[BUFFERS];

void *rpcmem_alloc(int heap, uint32_t flags, int size) {
    (void)heap, (void)flags;
    for (int i = 0; i < BUFFERS; i++) {
        if (buffers[i].data != NULL) continue;
        int fd = memfd_create("rpcmem-stand-in", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, size) < 0) return NULL;
        void *data = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED) return NULL;
        buffers[i].data = data;
        buffers[i].size = (size_t)size;
        buffers[i].fd = fd;
        return data;
    }
    return NULL;
}

void rpcmem_free(void *data) {
    for (int i = 0; i < BUFFERS; i++) {
        if (data == NULL || buffers[i].data != data) continue;
        munmap(data, buffers[i].size);
        close(buffers[i].fd);
        buffers[i].data = NULL;
    }
}

int rpcmem_to_fd(void *data) {
    for (int i = 0; i < BUFFERS; i++)
        if (data != NULL && buffers[i].data == data) return buffers[i].fd;
    return -1;
}
