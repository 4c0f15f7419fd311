/* Queues between the client and the skel, as the skel imports them (dspqueue). */
#define _GNU_SOURCE
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loader.h"

enum { STACK = 4 << 20, MOST_QUEUES = 64 };

static struct queue *queues[MOST_QUEUES];
static uint32_t queue_count;

int new_queue(int socket, uint64_t *number) {
    struct queue *queue = queue_count < MOST_QUEUES ? queue_over(socket) : NULL;
    if (queue == NULL) {
        close(socket);
        return AEE_ENOMEMORY;
    }
    queues[queue_count++] = queue;
    *number = queue_count;
    return 0;
}

/* A packet names memory by the client's fds; the skel sees the addresses where that is mapped. */
int buffers_taken(struct queue *queue, struct wire_buffer *buffers, uint32_t count) {
    (void)queue;
    strcpy(doing, "a packet of a queue");
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *at = hold_mapping((int)buffers[i].fd, buffers[i].offset, buffers[i].size);
        if (at != NULL) release_mapping((int)buffers[i].fd); /* the client maps what it names */
        buffers[i].address = (uintptr_t)at;
    }
    return 0;
}

int dsp_dspqueue_import(uint64_t number, queue_called *on_packet, queue_called *on_error,
                        void *context, struct queue **imported) {
    if (number < 1 || number > queue_count) return AEE_EBADPARM;
    struct queue *queue = *imported = queues[number - 1];
    queue->on_packet = on_packet;
    queue->on_error = on_error;
    queue->context = context;
    return queue_listens(queue, STACK) ? 0 : AEE_ENOMEMORY;
}

/* Nobody uses it afterwards, but its thread may be in a callback: what it holds stays. */
int dsp_dspqueue_close(struct queue *queue) {
    queue_fails(queue, AEE_EBADPARM);
    return shutdown(queue->socket, SHUT_RDWR);
}

/* The skel's packets are few and short: each waits for room, however long it may. */
int dsp_dspqueue_write_noblock(struct queue *queue, uint32_t flags, uint32_t count,
                               const struct wire_buffer *buffers, uint32_t size,
                               const uint8_t *message) {
    return put_packet(queue, flags, count, buffers, size, message, (uint32_t)FOREVER);
}

int dsp_dspqueue_read_noblock(struct queue *queue, uint32_t *flags, uint32_t most_buffers,
                              uint32_t *count, struct wire_buffer *buffers, uint32_t most_size,
                              uint32_t *size, uint8_t *message) {
    return take_packet(queue, flags, most_buffers, count, buffers, most_size, size, message, 0);
}
