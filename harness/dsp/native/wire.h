/* What a client's libcdsprpc.so and a DSP's process say to each other. All little endian, no pointers.
 *
 * The control socket (SOCK_SEQPACKET, fd 3 of the DSP's process) carries wire_request, with a fd
 * where one is named below, each answered by a wire_answer. A call's channel (SOCK_STREAM) carries
 * wire_call_head, `count` wire_argument, and the bytes of copied inputs; it is answered by a
 * wire_answer and the bytes of copied outputs, whatever the status. A queue's socket
 * (SOCK_SEQPACKET) carries packets in both directions: wire_packet, `buffers` wire_buffer, and
 * `message` bytes.
 */
#ifndef WIRE_H
#define WIRE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <time.h>

/* Errors as AEEStdErr.h has them. The DSP's own begin at an offset, but for the last. */
#ifdef __hexagon__
enum { AEE_OFFSET = (int)0x80000400 };
#else
enum { AEE_OFFSET = 0 };
#endif
enum {
    AEE_EFAILED = AEE_OFFSET + 0x1,
    AEE_ENOMEMORY = AEE_OFFSET + 0x2,
    AEE_EALREADYLOADED = AEE_OFFSET + 0x5,
    AEE_EUNABLETOLOAD = AEE_OFFSET + 0x6,
    AEE_EEXPIRED = AEE_OFFSET + 0xC,
    AEE_EBADPARM = AEE_OFFSET + 0xE,
    AEE_EUNSUPPORTED = AEE_OFFSET + 0x14,
    AEE_EALREADY = AEE_OFFSET + 0x1A,
    AEE_ENOSUCH = AEE_OFFSET + 0x27, /* the protection domain is not there */
    AEE_EINVHANDLE = AEE_OFFSET + 0x2C,
    AEE_ENOSUCHSYMBOL = AEE_OFFSET + 0x42,
    AEE_ENOSUCHMAP = AEE_OFFSET + 0x48,
    AEE_EBADSIZE = AEE_OFFSET + 0x4D,
    AEE_EBADELF = AEE_OFFSET + 0x52,
    AEE_ECONNRESET = AEE_OFFSET + 0x68, /* the whole DSP was started again */
    AEE_ENOTINITIALIZED = AEE_OFFSET + 0x6B,
    AEE_ECONNREFUSED = AEE_OFFSET + 0x72,
    AEE_ENOSESSION = AEE_OFFSET + 0x8A,
    AEE_EWOULDBLOCK = 516,
};

enum wire_control {
    WIRE_CHANNEL = 1, /* with a fd: a new channel, served by a thread of its own */
    WIRE_MAP,         /* with a fd of `length` bytes, which the client calls `fd`; value: where */
    WIRE_UNMAP,       /* `fd` */
    WIRE_QUEUE,       /* with a fd: a new queue; value: its number */
};

struct wire_request {
    uint32_t kind;
    int32_t fd;
    uint32_t flags, zero;
    uint64_t length;
};

struct wire_answer {
    int32_t status;
    uint32_t zero;
    uint64_t value;
};

enum wire_call { WIRE_OPEN = 1, WIRE_INVOKE, WIRE_CLOSE };

/* Opening has the URI as its only input, with its NUL, and answers the handle. */
struct wire_call_head {
    uint32_t kind, scalars, count, zero;
    uint64_t handle;
};

enum wire_kind { WIRE_IN_COPIED, WIRE_OUT_COPIED, WIRE_IN_MAPPED, WIRE_OUT_MAPPED, WIRE_HANDLE };
enum { MAX_ARGUMENTS = 2 * 255 + 2 * 15 };

/* What is mapped, and a handle, names a fd that WIRE_MAP named before. */
struct wire_argument {
    uint32_t kind;
    int32_t fd;
    uint32_t offset, size;
};

struct wire_packet {
    uint32_t flags, buffers, message, zero;
};

struct wire_buffer {
    uint32_t fd, size, offset, flags;
    uint64_t address;
};

/* Whether all of it went, or came; what was sent is taken off `parts`. */
bool send_all(int fd, struct iovec *parts, size_t count);
bool receive_all(int fd, void *data, size_t size);
/* When so many microseconds from now have passed. */
struct timespec time_after(clockid_t clock, uint64_t micros);
/* A thread with a stack of this size, which nobody waits for where `thread` is NULL; an errno. */
int begin_thread(pthread_t *thread, void *(*run)(void *), void *argument, size_t stack);

/* --- packets.c: a queue over a socket ------------------------------------------------------------ */

enum { FOREVER = -1 }; /* as microseconds */

struct queue;
typedef void queue_called(struct queue *queue, int error, void *context);
struct queue {
    void *owner;
    int socket, error; /* why nothing comes any more, or 0 */
    uint64_t number;
    queue_called *on_packet, *on_error;
    void *context;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct packet *first, **last;
};

/* A queue over a socket, which is the queue's from now on; NULL without memory. */
struct queue *queue_over(int socket);
/* Begins the thread that receives, with a stack of this size. */
bool queue_listens(struct queue *queue, size_t stack);
/* Tells whoever waits that nothing comes any more. */
void queue_fails(struct queue *queue, int error);
void queue_free(struct queue *queue);
int put_packet(struct queue *queue, uint32_t flags, uint32_t count,
               const struct wire_buffer *buffers, uint32_t size, const uint8_t *message,
               uint32_t micros);
int take_packet(struct queue *queue, uint32_t *flags, uint32_t max_count, uint32_t *count,
                struct wire_buffer *buffers, uint32_t max_size, uint32_t *size, uint8_t *message,
                uint32_t micros);
/* Each side's own: what it makes of the buffers of a packet that is taken. */
int buffers_taken(struct queue *queue, struct wire_buffer *buffers, uint32_t count);

#endif
