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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

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

#endif
