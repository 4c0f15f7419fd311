/* Queues of packets between a client and its protection domain, over a socket each: both sides'. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire.h"

enum { MAX_BUFFERS = 64, MAX_MESSAGE = 65536 };

struct packet {
    struct packet *next;
    struct wire_packet head;
    char content[]; /* the buffers, then the message */
};

struct queue *queue_over(int socket) {
    struct queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL) return NULL;
    queue->socket = socket;
    queue->last = &queue->first;
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->changed, NULL);
    return queue;
}

void queue_free(struct queue *queue) {
    close(queue->socket);
    while (queue->first != NULL) {
        struct packet *next = queue->first->next;
        free(queue->first);
        queue->first = next;
    }
    free(queue);
}

void queue_fails(struct queue *queue, int error) {
    pthread_mutex_lock(&queue->mutex);
    queue->error = error;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
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
        ssize_t got = -1;
        if (packet != NULL)
            while ((got = recv(queue->socket, &packet->head, sizeof packet->head + ROOM, 0)) < 0 &&
                   errno == EINTR)
                continue;
        if (!is_whole(packet, got)) {
            free(packet);
            return NULL;
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
}

bool queue_listens(struct queue *queue, size_t stack) {
    return begin_thread(&queue->thread, receive, queue, stack) == 0;
}

int put_packet(struct queue *queue, uint32_t flags, uint32_t count,
               const struct wire_buffer *buffers, uint32_t size, const uint8_t *message,
               uint32_t micros) {
    struct wire_packet head = {.flags = flags, .buffers = count, .message = size};
    struct iovec parts[] = {{&head, sizeof head},
                            {(void *)buffers, count * sizeof *buffers},
                            {(void *)message, size}};
    struct msghdr whole = {.msg_iov = parts, .msg_iovlen = 3};
    struct pollfd room = {.fd = queue->socket, .events = POLLOUT};
    if (count > MAX_BUFFERS || size > MAX_MESSAGE || (count > 0 && buffers == NULL) ||
        (size > 0 && message == NULL))
        return AEE_EBADPARM;
    while (sendmsg(queue->socket, &whole, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return queue->error != 0 ? queue->error : AEE_ENOSUCH;
        if (micros == 0) return AEE_EWOULDBLOCK;
        int millis = micros == (uint32_t)FOREVER ? -1 : (int)(micros / 1000);
        if (poll(&room, 1, millis) == 0) return AEE_EEXPIRED;
    }
    return 0;
}

/* Waits for a packet; 0, or why there is none. With the queue's mutex. */
static int wait_for_packet(struct queue *queue, uint32_t micros) {
    struct timespec end = time_after(CLOCK_REALTIME, micros);
    while (queue->first == NULL) {
        if (queue->error != 0) return queue->error;
        if (micros == 0) return AEE_EWOULDBLOCK;
        if (micros == (uint32_t)FOREVER)
            pthread_cond_wait(&queue->changed, &queue->mutex);
        else if (pthread_cond_timedwait(&queue->changed, &queue->mutex, &end) == ETIMEDOUT)
            return AEE_EEXPIRED;
    }
    return 0;
}

int take_packet(struct queue *queue, uint32_t *flags, uint32_t max_count, uint32_t *count,
                struct wire_buffer *buffers, uint32_t max_size, uint32_t *size, uint8_t *message,
                uint32_t micros) {
    pthread_mutex_lock(&queue->mutex);
    int error = wait_for_packet(queue, micros);
    struct packet *packet = queue->first;
    if (error == 0 && ((buffers != NULL && packet->head.buffers > max_count) ||
                       (message != NULL && packet->head.message > max_size)))
        error = AEE_EBADPARM;
    if (error == 0 && (queue->first = packet->next) == NULL) queue->last = &queue->first;
    pthread_mutex_unlock(&queue->mutex);
    if (error != 0) return error;
    size_t listed = packet->head.buffers * sizeof *buffers;
    if (flags != NULL) *flags = packet->head.flags;
    if (count != NULL) *count = packet->head.buffers;
    if (size != NULL) *size = packet->head.message;
    error = buffers_taken(queue, (struct wire_buffer *)packet->content, packet->head.buffers);
    if (buffers != NULL) memcpy(buffers, packet->content, listed);
    if (message != NULL) memcpy(message, packet->content + listed, packet->head.message);
    free(packet);
    return error;
}
