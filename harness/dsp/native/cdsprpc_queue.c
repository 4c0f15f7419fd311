/* Queues of packets as the client makes, uses and closes them (dspqueue). */
#define _GNU_SOURCE
#include <sys/socket.h>
#include <unistd.h>

#include "cdsprpc.h"

enum { MAX_QUEUES = 64, MAX_MEMORY = 16 << 20, STACK = 1 << 20 };
enum { FLAG_MESSAGE = 1, FLAG_BUFFERS = 2, FLAG_REFERENCE = 4, FLAG_DEREFERENCE = 8 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static struct queue *queues[MAX_QUEUES];

/* Tells whoever waits, and each queue's owner; they may close it as they are told. */
void queues_died(const struct pd *pd, int error) {
    for (int at = 0; at < MAX_QUEUES; at++) {
        struct queue told = {0};
        pthread_mutex_lock(&mutex);
        struct queue *queue = queues[at];
        if (queue != NULL && queue->owner == pd) {
            queue_fails(queue, error);
            told = *queue;
        }
        pthread_mutex_unlock(&mutex);
        if (told.on_error != NULL) told.on_error(queue, error, told.context);
    }
}

/* Puts another in its place in the list; whether it is in there. */
static bool relist(struct queue *old, struct queue *new) {
    int at = 0;
    pthread_mutex_lock(&mutex);
    while (at < MAX_QUEUES && queues[at] != old) at++;
    if (at < MAX_QUEUES) queues[at] = new;
    pthread_mutex_unlock(&mutex);
    return at < MAX_QUEUES;
}

EXPORTED int dspqueue_create(int domain, uint32_t flags, uint32_t requests, uint32_t responses,
                             queue_called *on_packet, queue_called *on_error, void *context,
                             struct queue **made) {
    int answer = 0, pair[2];
    if (answered("queue", &answer)) return answer;
    if (made == NULL || flags != 0 || requests > MAX_MEMORY || responses > MAX_MEMORY)
        return AEE_EBADPARM;
    *made = NULL;
    struct pd *pd = session_pd(domain);
    if (pd == NULL) return said("queue", AEE_ENOTINITIALIZED, "no queue to domain %d", domain);
    struct queue *queue = NULL;
    int error = AEE_ENOMEMORY;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
        struct wire_request request = {.kind = WIRE_QUEUE};
        queue = queue_over(pair[0]);
        pthread_mutex_lock(&pd->mutex);
        if (queue != NULL) error = pd_control(pd, request, pair[1], &queue->number);
        pthread_mutex_unlock(&pd->mutex);
        close(pair[1]);
        if (queue == NULL) close(pair[0]);
    }
    if (error == 0) {
        queue->owner = pd;
        queue->on_packet = on_packet;
        queue->on_error = on_error;
        queue->context = context;
        if (!relist(NULL, queue))
            error = AEE_EBADPARM;
        else if (!queue_listens(queue, STACK) && relist(queue, NULL))
            error = AEE_ENOMEMORY;
    }
    if (error == 0) {
        *made = queue;
        return 0;
    }
    if (queue != NULL) queue_free(queue);
    pd_release(pd);
    return said("queue", error, "no queue to domain %d", domain);
}

EXPORTED int dspqueue_close(struct queue *queue) {
    int answer = 0;
    if (answered("queue", &answer)) return answer;
    if (queue == NULL || !relist(queue, NULL)) return AEE_EBADPARM;
    queue_fails(queue, AEE_EBADPARM);
    shutdown(queue->socket, SHUT_RDWR);
    pthread_join(queue->thread, NULL);
    pd_release(queue->owner);
    queue_free(queue);
    return 0;
}

EXPORTED int dspqueue_export(struct queue *queue, uint64_t *id) {
    int answer = 0;
    if (answered("queue", &answer)) return answer;
    *id = queue->number;
    return 0;
}

/* Each must be mapped, and may take or give back a reference. */
int buffers_taken(struct queue *queue, struct wire_buffer *buffers, uint32_t count) {
    for (uint32_t at = 0; at < count; at++) {
        const struct wire_buffer *one = &buffers[at];
        int change = one->flags & FLAG_REFERENCE ? 1 : one->flags & FLAG_DEREFERENCE ? -1 : 0;
        uint64_t end = (uint64_t)one->offset + one->size;
        int error = refer_to_mapping(queue->owner, (int)one->fd, end, change);
        if (error != 0) return said("queue", error, "a packet names fd %u", one->fd);
    }
    return 0;
}

EXPORTED int dspqueue_write(struct queue *queue, uint32_t flags, uint32_t count,
                            struct wire_buffer *buffers, uint32_t size, const uint8_t *message,
                            uint32_t micros) {
    int answer = 0;
    if (answered("write", &answer)) return answer;
    if (queue == NULL || (count > 0 && buffers == NULL)) return AEE_EBADPARM;
    if (queue->error != 0) return queue->error;
    answer = buffers_taken(queue, buffers, count);
    if (answer != 0) return answer;
    flags &= ~(uint32_t)(FLAG_MESSAGE | FLAG_BUFFERS);
    flags |= (size > 0 ? FLAG_MESSAGE : 0) | (count > 0 ? FLAG_BUFFERS : 0);
    return put_packet(queue, flags, count, buffers, size, message, micros);
}

EXPORTED int dspqueue_write_noblock(struct queue *queue, uint32_t flags, uint32_t count,
                                    struct wire_buffer *buffers, uint32_t size,
                                    const uint8_t *message) {
    return dspqueue_write(queue, flags, count, buffers, size, message, 0);
}

EXPORTED int dspqueue_read(struct queue *queue, uint32_t *flags, uint32_t max_count,
                           uint32_t *count, struct wire_buffer *buffers, uint32_t max_size,
                           uint32_t *size, uint8_t *message, uint32_t micros) {
    int answer = 0;
    if (answered("read", &answer)) return answer;
    if (queue == NULL) return AEE_EBADPARM;
    return take_packet(queue, flags, max_count, count, buffers, max_size, size, message, micros);
}

EXPORTED int dspqueue_read_noblock(struct queue *queue, uint32_t *flags, uint32_t max_count,
                                   uint32_t *count, struct wire_buffer *buffers, uint32_t max_size,
                                   uint32_t *size, uint8_t *message) {
    return dspqueue_read(queue, flags, max_count, count, buffers, max_size, size, message, 0);
}
