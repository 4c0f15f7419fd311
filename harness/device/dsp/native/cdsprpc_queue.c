/* Queues of packets between a client and its protection domain, over a socket each. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cdsprpc.h"

enum { MAX_QUEUES = 64, MAX_BUFFERS = 64, MAX_MESSAGE = 65536, MAX_MEMORY = 16 << 20 };
enum { FLAG_MESSAGE = 1, FLAG_BUFFERS = 2, FLAG_REFERENCE = 4, FLAG_DEREFERENCE = 8 };

struct packet {
    struct packet *next;
    struct wire_packet head;
    char content[];
};

struct queue;
typedef void (*callback)(struct queue *queue, int error, void *context);

struct queue {
    struct pd *pd;
    int socket, error;
    uint64_t id;
    callback on_packet, on_error;
    void *context;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct packet *first, **last;
    bool closed;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static struct queue *queues[MAX_QUEUES];

/* Tells whoever waits, and each queue's owner; they may close it as they are told. */
void queues_died(const struct pd *pd, int error) {
    for (int at = 0; at < MAX_QUEUES; at++) {
        pthread_mutex_lock(&mutex);
        struct queue *queue = queues[at];
        callback on_error = NULL;
        void *context = NULL;
        if (queue != NULL && queue->pd == pd) {
            pthread_mutex_lock(&queue->mutex);
            on_error = queue->on_error;
            context = queue->context;
            queue->error = error;
            pthread_cond_broadcast(&queue->changed);
            pthread_mutex_unlock(&queue->mutex);
        }
        pthread_mutex_unlock(&mutex);
        if (on_error != NULL) on_error(queue, error, context);
    }
}

/* A packet that is not as long as it says, or names what cannot be, ends the queue. */
static bool is_whole(const struct packet *packet, ssize_t got) {
    const struct wire_packet *head = &packet->head;
    return got >= (ssize_t)sizeof *head && head->buffers <= MAX_BUFFERS &&
           head->message <= MAX_MESSAGE &&
           (size_t)got == sizeof *head + head->buffers * sizeof(struct wire_buffer) + head->message;
}

static void *receive(void *argument) {
    enum { ROOM = MAX_BUFFERS * sizeof(struct wire_buffer) + MAX_MESSAGE };
    struct queue *queue = argument;
    for (;;) {
        struct packet *packet = malloc(sizeof *packet + ROOM);
        ssize_t got = packet == NULL
                          ? -1
                          : recv(queue->socket, &packet->head, sizeof packet->head + ROOM, 0);
        if (!is_whole(packet, got)) {
            free(packet);
            break;
        }
        struct packet *fitting = realloc(packet, sizeof *packet + (size_t)got);
        if (fitting != NULL) packet = fitting;
        packet->next = NULL;
        pthread_mutex_lock(&queue->mutex);
        *queue->last = packet;
        queue->last = &packet->next;
        pthread_cond_broadcast(&queue->changed);
        pthread_mutex_unlock(&queue->mutex);
        if (queue->on_packet != NULL) queue->on_packet(queue, 0, queue->context);
    }
    return NULL;
}

EXPORTED int dspqueue_create(int domain, uint32_t flags, uint32_t requests, uint32_t responses,
                             callback on_packet, callback on_error, void *context,
                             struct queue **made) {
    int answer = 0, pair[2];
    enum told told = scripted("queue", &answer);
    if (told == TOLD_ANSWER || dsp_folder() == NULL) return answer;
    if (made == NULL || flags != 0 || requests > MAX_MEMORY || responses > MAX_MEMORY)
        return AEE_EBADPARM;
    *made = NULL;
    struct queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL) return AEE_ENOMEMORY;
    *queue = (struct queue){.pd = session_pd(domain), .socket = -1, .on_packet = on_packet,
                            .on_error = on_error, .context = context};
    queue->last = &queue->first;
    int error = queue->pd == NULL ? AEE_ENOTINITIALIZED : AEE_ENOMEMORY;
    if (queue->pd != NULL && told == TOLD_DEATH) pd_kill(queue->pd);
    if (queue->pd != NULL && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
        struct wire_request request = {.kind = WIRE_QUEUE};
        queue->socket = pair[0];
        pthread_mutex_lock(&queue->pd->mutex);
        error = pd_control(queue->pd, request, pair[1], &queue->id);
        pthread_mutex_unlock(&queue->pd->mutex);
        close(pair[1]);
    }
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->changed, NULL);
    pthread_mutex_lock(&mutex);
    int at = 0;
    while (at < MAX_QUEUES && queues[at] != NULL) at++;
    if (error == 0 && at == MAX_QUEUES) error = AEE_EBADPARM;
    if (error == 0 && pthread_create(&queue->thread, NULL, receive, queue) != 0)
        error = AEE_ENOMEMORY;
    if (error == 0) queues[at] = *made = queue;
    pthread_mutex_unlock(&mutex);
    if (error == 0) return 0;
    if (queue->socket >= 0) close(queue->socket);
    pd_release(queue->pd);
    free(queue);
    return said("queue", error, "no queue to domain %d", domain);
}

EXPORTED int dspqueue_close(struct queue *queue) {
    int answer = 0;
    if (scripted("queue", &answer) == TOLD_ANSWER || dsp_folder() == NULL) return answer;
    bool there = false;
    pthread_mutex_lock(&mutex);
    for (int at = 0; at < MAX_QUEUES && !there; at++)
        if (queue != NULL && queues[at] == queue) {
            queues[at] = NULL;
            there = true;
        }
    pthread_mutex_unlock(&mutex);
    if (!there) return AEE_EBADPARM;
    pthread_mutex_lock(&queue->mutex);
    queue->closed = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    shutdown(queue->socket, SHUT_RDWR);
    pthread_join(queue->thread, NULL);
    close(queue->socket);
    while (queue->first != NULL) {
        struct packet *next = queue->first->next;
        free(queue->first);
        queue->first = next;
    }
    pd_release(queue->pd);
    free(queue);
    return 0;
}

EXPORTED int dspqueue_export(struct queue *queue, uint64_t *id) {
    int answer = 0;
    if (scripted("queue", &answer) == TOLD_ANSWER || dsp_folder() == NULL) return answer;
    *id = queue->id;
    return 0;
}

/* Each buffer must be mapped, and may take or give back a reference. */
static int refer(struct queue *queue, const struct wire_buffer *buffers, uint32_t count) {
    for (uint32_t at = 0; at < count; at++) {
        const struct wire_buffer *one = &buffers[at];
        size_t size = 0;
        int change = one->flags & FLAG_REFERENCE ? 1 : one->flags & FLAG_DEREFERENCE ? -1 : 0;
        int error = mapping_reference(queue->pd, (int)one->fd, change, &size);
        if (error == 0 && (uint64_t)one->offset + one->size > size) error = AEE_EBADPARM;
        if (error != 0) return said("queue", error, "a packet names fd %u", one->fd);
    }
    return 0;
}

EXPORTED int dspqueue_write(struct queue *queue, uint32_t flags, uint32_t count,
                            struct wire_buffer *buffers, uint32_t size, const uint8_t *message,
                            uint32_t timeout_us) {
    int answer = 0;
    enum told told = scripted("write", &answer);
    if (told == TOLD_ANSWER || dsp_folder() == NULL) return answer;
    if (queue == NULL || count > MAX_BUFFERS || size > MAX_MESSAGE || (count > 0 && !buffers) ||
        (size > 0 && message == NULL))
        return AEE_EBADPARM;
    if (told == TOLD_DEATH) pd_kill(queue->pd);
    if (queue->error != 0) return queue->error;
    int error = refer(queue, buffers, count);
    if (error != 0) return error;
    flags &= ~(uint32_t)(FLAG_MESSAGE | FLAG_BUFFERS);
    flags |= (size > 0 ? FLAG_MESSAGE : 0) | (count > 0 ? FLAG_BUFFERS : 0);
    struct wire_packet head = {.flags = flags, .buffers = count, .message = size};
    struct iovec parts[] = {
        {&head, sizeof head}, {buffers, count * sizeof *buffers}, {(void *)message, size}};
    struct msghdr whole = {.msg_iov = parts, .msg_iovlen = 3};
    struct pollfd room = {.fd = queue->socket, .events = POLLOUT};
    int wait_ms = timeout_us == UINT32_MAX ? -1 : (int)(timeout_us / 1000);
    if (timeout_us > 0 && poll(&room, 1, wait_ms) == 0) return AEE_EEXPIRED;
    if (sendmsg(queue->socket, &whole, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return 0;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return AEE_EWOULDBLOCK;
    return queue->error != 0 ? queue->error : AEE_ENOSUCH;
}

EXPORTED int dspqueue_write_noblock(struct queue *queue, uint32_t flags, uint32_t count,
                                    struct wire_buffer *buffers, uint32_t size,
                                    const uint8_t *message) {
    return dspqueue_write(queue, flags, count, buffers, size, message, 0);
}

/* Waits for a packet; 0, or why there is none. With the queue's mutex. */
static int wait_for_packet(struct queue *queue, uint32_t timeout_us) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    uint64_t ns = (uint64_t)end.tv_nsec + (uint64_t)timeout_us * 1000;
    end.tv_sec += (time_t)(ns / 1000000000);
    end.tv_nsec = (long)(ns % 1000000000);
    while (queue->first == NULL) {
        if (queue->error != 0 || queue->closed) return queue->error ? queue->error : AEE_EBADPARM;
        if (timeout_us == 0) return AEE_EWOULDBLOCK;
        if (timeout_us == UINT32_MAX)
            pthread_cond_wait(&queue->changed, &queue->mutex);
        else if (pthread_cond_timedwait(&queue->changed, &queue->mutex, &end) == ETIMEDOUT)
            return AEE_EEXPIRED;
    }
    return 0;
}

EXPORTED int dspqueue_read(struct queue *queue, uint32_t *flags, uint32_t max_count,
                           uint32_t *count, struct wire_buffer *buffers, uint32_t max_size,
                           uint32_t *size, uint8_t *message, uint32_t timeout_us) {
    int answer = 0;
    if (scripted("read", &answer) == TOLD_ANSWER || dsp_folder() == NULL) return answer;
    if (queue == NULL) return AEE_EBADPARM;
    pthread_mutex_lock(&queue->mutex);
    int error = wait_for_packet(queue, timeout_us);
    struct packet *packet = queue->first;
    if (error == 0 && ((buffers != NULL && packet->head.buffers > max_count) ||
                       (message != NULL && packet->head.message > max_size)))
        error = AEE_EBADPARM;
    if (error == 0) {
        queue->first = packet->next;
        if (queue->first == NULL) queue->last = &queue->first;
    }
    pthread_mutex_unlock(&queue->mutex);
    if (error != 0) return error;
    size_t listed = packet->head.buffers * sizeof *buffers;
    if (flags != NULL) *flags = packet->head.flags;
    if (count != NULL) *count = packet->head.buffers;
    if (size != NULL) *size = packet->head.message;
    error = refer(queue, (struct wire_buffer *)packet->content, packet->head.buffers);
    if (buffers != NULL) memcpy(buffers, packet->content, listed);
    if (message != NULL) memcpy(message, packet->content + listed, packet->head.message);
    free(packet);
    return error;
}

EXPORTED int dspqueue_read_noblock(struct queue *queue, uint32_t *flags, uint32_t max_count,
                                   uint32_t *count, struct wire_buffer *buffers, uint32_t max_size,
                                   uint32_t *size, uint8_t *message) {
    return dspqueue_read(queue, flags, max_count, count, buffers, max_size, size, message, 0);
}
