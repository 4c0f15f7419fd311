/* Queues of packets between the client and the skel, beside its calls (dspqueue).
 *
 * A packet names memory by the client's fds; on this side it has the addresses where that is mapped.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "loader.h"
#include "wire.h"

enum { STACK = 4 << 20, MOST_QUEUES = 64, MOST_PACKET = 64 << 10, MOST_BUFFERS = 64 };
enum { WOULD_BLOCK = 516, EXPIRED = DSP_OFFSET + 0x0C, FOREVER = -1 };

/* The address of a buffer is what the DSP sees: where its fd is mapped. */
struct packet {
    struct packet *next;
    struct wire_packet head;
    struct wire_buffer buffers[MOST_BUFFERS];
    uint8_t message[];
};

typedef void queue_called(void *queue, int error, void *context);

struct queue {
    int socket;
    bool closed;
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct packet *first, **last;
    queue_called *on_packet, *on_error;
    void *context;
};
static struct queue *queues[MOST_QUEUES];
static int queue_count;

int new_queue(int socket, uint64_t *number) {
    struct queue *queue = queue_count < MOST_QUEUES ? calloc(1, sizeof *queue) : NULL;
    if (queue == NULL) {
        close(socket);
        return DSP_ENOMEMORY;
    }
    queue->socket = socket;
    queue->last = &queue->first;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->arrived, NULL);
    queues[queue_count++] = queue;
    *number = (uint64_t)queue_count;
    return 0;
}

/* The packet in `data`; NULL if it is none. */
static struct packet *packet_in(const uint8_t *data, size_t size) {
    struct wire_packet head;
    if (size < sizeof head) return NULL;
    memcpy(&head, data, sizeof head);
    size_t buffers = head.buffers * sizeof(struct wire_buffer);
    if (head.buffers > MOST_BUFFERS || size != sizeof head + buffers + head.message) return NULL;
    struct packet *packet = calloc(1, sizeof *packet + head.message);
    if (packet == NULL) return NULL;
    packet->head = head;
    memcpy(packet->buffers, data + sizeof head, buffers);
    memcpy(packet->message, data + sizeof head + buffers, head.message);
    for (uint32_t i = 0; i < head.buffers; i++) {
        struct wire_buffer *one = &packet->buffers[i];
        uint8_t *at = hold_mapping((int)one->fd, one->offset, one->size);
        if (at != NULL) release_mapping((int)one->fd); /* the client maps what its packets name */
        one->address = (uintptr_t)at;
    }
    return packet;
}

static void *receive_packets(void *argument) {
    struct queue *queue = argument;
    uint8_t *data = malloc(MOST_PACKET);
    for (;;) {
        ssize_t got = data == NULL ? 0 : recv(queue->socket, data, MOST_PACKET, 0);
        if (got < 0 && errno == EINTR) continue;
        struct packet *packet = got > 0 ? packet_in(data, (size_t)got) : NULL;
        if (packet == NULL) break;
        pthread_mutex_lock(&queue->lock);
        *queue->last = packet;
        queue->last = &packet->next;
        pthread_cond_broadcast(&queue->arrived);
        pthread_mutex_unlock(&queue->lock);
        strcpy(doing, "a packet of a queue");
        if (queue->on_packet != NULL) queue->on_packet(queue, 0, queue->context);
    }
    free(data);
    return NULL;
}

int dsp_dspqueue_import(uint64_t number, queue_called *on_packet, queue_called *on_error,
                        void *context, struct queue **imported) {
    if (number < 1 || number > (uint64_t)queue_count) return DSP_EBADPARM;
    struct queue *queue = queues[number - 1];
    queue->on_packet = on_packet;
    queue->on_error = on_error;
    queue->context = context;
    *imported = queue;
    return begin_thread(receive_packets, queue, STACK) ? 0 : DSP_ENOMEMORY;
}

/* Nobody uses it afterwards, but its thread may be in a callback: what it holds stays. */
int dsp_dspqueue_close(struct queue *queue) {
    pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    shutdown(queue->socket, SHUT_RDWR);
    pthread_cond_broadcast(&queue->arrived);
    pthread_mutex_unlock(&queue->lock);
    return 0;
}

int dsp_dspqueue_write_noblock(struct queue *queue, uint32_t flags, uint32_t count,
                               const struct wire_buffer *buffers, uint32_t size,
                               const uint8_t *message) {
    struct wire_packet head = {flags, count, size, 0};
    struct iovec parts[] = {{&head, sizeof head},
                            {(void *)buffers, count * sizeof *buffers},
                            {(void *)message, size}};
    struct msghdr whole = {.msg_iov = parts, .msg_iovlen = 3};
    if (count > MOST_BUFFERS || size > MOST_PACKET / 2) return DSP_EBADPARM;
    while (sendmsg(queue->socket, &whole, MSG_NOSIGNAL) < 0)
        if (errno != EINTR) return DSP_EFAILED;
    return 0;
}
int dsp_dspqueue_write(struct queue *queue, uint32_t flags, uint32_t count,
                       const struct wire_buffer *buffers, uint32_t size, const uint8_t *message,
                       uint32_t micros) {
    (void)micros;
    return dsp_dspqueue_write_noblock(queue, flags, count, buffers, size, message);
}

/* `micros` of -1 is forever; 0 does not wait. */
int dsp_dspqueue_read(struct queue *queue, uint32_t *flags, uint32_t most_buffers, uint32_t *count,
                      struct wire_buffer *buffers, uint32_t most_size, uint32_t *size,
                      uint8_t *message, int32_t micros) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += micros / 1000000;
    end.tv_nsec += (long)(micros % 1000000) * 1000;
    if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
    int late = 0;
    pthread_mutex_lock(&queue->lock);
    while (queue->first == NULL && !queue->closed && micros != 0 && late == 0)
        late = micros == FOREVER
                   ? pthread_cond_wait(&queue->arrived, &queue->lock)
                   : pthread_cond_timedwait(&queue->arrived, &queue->lock, &end);
    struct packet *packet = queue->first;
    if (packet != NULL && (queue->first = packet->next) == NULL) queue->last = &queue->first;
    pthread_mutex_unlock(&queue->lock);
    if (packet == NULL) return micros == 0 ? WOULD_BLOCK : EXPIRED;
    if (flags != NULL) *flags = packet->head.flags;
    if (count != NULL) *count = packet->head.buffers;
    if (size != NULL) *size = packet->head.message;
    bool fits = packet->head.buffers <= most_buffers && packet->head.message <= most_size;
    if (fits && buffers != NULL)
        memcpy(buffers, packet->buffers, packet->head.buffers * sizeof *buffers);
    if (fits && message != NULL) memcpy(message, packet->message, packet->head.message);
    free(packet);
    return fits ? 0 : DSP_EBADPARM;
}
int dsp_dspqueue_read_noblock(struct queue *queue, uint32_t *flags, uint32_t most_buffers,
                              uint32_t *count, struct wire_buffer *buffers, uint32_t most_size,
                              uint32_t *size, uint8_t *message) {
    return dsp_dspqueue_read(queue, flags, most_buffers, count, buffers, most_size, size, message, 0);
}
