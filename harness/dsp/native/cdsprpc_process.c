/* A protection domain: a process of the emulator that ends with this one, however either dies.
 *
 * A thread of its own begins it, since the kernel kills a child whose parent's *thread* ends
 * (PR_SET_PDEATHSIG); it then waits for the end of the control socket. The child also ends when
 * that socket is closed, should the emulator around this process not hand prctl on.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cdsprpc.h"

enum { DSP_CONTROL = 3, MAX_LOG_BYTES = 4 << 20, DEATH_MS = 5000 };

struct beginning {
    struct pd *pd;
    int childs_end, log;
    char emulator[MAX_PATH], loader[MAX_PATH], variable[MAX_PATH];
    sem_t done;
};

/* A session of the device, which all its processes share; the lock goes with the last of its fds.
   -1 if none is left. */
static int free_slot(void) {
    char path[MAX_PATH];
    for (long number = 0; number < limits()->sessions; number++) {
        snprintf(path, sizeof path, "%s/slots/%ld", dsp_folder(), number);
        int slot = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (slot >= 0 && flock(slot, LOCK_EX | LOCK_NB) == 0) return slot;
        if (slot >= 0) close(slot);
    }
    return -1;
}

/* Where the DSP's processes print: a file that no longer grows once it is large. */
static int open_log(void) {
    char path[MAX_PATH];
    struct stat status;
    snprintf(path, sizeof path, "%s/log", dsp_folder());
    bool full = stat(path, &status) == 0 && status.st_size > MAX_LOG_BYTES;
    return open(full ? "/dev/null" : path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

/* In the child of a process with many threads: system calls only. */
static _Noreturn void become_the_dsp(struct beginning *begun) {
    char *argv[] = {begun->emulator, begun->loader, begun->pd->skel, NULL};
    char *environment[] = {begun->variable, NULL};
    setsid(); /* who ends the client with its group does not reach the DSP, which tells of its end */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int control = fcntl(begun->childs_end, F_DUPFD, DSP_CONTROL + 1);
    int log = fcntl(begun->log, F_DUPFD, DSP_CONTROL + 1);
    int nothing = open("/dev/null", O_RDONLY);
    if (dup2(control, DSP_CONTROL) < 0 || dup2(nothing, 0) < 0 || dup2(log, 1) < 0 ||
        dup2(log, 2) < 0)
        _exit(126);
    if (syscall(SYS_close_range, DSP_CONTROL + 1, ~0u, 0) != 0)
        for (int fd = DSP_CONTROL + 1; fd < MAX_FILES; fd++) close(fd);
    execve(begun->emulator, argv, environment);
    _exit(127);
}

static void *watch(void *argument) {
    struct beginning *begun = argument;
    struct pd *pd = begun->pd;
    int status = 0;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    pd->pid = fork();
    if (pd->pid == 0) become_the_dsp(begun);
    close(begun->childs_end);
    bool failed = pd->pid < 0;
    sem_post(&begun->done);
    if (failed) {
        pd_release(pd);
        return NULL;
    }
    struct pollfd end = {.fd = pd->control};
    while (poll(&end, 1, -1) < 0 && errno == EINTR) continue;
    pthread_mutex_lock(&pd->mutex);
    kill(pd->pid, SIGKILL);
    if (pd->gone == 0) pd->gone = AEE_ENOSUCH;
    bool asked = pd->ended;
    pthread_mutex_unlock(&pd->mutex);
    while (waitpid(pd->pid, &status, 0) < 0 && errno == EINTR) continue;
    if (!asked)
        said("process", DSP_EBADSTATE, "%s %d", WIFSIGNALED(status) ? "ended by signal" : "exited",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    queues_died(pd, AEE_ENOSUCH);
    pd_release(pd);
    return NULL;
}

/* Begins the thread and waits until it has begun the process; false if that fails. */
static bool begin(struct pd *pd) {
    static struct beginning begun;
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    int pair[2];
    pthread_t thread;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return false;
    pd->control = pair[0];
    pthread_mutex_lock(&one_at_a_time);
    begun.pd = pd_hold(pd);
    begun.childs_end = pair[1];
    begun.log = open_log();
    snprintf(begun.emulator, sizeof begun.emulator, "%s/qemu-hexagon", dsp_folder());
    snprintf(begun.loader, sizeof begun.loader, "%s/loader", dsp_folder());
    snprintf(begun.variable, sizeof begun.variable, "QNN_DSP=%s", dsp_folder());
    sem_init(&begun.done, 0, 0);
    if (begun.log >= 0 && pthread_create(&thread, NULL, watch, &begun) == 0) {
        pthread_detach(thread);
        while (sem_wait(&begun.done) < 0) continue;
    } else {
        close(pair[1]);
        pd_release(pd);
    }
    if (begun.log >= 0) close(begun.log);
    pthread_mutex_unlock(&one_at_a_time);
    return pd->pid > 0;
}

struct pd *pd_begin(int domain, const char *skel, int *error) {
    struct pd *pd = calloc(1, sizeof *pd);
    *error = AEE_ENOMEMORY;
    if (pd == NULL) return NULL;
    *pd = (struct pd){.domain = domain, .control = -1, .slot = free_slot(), .users = 1};
    pthread_mutex_init(&pd->mutex, NULL);
    snprintf(pd->skel, sizeof pd->skel, "%s", skel);
    *error = AEE_ECONNREFUSED;
    if (pd->slot < 0)
        said("open", *error, "no session is left: the device has %ld", limits()->sessions);
    else if (!begin(pd))
        said("open", *error, "the DSP's process does not begin: %s", strerror(errno));
    else
        *error = 0;
    if (*error == 0) return pd;
    pd_end(pd);
    return NULL;
}

struct pd *pd_hold(struct pd *pd) {
    __atomic_add_fetch(&pd->users, 1, __ATOMIC_SEQ_CST);
    return pd;
}

void pd_release(struct pd *pd) {
    if (pd == NULL || __atomic_sub_fetch(&pd->users, 1, __ATOMIC_SEQ_CST) > 0) return;
    while (pd->idle_count > 0) close(pd->idle[--pd->idle_count]);
    if (pd->control >= 0) close(pd->control);
    if (pd->slot >= 0) close(pd->slot);
    pthread_mutex_destroy(&pd->mutex);
    free(pd->mappings);
    free(pd);
}

/* Kills its process, and waits until that is seen, so that what comes next is always the same. */
void pd_kill(struct pd *pd) {
    pthread_mutex_lock(&pd->mutex);
    if (pd->gone == 0 && pd->pid > 0) kill(pd->pid, SIGKILL);
    pthread_mutex_unlock(&pd->mutex);
    for (int waited = 0; pd->gone == 0 && waited < DEATH_MS; waited++) usleep(1000);
}

/* The session lets go of it: its process ends, and the device has a session more. */
void pd_end(struct pd *pd) {
    pthread_mutex_lock(&pd->mutex);
    pd->ended = true;
    if (pd->gone == 0 && pd->pid > 0) kill(pd->pid, SIGKILL);
    if (pd->gone == 0) pd->gone = AEE_ENOSUCH;
    if (pd->slot >= 0) close(pd->slot);
    pd->slot = -1;
    pthread_mutex_unlock(&pd->mutex);
    pd_release(pd);
}

/* Asks over the control socket, with a fd or -1. Call with the mutex held; its own error if the
   process is gone. */
int pd_control(struct pd *pd, struct wire_request request, int fd, uint64_t *value) {
    struct iovec part = {&request, sizeof request};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } passed = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        passed.head = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&passed.head), &fd, sizeof fd);
        message.msg_control = &passed;
        message.msg_controllen = sizeof passed;
    }
    struct wire_answer answer;
    if (pd->gone != 0) return pd->gone;
    if (sendmsg(pd->control, &message, MSG_NOSIGNAL) != sizeof request ||
        !receive_all(pd->control, &answer, sizeof answer))
        return DSP_EBADSTATE;
    if (value != NULL) *value = answer.value;
    return answer.status;
}

/* A channel on which one call at a time is made; -1 if the process is gone. */
int pd_channel(struct pd *pd) {
    int pair[2], channel = -1;
    pthread_mutex_lock(&pd->mutex);
    if (pd->gone == 0 && pd->idle_count > 0) {
        channel = pd->idle[--pd->idle_count];
    } else if (pd->gone == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0) {
        struct wire_request request = {.kind = WIRE_CHANNEL};
        if (pd_control(pd, request, pair[1], NULL) == 0)
            channel = pair[0];
        else
            close(pair[0]);
        close(pair[1]);
    }
    pthread_mutex_unlock(&pd->mutex);
    return channel;
}

void pd_channel_done(struct pd *pd, int channel) {
    pthread_mutex_lock(&pd->mutex);
    bool keep = pd->gone == 0 && pd->idle_count < (int)(sizeof pd->idle / sizeof *pd->idle);
    if (keep) pd->idle[pd->idle_count++] = channel;
    pthread_mutex_unlock(&pd->mutex);
    if (!keep) close(channel);
}
