/* Serves the client of a protection domain: calls, and the client's memory (wire.h).
 *
 * What the client maps is found by the number that the client's fd has there. A call runs on the
 * thread of its channel.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader.h"

enum { CHANNEL_STACK = 4 << 20, SLACK = 8192, ALIGNED = 128 };
enum { MOST_COPIED = 256 << 20, MOST_MAPPINGS = 4096, MAP_DELAYED = 3 };
enum { NO_LONGER_NAMED = -1 };

static int loaded;

/* --- the client's memory ------------------------------------------------------------------------- */

/* `fd` is the client's number, `own` this process's; `asked` while the client wants it mapped, `held`
   counts the uses of it. One that has no size is free. */
static struct mapping {
    int fd, own, held;
    bool asked;
    size_t size;
    uint8_t *base;
} mappings[MOST_MAPPINGS];
static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;

static struct mapping *mapping_of(int fd) {
    for (int i = 0; i < MOST_MAPPINGS; i++)
        if (mappings[i].size > 0 && mappings[i].fd == fd) return &mappings[i];
    return NULL;
}

static struct mapping *mapping_at(const void *address) {
    for (int i = 0; i < MOST_MAPPINGS; i++)
        if (mappings[i].base != NULL && mappings[i].base == address) return &mappings[i];
    return NULL;
}

/* With `mappings_lock` held: where the memory lies; NULL if there is no room for it. */
static uint8_t *placed(struct mapping *one) {
    if (one->base == NULL) {
        void *base = mmap(NULL, one->size, PROT_READ | PROT_WRITE, MAP_SHARED, one->own, 0);
        if (base == MAP_FAILED) return NULL;
        one->base = base;
    }
    return one->base;
}

static void forget_if_unused(struct mapping *one) {
    if (one->asked || one->held > 0) return;
    if (one->base != NULL) munmap(one->base, one->size);
    close(one->own);
    *one = (struct mapping){0};
}

static int map(const struct wire_request *request, int own, uint64_t *address) {
    struct stat status;
    int error = 0;
    pthread_mutex_lock(&mappings_lock);
    struct mapping *one = mapping_of(request->fd);
    if (one != NULL) { /* the same number is another file now */
        one->fd = NO_LONGER_NAMED;
        one->asked = false;
        forget_if_unused(one);
    }
    for (one = mappings; one < mappings + MOST_MAPPINGS && one->size > 0;) one++;
    if (one == mappings + MOST_MAPPINGS || fstat(own, &status) != 0 || request->length == 0 ||
        request->length > UINT32_MAX || (uint64_t)status.st_size < request->length) {
        close(own);
        error = AEE_EBADPARM;
    } else {
        *one = (struct mapping){request->fd, own, 0, true, (size_t)request->length, NULL};
        if (request->flags != MAP_DELAYED && placed(one) == NULL) error = AEE_ENOMEMORY;
        *address = (uintptr_t)one->base;
        if (error != 0) one->asked = false;
        forget_if_unused(one);
    }
    pthread_mutex_unlock(&mappings_lock);
    return error;
}

static int unmap(int fd) {
    pthread_mutex_lock(&mappings_lock);
    struct mapping *one = mapping_of(fd);
    bool asked = one != NULL && one->asked;
    if (asked) {
        one->asked = false;
        forget_if_unused(one);
    }
    pthread_mutex_unlock(&mappings_lock);
    return asked ? 0 : AEE_EBADPARM;
}

/* Where `size` bytes of a mapped fd lie, held until `release_mapping`; NULL if they do not. */
uint8_t *hold_mapping(int fd, uint32_t offset, uint32_t size) {
    uint8_t *at = NULL;
    pthread_mutex_lock(&mappings_lock);
    struct mapping *one = mapping_of(fd);
    if (one != NULL && offset <= one->size && size <= one->size - offset && placed(one) != NULL) {
        one->held++;
        at = one->base + offset;
    }
    pthread_mutex_unlock(&mappings_lock);
    return at;
}

static void let_go(struct mapping *one) {
    if (one == NULL || one->held == 0) return;
    one->held--;
    forget_if_unused(one);
}

void release_mapping(int fd) {
    pthread_mutex_lock(&mappings_lock);
    let_go(mapping_of(fd));
    pthread_mutex_unlock(&mappings_lock);
}

int dsp_HAP_mmap_get(int fd, void **address, uint64_t *physical) {
    uint8_t *at = hold_mapping(fd, 0, 0);
    if (at == NULL) return AEE_EBADPARM;
    if (address != NULL) *address = at;
    if (physical != NULL) *physical = (uintptr_t)at;
    return 0;
}
int dsp_HAP_mmap_put(int fd) { return release_mapping(fd), 0; }

void *dsp_HAP_mmap2(void *wanted, size_t size, int protection, int flags, int fd, uint64_t offset) {
    (void)wanted, (void)protection, (void)flags;
    uint8_t *at = offset <= UINT32_MAX ? hold_mapping(fd, (uint32_t)offset, size) : NULL;
    return at == NULL ? (void *)-1 : at;
}
void *dsp_HAP_mmap(void *wanted, int size, int protection, int flags, int fd, long offset) {
    return dsp_HAP_mmap2(wanted, (size_t)size, protection, flags, fd, (uint64_t)offset);
}
int unmap_address(void *address) {
    pthread_mutex_lock(&mappings_lock);
    let_go(mapping_at(address));
    pthread_mutex_unlock(&mappings_lock);
    return 0;
}

/* --- calls --------------------------------------------------------------------------------------- */

/* As FastRPC hands arguments to a skel. */
union argument {
    struct {
        void *data;
        uint32_t size;
    } buffer;
    struct {
        int32_t fd;
        uint32_t offset;
    } handle;
};

typedef int invoke_function(uint64_t handle, uint32_t scalars, union argument *arguments);
typedef int open_function(const char *uri, uint64_t *handle);
typedef int close_function(uint64_t handle);

static invoke_function *invoke_skel;
static close_function *close_skel;

/* file:///libX.so?PREFIX_skel_handle_invoke&...: the skel's functions begin with its version. */
static int open_handle(const char *uri, uint64_t *handle) {
    static const char ending[] = "_skel_handle_invoke";
    char name[128], base[128];
    const char *start = strchr(uri, '?');
    if (loaded != 0) return loaded;
    if (start == NULL) return AEE_EBADPARM;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(start + 1, "&"), start + 1);
    size_t length = strlen(name);
    if (length <= sizeof ending || strcmp(name + length - (sizeof ending - 1), ending) != 0)
        return AEE_ENOSUCHSYMBOL;
    snprintf(base, sizeof base, "%.*s", (int)(length - (sizeof ending - 1)), name);
    invoke_function *invoke = (invoke_function *)skel_symbol(name);
    snprintf(name, sizeof name, "%.100s_open", base);
    open_function *open = (open_function *)skel_symbol(name);
    snprintf(name, sizeof name, "%.100s_close", base);
    if (invoke == NULL || open == NULL) {
        say("the skel has no %s_open: it is of another version than the stub", base);
        return AEE_ENOSUCHSYMBOL;
    }
    invoke_skel = invoke;
    close_skel = (close_function *)skel_symbol(name);
    return open(uri, handle);
}

/* Makes the call; `text` is the first copied input. */
static int make_call(const struct wire_call_head *head, union argument *arguments, const char *text,
                     uint64_t *value) {
    if (head->kind == WIRE_OPEN) {
        strcpy(doing, "opening the skel");
        return text == NULL ? AEE_EBADPARM : open_handle(text, value);
    }
    if (invoke_skel == NULL) return AEE_EINVHANDLE;
    if (head->kind == WIRE_CLOSE)
        return close_skel == NULL ? 0 : close_skel(head->handle);
    snprintf(doing, sizeof doing, "method %u of the skel", (unsigned)(head->scalars >> 24 & 31));
    return invoke_skel(head->handle, head->scalars, arguments);
}

/* Takes one call from its channel and answers it; false when the channel is to be closed. */
static bool serve_call(int channel) {
    struct wire_call_head head;
    struct wire_argument told[MAX_ARGUMENTS];
    union argument arguments[MAX_ARGUMENTS];
    void *copies[MAX_ARGUMENTS] = {NULL};
    struct wire_answer answer = {0, 0, 0};
    const char *text = NULL;
    uint64_t copied = 0;
    uint32_t held = 0;
    if (!receive_all(channel, &head, sizeof head) || head.count > MAX_ARGUMENTS ||
        !receive_all(channel, told, head.count * sizeof *told))
        return false;
    bool works = true;
    for (uint32_t i = 0; i < head.count && works; i++, held++) {
        struct wire_argument *one = &told[i];
        if (one->kind == WIRE_HANDLE) {
            arguments[i].handle.fd = one->fd;
            arguments[i].handle.offset = one->offset;
        } else if (one->kind == WIRE_IN_MAPPED || one->kind == WIRE_OUT_MAPPED) {
            arguments[i].buffer.size = one->size;
            arguments[i].buffer.data = hold_mapping(one->fd, one->offset, one->size);
            if (arguments[i].buffer.data == NULL) answer.status = AEE_EBADPARM, one->size = 0;
        } else {
            copied += one->size;
            works = copied <= MOST_COPIED &&
                    posix_memalign(&copies[i], ALIGNED, one->size + SLACK) == 0;
            if (!works) break;
            memset(copies[i], 0, one->size + SLACK);
            arguments[i].buffer.data = copies[i];
            arguments[i].buffer.size = one->size;
            if (one->kind == WIRE_IN_COPIED) {
                works = receive_all(channel, copies[i], one->size);
                if (text == NULL) text = copies[i];
            }
        }
    }
    if (works && answer.status == 0) answer.status = make_call(&head, arguments, text, &answer.value);
    doing[0] = '\0';
    works = works && send_all(channel, (struct iovec[]){{&answer, sizeof answer}}, 1);
    for (uint32_t i = 0; i < head.count; i++) {
        if (works && told[i].kind == WIRE_OUT_COPIED)
            works = send_all(channel, (struct iovec[]){{copies[i], told[i].size}}, 1);
        if (i < held && arguments[i].buffer.data != NULL &&
            (told[i].kind == WIRE_IN_MAPPED || told[i].kind == WIRE_OUT_MAPPED))
            release_mapping(told[i].fd);
        free(copies[i]);
    }
    return works;
}

static void *serve_channel(void *socket) {
    int channel = (int)(intptr_t)socket;
    while (serve_call(channel)) continue;
    close(channel);
    return NULL;
}

/* --- the client ---------------------------------------------------------------------------------- */

/* A request and the fd that came with it, -1 without one; false when the client has gone. */
static bool next_request(int control, struct wire_request *request, int *fd) {
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } extra;
    struct iovec part = {request, sizeof *request};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &extra,
                             .msg_controllen = sizeof extra};
    ssize_t got;
    while ((got = recvmsg(control, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) continue;
    struct cmsghdr *head = got == sizeof *request ? CMSG_FIRSTHDR(&message) : NULL;
    *fd = -1;
    if (head != NULL && head->cmsg_type == SCM_RIGHTS) memcpy(fd, CMSG_DATA(head), sizeof *fd);
    return got == sizeof *request;
}

void serve(int control, int error) {
    struct wire_request request;
    int fd;
    loaded = error;
    while (next_request(control, &request, &fd)) {
        struct wire_answer answer = {AEE_EBADPARM, 0, 0};
        if (request.kind == WIRE_UNMAP)
            answer.status = unmap(request.fd);
        else if (fd >= 0 && request.kind == WIRE_MAP)
            answer.status = map(&request, fd, &answer.value);
        else if (fd >= 0 && request.kind == WIRE_QUEUE)
            answer.status = new_queue(fd, &answer.value);
        else if (fd >= 0 && request.kind == WIRE_CHANNEL)
            answer.status =
                begin_thread(NULL, serve_channel, (void *)(intptr_t)fd, CHANNEL_STACK) == 0
                    ? 0
                    : AEE_ENOMEMORY;
        if (!send_all(control, (struct iovec[]){{&answer, sizeof answer}}, 1)) break;
    }
}
