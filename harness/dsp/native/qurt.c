/* QuRT, the DSP's system, as far as skels use it: locks, signals, threads, over Linux's futexes; and
 * what of the C++ library has QuRT's sizes (a std::mutex of 4 bytes).
 *
 * Objects live in the skel's memory and are QuRT's in size, so each keeps its state in its first word
 * or two. A lock that was never initialised is 0, or all ones as QuRT's static initialisers make it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "loader.h"

enum { FREE, HELD, CONTENDED, NEVER_MADE = -1 };
enum { LEAST_STACK = 1 << 20, MOST_THREADS = 512, ENOTHREAD = 12, USUAL_PRIORITY = 100, NOT_OURS = 1 << 30 };
typedef volatile int word;

static long futex(word *at, int operation, int value, const struct timespec *timeout) {
    return syscall(SYS_futex, at, operation, value, timeout, 0, 0);
}

static void wake(word *at, int count) { futex(at, FUTEX_WAKE, count, NULL); }

int dsp_qurt_futex_wait(word *at, int value) { return (int)futex(at, FUTEX_WAIT, value, NULL); }
int dsp_qurt_futex_wake(word *at, int count) { return (int)futex(at, FUTEX_WAKE, count, NULL); }

/* --- locks --------------------------------------------------------------------------------------- */

static int taken(word *lock) {
    __sync_bool_compare_and_swap(lock, NEVER_MADE, FREE);
    return __sync_val_compare_and_swap(lock, FREE, HELD);
}

void take_lock(word *lock) {
    int was = taken(lock);
    if (was == FREE) return;
    if (was != CONTENDED) was = __sync_lock_test_and_set(lock, CONTENDED);
    while (was != FREE && was != NEVER_MADE) {
        futex(lock, FUTEX_WAIT, CONTENDED, NULL);
        was = __sync_lock_test_and_set(lock, CONTENDED);
    }
}

void give_lock(word *lock) {
    if (__sync_lock_test_and_set(lock, FREE) == CONTENDED) wake(lock, 1);
}

int dsp_qurt_mutex_try_lock(word *lock) { return taken(lock) == FREE ? 0 : -1; }
/* Of a lock, a condition, a signal. */
void clear_object(word *object) { object[0] = object[1] = 0; }

void dsp_qurt_cond_signal(word *turn) {
    __sync_fetch_and_add(turn, 1);
    wake(turn, 1);
}

void broadcast(word *turn) {
    __sync_fetch_and_add(turn, 1);
    wake(turn, 0x7FFFFFFF);
}

void dsp_qurt_cond_wait(word *turn, word *lock) {
    int now = *turn;
    give_lock(lock);
    futex(turn, FUTEX_WAIT, now, NULL);
    take_lock(lock);
}

void dsp__ZNSt3__118condition_variable4waitERNS_11unique_lockINS_5mutexEEE(word *turn, word **lock) {
    dsp_qurt_cond_wait(turn, *lock);
}

/* A std::shared_mutex is larger than a pointer, which is all that is kept in it here. */
void *dsp__ZNSt3__119__shared_mutex_baseC1Ev(pthread_rwlock_t **lock) {
    *lock = malloc(sizeof **lock);
    if (*lock == NULL || pthread_rwlock_init(*lock, NULL) != 0) abort();
    return lock;
}
void dsp__ZNSt3__119__shared_mutex_base4lockEv(pthread_rwlock_t **lock) {
    pthread_rwlock_wrlock(*lock);
}
void dsp__ZNSt3__119__shared_mutex_base11lock_sharedEv(pthread_rwlock_t **lock) {
    pthread_rwlock_rdlock(*lock);
}
void give_shared_mutex(pthread_rwlock_t **lock) { pthread_rwlock_unlock(*lock); }

/* --- signals ------------------------------------------------------------------------------------- */

int dsp_qurt_signal_set(word *signal, int mask) {
    int before = __sync_fetch_and_or(signal, mask);
    wake(signal, 0x7FFFFFFF);
    return before;
}

int dsp_qurt_signal_clear(word *signal, int mask) { return __sync_fetch_and_and(signal, ~mask); }

static bool is_set(int value, int mask, int all) {
    return all ? (value & mask) == mask : (value & mask) != 0;
}

int dsp_qurt_signal_wait(word *signal, int mask, int all) {
    int now;
    while (now = *signal, !is_set(now, mask, all)) futex(signal, FUTEX_WAIT, now, NULL);
    return now & mask;
}

/* `micros` is from now; 0, or -1 when they have passed. */
int dsp_qurt_signal_wait_timed(word *signal, int mask, int all, int *found, uint64_t micros) {
    struct timespec now, end = time_after(CLOCK_MONOTONIC, micros);
    for (;;) {
        int value = *signal;
        *found = value & mask;
        if (is_set(value, mask, all)) return 0;
        clock_gettime(CLOCK_MONOTONIC, &now);
        int64_t left = (end.tv_sec - now.tv_sec) * 1000000000ll + end.tv_nsec - now.tv_nsec;
        if (left <= 0) return -1;
        struct timespec rest = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
        futex(signal, FUTEX_WAIT, value, &rest);
    }
}

/* --- threads ------------------------------------------------------------------------------------- */

/* What QuRT is told of a new thread, up to what is used here. */
struct attributes {
    char name[16];
    uint8_t partition, affinity;
    uint16_t priority;
    uint32_t timing;
    uint32_t stack_size;
};

static struct thread {
    void (*run)(void *);
    void *argument;
    int number, status, waiting, priority;
    enum { UNUSED, RUNS, ENDED } state;
    char name[17];
} threads[MOST_THREADS];
static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t thread_ended = PTHREAD_COND_INITIALIZER;
static _Thread_local struct thread *own;

static void thread_ends(int status) {
    pthread_mutex_lock(&threads_lock);
    own->status = status;
    own->state = ENDED;
    pthread_cond_broadcast(&thread_ended);
    pthread_mutex_unlock(&threads_lock);
}

static void *run_thread(void *thread) {
    own = thread;
    strcpy(doing, own->name);
    own->run(own->argument);
    thread_ends(0);
    return NULL;
}

/* A place for a new thread: one that had none yet, or else whose thread has ended and was not joined.
   NULL if all run. */
static struct thread *free_place(void) {
    struct thread *ended = NULL;
    for (struct thread *thread = threads; thread < threads + MOST_THREADS; thread++) {
        if (thread->state == UNUSED) return thread;
        if (thread->state == ENDED && thread->waiting == 0) ended = thread;
    }
    return ended;
}

/* Numbers go on when a place is used again, so that an old one names nobody. */
int dsp_qurt_thread_create(int *number, const struct attributes *asked, void (*run)(void *),
                           void *argument) {
    pthread_mutex_lock(&threads_lock);
    struct thread *thread = free_place();
    bool begun = thread != NULL;
    if (begun) {
        int before = thread->number == 0 ? (int)(thread - threads) + 1 : thread->number;
        *thread = (struct thread){run, argument, before + MOST_THREADS, 0, 0, asked->priority,
                                  RUNS, ""};
        memcpy(thread->name, asked->name, sizeof asked->name);
        *number = thread->number;
        size_t stack = asked->stack_size < LEAST_STACK ? LEAST_STACK : asked->stack_size;
        begun = begin_thread(NULL, run_thread, thread, stack) == 0;
        if (!begun) thread->state = UNUSED;
    }
    pthread_mutex_unlock(&threads_lock);
    if (!begun) say("no further thread, %.16s", asked->name);
    return begun ? 0 : -1;
}

void dsp_qurt_thread_exit(int status) {
    if (own != NULL) thread_ends(status);
    pthread_exit(NULL);
}

/* Threads that are not QuRT's, such as those that serve calls, have numbers beyond its own. */
int dsp_qurt_thread_get_id(void) {
    return own == NULL ? NOT_OURS | (int)syscall(SYS_gettid) : own->number;
}

/* With `threads_lock` held: NULL if there is no such thread. */
static struct thread *thread_of(int number) {
    struct thread *thread = &threads[(unsigned)(number - 1) % MOST_THREADS];
    return thread->number == number && thread->state != UNUSED ? thread : NULL;
}

/* One that has ended can be joined once, as threads that QuRT makes joinable: skels take it for a
   failure if a thread was faster than whoever waits for it. */
int dsp_qurt_thread_join(int number, int *status) {
    pthread_mutex_lock(&threads_lock);
    struct thread *thread = thread_of(number);
    if (thread != NULL) {
        thread->waiting++;
        while (thread->state == RUNS) pthread_cond_wait(&thread_ended, &threads_lock);
        if (status != NULL) *status = thread->status;
        if (--thread->waiting == 0) thread->state = UNUSED;
    }
    pthread_mutex_unlock(&threads_lock);
    return thread != NULL ? 0 : ENOTHREAD;
}

int dsp_qurt_thread_get_priority(int number) {
    pthread_mutex_lock(&threads_lock);
    struct thread *thread = thread_of(number);
    int priority = thread != NULL ? thread->priority : USUAL_PRIORITY;
    pthread_mutex_unlock(&threads_lock);
    return priority;
}

/* Kept to be told again: the host's scheduler hears nothing of it. */
int dsp_qurt_thread_set_priority(int number, int priority) {
    pthread_mutex_lock(&threads_lock);
    struct thread *thread = thread_of(number);
    if (thread != NULL) thread->priority = priority;
    pthread_mutex_unlock(&threads_lock);
    return 0;
}

/* std::thread's: QuRT's attributes mean nothing to this C library. */
int dsp_pthread_create(pthread_t *thread, const void *asked, void *(*run)(void *), void *argument) {
    return (void)asked, begin_thread(thread, run, argument, LEAST_STACK);
}

/* --- the machine --------------------------------------------------------------------------------- */

int tell_hardware_threads(int *count) { return *count = 6, 0; }
uint64_t dsp_qurt_lookup_physaddr_64(uint32_t address) { return address; }

/* How many vector contexts there are, of 128 and of 64 bytes. */
int dsp_qurt_hvx_get_units(void) {
    int count = (int)limits()->hvx_threads;
    return count << 8 | count;
}
