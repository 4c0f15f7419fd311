/* Whole messages over the sockets between a client's libcdsprpc.so and a DSP's process; what both of
 * them have of threads and time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>

#include "wire.h"

bool send_all(int fd, struct iovec *parts, size_t count) {
    while (count > 0) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = count > 64 ? 64 : count};
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return false;
        while (count > 0 && (size_t)sent >= parts->iov_len) {
            sent -= (ssize_t)parts->iov_len;
            parts++, count--;
        }
        if (count == 0) break;
        parts->iov_base = (char *)parts->iov_base + sent;
        parts->iov_len -= (size_t)sent;
    }
    return true;
}

bool receive_all(int fd, void *data, size_t size) {
    for (size_t at = 0; at < size;) {
        ssize_t got = recv(fd, (char *)data + at, size - at, MSG_WAITALL);
        if (got == 0 || (got < 0 && errno != EINTR)) return false;
        if (got > 0) at += (size_t)got;
    }
    return true;
}

struct timespec time_after(clockid_t clock, uint64_t micros) {
    struct timespec end;
    clock_gettime(clock, &end);
    uint64_t ns = (uint64_t)end.tv_nsec + micros % 1000000 * 1000;
    end.tv_sec += (time_t)(micros / 1000000 + ns / 1000000000);
    end.tv_nsec = (long)(ns % 1000000000);
    return end;
}

int begin_thread(pthread_t *thread, void *(*run)(void *), void *argument, size_t stack) {
    pthread_t unnamed;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack);
    if (thread == NULL) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(thread ? thread : &unnamed, &attributes, run, argument);
    pthread_attr_destroy(&attributes);
    return failed;
}
