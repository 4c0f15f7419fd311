/* A stand-in for libcdsprpc, for tests only: it answers every call of FastRPC as a script says.
   There is no DSP behind it. QNN_SCRIPTED_RPC is a list of `call[@n]=answer;`, where n counts the
   calls of that name from 1, and answer is a number, `crash`, or `delay:MS`. What no entry names
   succeeds. Calls are those that the stubs of QNN import. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CALLS = 24 };

static struct {
    const char *name;
    int count;
} calls[CALLS];

static const char *entry_of(const char *key) {
    const char *script = getenv("QNN_SCRIPTED_RPC");
    for (const char *at = script; at != NULL && *at; at++)
        if ((at == script || at[-1] == ';') && strncmp(at, key, strlen(key)) == 0)
            return at + strlen(key);
    return NULL;
}

static int answer(const char *name) {
    int at = 0;
    while (at < CALLS - 1 && calls[at].name != NULL && strcmp(calls[at].name, name) != 0) at++;
    calls[at].name = name;
    calls[at].count++;
    char key[80];
    snprintf(key, sizeof key, "%s@%d=", name, calls[at].count);
    const char *told = entry_of(key);
    if (told == NULL) {
        snprintf(key, sizeof key, "%s=", name);
        told = entry_of(key);
    }
    if (told == NULL) return 0;
    if (strncmp(told, "crash", 5) == 0) abort();
    if (strncmp(told, "delay:", 6) != 0) return (int)strtoul(told, NULL, 0);
    usleep(1000u * (unsigned)strtoul(told + 6, NULL, 10));
    return 0;
}

int remote_handle64_open(const char *uri, uint64_t *handle) {
    (void)uri;
    *handle = 1;
    return answer("open");
}

int remote_handle64_close(uint64_t handle) {
    (void)handle;
    return answer("close");
}

int remote_handle64_invoke(uint64_t handle, uint32_t scalars, void *arguments) {
    (void)handle, (void)scalars, (void)arguments;
    return answer("invoke");
}

int remote_handle64_control(uint64_t handle, uint32_t request, void *data, uint32_t size) {
    (void)handle, (void)request, (void)data, (void)size;
    return answer("handle_control");
}

/* Asks what the DSP can do: { domain, attribute, answer }. */
int remote_handle_control(uint32_t request, void *data, uint32_t size) {
    (void)request;
    if (size >= 3 * sizeof(uint32_t)) ((uint32_t *)data)[2] = 1;
    return answer("capability");
}

/* Request 2 asks for an unsigned domain. */
int remote_session_control(uint32_t request, void *data, uint32_t size) {
    (void)data, (void)size;
    return answer(request == 2 ? "unsigned" : "session");
}

int remote_system_request(void *request) {
    (void)request;
    return answer("system");
}

void remote_register_buf_attr(void *buffer, int size, int fd, int attributes) {
    (void)buffer, (void)size, (void)fd, (void)attributes;
}

int remote_register_dma_handle(int fd, uint32_t size) {
    (void)fd, (void)size;
    return answer("dma");
}

int fastrpc_mmap(int domain, int fd, void *address, int offset, size_t size, int flags) {
    (void)domain, (void)fd, (void)address, (void)offset, (void)size, (void)flags;
    return answer("map");
}

int fastrpc_munmap(int domain, int fd, void *address, size_t size) {
    (void)domain, (void)fd, (void)address, (void)size;
    return answer("unmap");
}

void *rpcmem_alloc2(int heap, uint32_t flags, size_t size) {
    (void)heap, (void)flags;
    if (answer("alloc") != 0) return NULL;
    void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? NULL : data;
}

void *rpcmem_alloc(int heap, uint32_t flags, int size) {
    return rpcmem_alloc2(heap, flags, (size_t)size);
}

void rpcmem_free(void *data) { (void)data; }

int rpcmem_to_fd(void *data) {
    (void)data;
    return answer("fd");
}

/* Never reached before a skel answers; the stubs do not load without them. */
int dspqueue_create(void) { return answer("queue"); }
int dspqueue_close(void) { return answer("queue"); }
int dspqueue_export(void) { return answer("queue"); }
int dspqueue_read(void) { return answer("queue"); }
int dspqueue_read_noblock(void) { return answer("queue"); }
int dspqueue_write(void) { return answer("queue"); }
int dspqueue_write_noblock(void) { return answer("queue"); }
