/* What the DSP's system services give a skel: power, memory figures, VTCM with arbitration, the
 * debug log; and the C library of Hexagon's SDK where it is not this one's.
 *
 * VTCM belongs to one client of a process at a time. Who holds it by acquire_cached keeps it until
 * somebody else wants it: then its callback asks it to give it up. Protection domains do not arbitrate
 * among each other; each has a VTCM of its own, as each thread has a matrix unit.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "loader.h"

int dsp_HAP_mem_get_stats(uint64_t *figures) {
    figures[0] = 1ull << 30; /* bytes free */
    figures[1] = 1 << 20;    /* bytes used */
    return 0;
}

/* --- votes for clocks and sleep, which the harness only notes --------------------------------------- */

enum { DCVS_V3 = 12 };

/* The corners of a clock, as the DSP's system numbers them: target, least, most. */
struct corners {
    uint32_t set;
    uint8_t corners[3], other[13];
};

struct power_request {
    uint32_t type, padding;
    uint8_t set_scaling, scaling, mode, set_latency;
    uint32_t latency_us;
    struct corners core;
    struct corners bus;
};

static atomic_bool voted;

int dsp_HAP_power_set(const void *client, const struct power_request *request) {
    const uint8_t *bus = request->bus.corners, *core = request->core.corners;
    char words[200];
    (void)client;
    if (request->type != DCVS_V3) return 0; /* the skel's own, for its units */
    voted = request->set_scaling || request->set_latency || request->core.set || request->bus.set;
    if (voted)
        snprintf(words, sizeof words,
                 "dcvs %u, mode %#x, latency %u us, bus %u %u %u, core %u %u %u", request->scaling,
                 request->mode, (unsigned)request->latency_us, bus[0], bus[1], bus[2], core[0],
                 core[1], core[2]);
    else
        snprintf(words, sizeof words, "nothing");
    tell_harness("vote", "HAP_power_set", "0", words, NULL);
    return 0;
}

int dsp_HAP_power_destroy_client(const void *client) { return (void)client, 0; }

void power_ends(void) {
    if (atomic_exchange(&voted, false))
        tell_harness("vote", "protection domain", "0", "ended, and its votes with it", NULL);
}

/* --- VTCM ---------------------------------------------------------------------------------------- */

enum { MEGABYTE = 1 << 20, MOST_CLIENTS = 256, ALIGNED = 1 << 20 };

/* What a caller fills in, in a structure that it sees as opaque. */
struct wanted {
    uint32_t size;
    void *vtcm;
    int (*release)(unsigned client, void *context);
    void *context;
    bool cached;
};

static struct client {
    struct wanted wanted;
    bool used;
} clients[MOST_CLIENTS];
static pthread_mutex_t vtcm_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t vtcm_free = PTHREAD_COND_INITIALIZER;
static unsigned holder;     /* a client's number, 0: nobody */
static int waiting_clients; /* who want it meanwhile */

static uint32_t vtcm_size(void) {
    static uint32_t size;
    if (size == 0) size = (uint32_t)limits()->vtcm_mb * MEGABYTE;
    return size;
}

static void *vtcm(void) {
    static void *base;
    if (base == NULL) {
        char *data = mmap(NULL, vtcm_size() + ALIGNED, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) return NULL;
        base = (void *)(((uintptr_t)data + ALIGNED - 1) & ~(uintptr_t)(ALIGNED - 1));
    }
    return base;
}

int dsp_compute_resource_attr_init(struct wanted *wanted) {
    memset(wanted, 0, sizeof *wanted);
    return 0;
}
int dsp_compute_resource_attr_set_vtcm_param_v2(struct wanted *wanted, uint32_t size,
                                                uint32_t page, uint32_t least) {
    (void)page;
    wanted->size = size > vtcm_size() && least > 0 && least <= vtcm_size() ? vtcm_size() : size;
    return 0;
}
int dsp_compute_resource_attr_set_cache_mode(struct wanted *wanted, uint32_t cached) {
    wanted->cached = cached != 0;
    return 0;
}
int dsp_compute_resource_attr_set_release_callback(struct wanted *wanted,
                                                   int (*release)(unsigned, void *),
                                                   void *context) {
    wanted->release = release;
    wanted->context = context;
    return 0;
}
int dsp_compute_resource_attr_get_vtcm_ptr_v2(struct wanted *wanted, void **at, uint32_t *size) {
    *at = wanted->size == 0 ? NULL : vtcm();
    *size = wanted->size;
    return 0;
}

/* With `vtcm_lock` held: waits until the client may have it; 0 or -1 when the time has passed. */
static int wait_for_vtcm(unsigned number, uint32_t micros) {
    struct timespec end = time_after(CLOCK_REALTIME, micros);
    unsigned asked = 0;
    int late = 0;
    waiting_clients++;
    while (holder != 0 && holder != number && late == 0) {
        struct wanted held = clients[holder - 1].wanted;
        if (asked != holder && held.release != NULL) {
            asked = holder;
            pthread_mutex_unlock(&vtcm_lock);
            held.release(asked, held.context);
            pthread_mutex_lock(&vtcm_lock);
            continue;
        }
        late = pthread_cond_timedwait(&vtcm_free, &vtcm_lock, &end) == ETIMEDOUT;
    }
    waiting_clients--;
    if (late) return -1;
    holder = number;
    return 0;
}

static void free_vtcm(unsigned number) {
    if (holder != number) return;
    holder = 0;
    pthread_cond_broadcast(&vtcm_free);
}

static bool is_client(unsigned number) {
    return number > 0 && number <= MOST_CLIENTS && clients[number - 1].used;
}

/* The client's number; 0 if it cannot have what it wants in this time. */
unsigned dsp_compute_resource_acquire(const struct wanted *wanted, uint32_t micros) {
    unsigned number = 1;
    if (wanted->size > vtcm_size()) return 0;
    pthread_mutex_lock(&vtcm_lock);
    while (number <= MOST_CLIENTS && clients[number - 1].used) number++;
    if (number > MOST_CLIENTS) number = 0;
    if (number != 0) {
        clients[number - 1] = (struct client){*wanted, true};
        if (!wanted->cached && wanted->size > 0 && wait_for_vtcm(number, micros) != 0) {
            clients[number - 1].used = false;
            number = 0;
        }
    }
    pthread_mutex_unlock(&vtcm_lock);
    return number;
}

int dsp_compute_resource_acquire_cached(unsigned number, uint32_t micros) {
    pthread_mutex_lock(&vtcm_lock);
    int failed = is_client(number) ? wait_for_vtcm(number, micros) : -1;
    pthread_mutex_unlock(&vtcm_lock);
    return failed;
}

int dsp_compute_resource_release_cached(unsigned number) {
    pthread_mutex_lock(&vtcm_lock);
    free_vtcm(number);
    pthread_mutex_unlock(&vtcm_lock);
    return is_client(number) ? 0 : -1;
}

int dsp_compute_resource_release(unsigned number) {
    pthread_mutex_lock(&vtcm_lock);
    bool there = is_client(number);
    free_vtcm(number);
    if (there) clients[number - 1].used = false;
    pthread_mutex_unlock(&vtcm_lock);
    return there ? 0 : -1;
}

int dsp_compute_resource_check_release_request(unsigned number) {
    pthread_mutex_lock(&vtcm_lock);
    bool wanted = holder == number && waiting_clients > 0;
    pthread_mutex_unlock(&vtcm_lock);
    return wanted;
}

/* A layout is up to 8 pairs of a page's size and how many there are of it, and how many pairs. */
int dsp_compute_resource_query_VTCM(unsigned application, uint32_t *total, uint32_t *layout,
                                    uint32_t *available, uint32_t *available_layout) {
    (void)application;
    uint32_t *sizes[] = {total, available}, *layouts[] = {layout, available_layout};
    for (int i = 0; i < 2; i++) {
        if (sizes[i] != NULL) *sizes[i] = vtcm_size();
        if (layouts[i] == NULL) continue;
        memset(layouts[i], 0, 18 * sizeof *layouts[i]);
        layouts[i][0] = layouts[i][2] = vtcm_size();
        layouts[i][1] = layouts[i][3] = 1;
    }
    return 0;
}

/* --- libraries of the DSP ------------------------------------------------------------------------ */

void *dsp_dlopen(const char *name, int flags) {
    say("the skel asks for the library %s, which is not there", name == NULL ? "itself" : name);
    return (void)flags, NULL;
}
void *dsp_dlsym(void *library, const char *name) { return (void)library, skel_symbol(name); }
char *dsp_dlerror(void) { return "there is no such library"; }

/* Where the exceptions of the skel's own code are caught. */
extern void __unw_add_dynamic_eh_frame_section(uintptr_t start);
void dsp___register_frame_info_bases(const void *start, void *object, void *text, void *data) {
    (void)object, (void)text, (void)data;
    __unw_add_dynamic_eh_frame_section((uintptr_t)start);
}

/* --- the C library of Hexagon's SDK -------------------------------------------------------------- */

/* There, arguments that are not named lie on the stack; here, that is where a va_list goes on when
   registers have run out (imports.S hands the address over). */
union values {
    struct {
        char *next, *end, *overflow;
    } parts;
    va_list list;
};

static void on_stack(union values *values, char *arguments) {
    values->parts.next = values->parts.end = values->parts.overflow = arguments;
}

float dsp__Flt[4];

int stack_vsnprintf(char *text, size_t size, const char *format, char *arguments) {
    union values values;
    on_stack(&values, arguments);
    return vsnprintf(text, size, format, values.list);
}
int stack_vfprintf(void *file, const char *format, char *arguments) {
    char text[400];
    int length = stack_vsnprintf(text, sizeof text, format, arguments);
    if (file == stderr) return say("%s", text), length;
    return fputs(text, file) < 0 ? -1 : length;
}
int stack_vprintf(const char *format, char *arguments) {
    return stack_vfprintf(stderr, format, arguments);
}

void dsp_HAP_debug(const char *text, int level, const char *file, int line) {
    say("[%d] %s:%d %s", level, file == NULL ? "" : file, line, text);
}
void stack_debug(int level, const char *file, int line, const char *format, char *arguments) {
    char text[400];
    stack_vsnprintf(text, sizeof text, format, arguments);
    dsp_HAP_debug(text, level, file, line);
}

int stack_open(const char *path, int flags, const int *mode) { return open(path, flags, *mode); }

/* What each character is as a capital. */
const short *dsp__Getptoupper(void) {
    static short capitals[256];
    for (int i = 0; i < 256; i++) capitals[i] = (short)toupper(i);
    return capitals;
}

/* How two numbers compare, as bits: less, equal, greater; 0 where one is none. */
int dsp__FFpcomp(float first, float second) {
    return first < second ? 1 : first == second ? 2 : first > second ? 4 : 0;
}
double dsp__Log(double value, int base) {
    return base == 0 ? log(value) : base > 0 ? log10(value) : log2(value);
}
double dsp__Sin(double value, unsigned quadrant) {
    return quadrant & 1 ? cos(value) : sin(value);
}
