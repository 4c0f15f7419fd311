/* Our libcdsprpc.so for simulated boards: what its parts share.
 *
 * The requests, structs and error codes are those of Qualcomm's public user library
 * (github.com/qualcomm/fastrpc) and of the kernel's driver; the stubs of QNN call nothing else.
 * Numbers below 0x400 are the library's own errors, those from 0x80000400 the DSP's.
 */
#ifndef CDSPRPC_H
#define CDSPRPC_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "board.h"
#include "wire.h"

#define EXPORTED __attribute__((visibility("default")))

#define DSP_EUNABLETOLOAD ((int)0x80000406)
#define DSP_EBADSTATE ((int)0x8000040D) /* its protection domain died under the call */

enum { CDSP = 3, DOMAINS = 8, SESSIONS = 4, EFFECTIVE = DOMAINS * SESSIONS, MAX_PATH = 4096 };
enum { MAX_FILES = 32768 }; /* that this process may have open */

/* One line of what kernel or driver answered, for the harness and on stderr. Returns `answer`. */
int said(const char *call, int answer, const char *words, ...)
    __attribute__((format(printf, 3, 4)));

/* Each call goes through one of these. Whether QNN_SCRIPTED_RPC has an answer to this call, which
   counts as one more of its name; or, too, whether there is no DSP to ask. */
bool scripted(const char *call, int *answer);
bool answered(const char *call, int *answer);
bool dsp_is_gone_for_good(void);

/* A buffer of this process that others may map, by its address. */
struct buffer {
    char *base;
    size_t size;
    int fd, users;
    bool ours;
};
bool buffer_at(const void *address, size_t size, struct buffer *found);

/* What a protection domain has mapped of the client's, by the number of its fd. */
struct mapping {
    int fd, references;
    bool asked; /* by fastrpc_mmap and its kin; others are mapped because a call names them */
    dev_t device;
    ino_t inode;
    size_t size;
};

/* A protection domain: a process of the emulator, begun by a thread that lives as long as it. */
struct pd {
    int domain, control, slot;
    pid_t pid;
    int users; /* the session, the thread, calls: who is last frees it */
    volatile int gone; /* 0, or the error of calls that begin after its death */
    bool ended;
    char skel[MAX_PATH];
    pthread_mutex_t mutex; /* of the control socket and of what follows */
    struct mapping *mappings;
    size_t mapping_count, mapped_bytes;
    int idle[16], idle_count;
};

struct pd *pd_begin(int domain, const char *skel, int *error);
struct pd *pd_hold(struct pd *pd);
void pd_release(struct pd *pd);
void pd_end(struct pd *pd);
void pd_kill(struct pd *pd);
int pd_control(struct pd *pd, struct wire_request request, int fd, uint64_t *value);
int pd_channel(struct pd *pd);
void pd_channel_done(struct pd *pd, int channel);

/* The protection domain of a session (-1: the default one) or of a handle, to be released; NULL if
   there is none. */
struct pd *session_pd(int domain);
struct pd *handle_pd(uint64_t handle, uint64_t *remote, bool take);
/* Tells the queues of a protection domain whose process is gone. */
void queues_died(const struct pd *pd, int error);
/* What is asked of a session before it is opened; errors as of the library. */
int want_unsigned_pd(int domain, bool unsigned_pd);
int close_session(int domain);
/* Which DSP follows `before` in a text, such as "cdsp"; -1 if none that is known. */
int named_domain(const char *text, const char *before);
/* Runs `use` for each protection domain that is open. */
void each_pd(void (*use)(struct pd *pd, void *context), void *context);

int map_fd(struct pd *pd, const char *call, int fd, size_t size, uint32_t flags, bool asked);
/* For a packet that names a fd up to `end`: a reference more (1), less (-1), or none (0). */
int refer_to_mapping(struct pd *pd, int fd, uint64_t end, int change);
uint32_t take_dma_handle(int fd);

#endif
