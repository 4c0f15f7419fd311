// A skel of the tests' own: each method does what real skels do with one thing that the loader gives.
//
// It is compiled for Hexagon without any system, so that arguments without names lie on the stack as
// in a real skel. A method has words as its first input, and as its first output.

using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long long;

extern "C" {
void __register_frame_info_bases(const void *, void *, void *, void *);
int snprintf(char *, unsigned, const char *, ...);
void *memmove(void *, const void *, unsigned);

void qurt_mutex_init(void *);
void qurt_mutex_lock(void *);
void qurt_mutex_unlock(void *);
int qurt_mutex_try_lock(void *);
void qurt_cond_init(void *);
void qurt_cond_wait(void *, void *);
void qurt_cond_broadcast(void *);
int qurt_thread_create(int *, const void *, void (*)(void *), void *);
void qurt_thread_exit(int);
int qurt_thread_join(int, int *);
int qurt_thread_get_id(void);
int qurt_thread_get_priority(int);
int qurt_thread_set_priority(int, int);

int compute_resource_attr_init(void *);
int compute_resource_attr_set_vtcm_param_v2(void *, uint32_t, uint32_t, uint32_t);
int compute_resource_attr_set_cache_mode(void *, uint32_t);
int compute_resource_attr_set_release_callback(void *, int (*)(unsigned, void *), void *);
int compute_resource_attr_get_vtcm_ptr_v2(void *, void **, uint32_t *);
unsigned compute_resource_acquire(const void *, uint32_t);
int compute_resource_release(unsigned);
int compute_resource_acquire_cached(unsigned, uint32_t);
int compute_resource_release_cached(unsigned);

int HAP_mmap_get(int, void **, uint64_t *);
int HAP_mmap_put(int);
int HAP_timer_sleep(uint64_t);
int dspqueue_import(uint64_t, void (*)(void *, int, void *), void (*)(void *, int, void *), void *,
                    void **);
int dspqueue_read_noblock(void *, uint32_t *, uint32_t, uint32_t *, void *, uint32_t, uint32_t *,
                          void *);
int dspqueue_write(void *, uint32_t, uint32_t, const void *, uint32_t, const void *, uint32_t);
void nobody_has_this(void);

extern const char frames_begin[];
__attribute__((visibility("hidden"))) void *__dso_handle;
}

struct Buffer {
    uint32_t *data;
    uint32_t size;
};
struct Attributes {
    char name[16];
    uint8_t partition, affinity;
    uint16_t priority;
    uint32_t timing, stack_size;
    void *stack;
};
struct Lock {
    uint64_t words[2];
};

static const int kPriority = 33, kExit = 7;

static int begin(void (*run)(void *), void *argument) {
    Attributes asked = {"worker", 0, 0, kPriority, 0, 16384, nullptr};
    int number = 0;
    return qurt_thread_create(&number, &asked, run, argument) == 0 ? number : 0;
}

// --- threads and locks ------------------------------------------------------------------------------

// The linker at hand resolves what a compiler calls for thread-local storage wrongly: called by name.
extern "C" {
__attribute__((used, visibility("hidden"))) thread_local int own_value = 5;
void *__tls_get_addr(const uint32_t *);
}

static int *own() {
    static const uint32_t place[2] = {1, 0};
    return static_cast<int *>(__tls_get_addr(place));
}

struct Shared {
    Lock mutex, turn;
    int count, goal, numbers[8], values[8];
    volatile int unlocked;
};

static void count(void *argument) {
    Shared *all = static_cast<Shared *>(argument);
    qurt_mutex_lock(&all->mutex);
    int place = all->goal++;
    all->numbers[place] = qurt_thread_get_id();
    *own() += place;
    all->values[place] = *own();
    qurt_mutex_unlock(&all->mutex);
    for (int i = 0; i < 500; i++) {
        qurt_mutex_lock(&all->mutex);
        all->unlocked = all->unlocked + 1;
        qurt_mutex_unlock(&all->mutex);
    }
    qurt_mutex_lock(&all->mutex);
    all->count++;
    qurt_cond_broadcast(&all->turn);
    while (all->goal < 100) qurt_cond_wait(&all->turn, &all->mutex);
    qurt_mutex_unlock(&all->mutex);
    qurt_thread_exit(kExit);
}

static int threads(uint32_t *out) {
    Shared all = {};
    int begun[8], status = 0, ended = 0;
    qurt_mutex_init(&all.mutex);
    qurt_cond_init(&all.turn);
    for (int &one : begun) one = begin(count, &all);
    qurt_mutex_lock(&all.mutex);
    while (all.count < 8) qurt_cond_wait(&all.turn, &all.mutex);
    out[0] = all.unlocked;
    out[1] = qurt_mutex_try_lock(&all.mutex) != 0;
    qurt_mutex_unlock(&all.mutex);
    out[2] = qurt_thread_get_priority(begun[0]);
    qurt_thread_set_priority(begun[0], 44);
    out[3] = qurt_thread_get_priority(begun[0]);
    // each ends before it is waited for, or meanwhile
    qurt_mutex_lock(&all.mutex);
    all.goal = 100;
    qurt_cond_broadcast(&all.turn);
    qurt_mutex_unlock(&all.mutex);
    for (int one : begun) ended += qurt_thread_join(one, &status) == 0 ? status == kExit : 1;
    out[4] = ended;
    out[5] = 0;
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < i; k++) out[5] += all.numbers[i] == all.numbers[k];
    out[6] = 0;
    for (int i = 0; i < 8; i++) out[6] += all.values[i] == 5 + i;
    out[7] = *own();
    return 0;
}

// --- exceptions -------------------------------------------------------------------------------------

struct Failure {
    int code;
};
struct Closer {
    uint32_t *seen;
    ~Closer() { ++*seen; }
};

__attribute__((noinline)) static void fail(int code, uint32_t *seen) {
    Closer closer = {seen};
    if (code != 0) throw Failure{code};
}

static int exceptions(const uint32_t *in, uint32_t *out) {
    out[0] = out[1] = 0;
    try {
        try {
            fail(static_cast<int>(in[0]), &out[1]);
        } catch (const Failure &failure) {
            out[0] = failure.code + 1;
            throw;
        }
    } catch (...) {
        out[0] += 100;
    }
    return 0;
}

// --- user DMA ---------------------------------------------------------------------------------------

struct Descriptor {
    Descriptor *next;
    uint32_t head;
    const void *source;
    void *target;
    uint32_t form, shape[3];
};

static void dma_start(Descriptor *one) { asm volatile("dmstart(%0)" : : "r"(one) : "memory"); }
static void dma_link(Descriptor *tail, Descriptor *one) {
    asm volatile("dmlink(%0,%1)" : : "r"(tail), "r"(one) : "memory");
}
static uint32_t dma_wait() {
    uint32_t state;
    asm volatile("%0 = dmwait" : "=r"(state) : : "memory");
    return state;
}

// in: how, the word behind the chain, form, 3 words of the shape; then what is copied.
static int dma(const Buffer &in, const Buffer &out) {
    const uint32_t *told = in.data;
    alignas(64) Descriptor two[2] = {};
    two[0] = {nullptr, told[1], in.data + 6, out.data + 2, told[2], {told[3], told[4], told[5]}};
    if (told[0] == 1) {
        two[1] = {nullptr, 4, in.data + 6, out.data + 1, 0, {}};
        dma_start(&two[0]);
        dma_link(&two[0], &two[1]);
    } else {
        dma_start(&two[0]);
    }
    out.data[0] = dma_wait() << 8 | two[0].head >> 31 | two[1].head >> 31 << 1;
    return 0;
}

// --- VTCM -------------------------------------------------------------------------------------------

static volatile unsigned first_client, given_up;

static int give_up(unsigned client, void *) {
    given_up = given_up + 1;
    return compute_resource_release_cached(client);
}
static int keep(unsigned, void *) { return 0; }

static unsigned acquire(uint32_t size, uint32_t least, bool cached, int (*asked)(unsigned, void *),
                        uint32_t micros, uint32_t *got) {
    uint64_t wanted[64];
    void *at = nullptr;
    uint32_t given = 0;
    compute_resource_attr_init(wanted);
    compute_resource_attr_set_vtcm_param_v2(wanted, size, 0, least);
    compute_resource_attr_set_cache_mode(wanted, cached);
    if (asked != nullptr) compute_resource_attr_set_release_callback(wanted, asked, nullptr);
    unsigned client = compute_resource_acquire(wanted, micros);
    if (client != 0) compute_resource_attr_get_vtcm_ptr_v2(wanted, &at, &given);
    if (at != nullptr) static_cast<volatile uint8_t *>(at)[given - 1] = 1;
    if (got != nullptr) *got = given;
    return client;
}

static void release_later(void *) {
    HAP_timer_sleep(30000);
    compute_resource_release(first_client);
}

static int vtcm(const uint32_t *in, uint32_t *out) {
    uint32_t most = in[0];
    out[0] = acquire(most + 1, 0, false, nullptr, 1000, nullptr) == 0;
    first_client = acquire(most + 1, most / 2, false, nullptr, 1000, &out[1]);
    out[2] = acquire(most, 0, false, nullptr, 5000, nullptr) == 0;
    begin(release_later, nullptr);
    unsigned second = acquire(most, 0, false, nullptr, 5000000, nullptr);
    out[3] = second != 0;
    compute_resource_release(second);
    unsigned willing = acquire(most, 0, true, give_up, 1000, nullptr);
    out[4] = compute_resource_acquire_cached(willing, 1000) == 0;
    second = acquire(most, 0, false, nullptr, 1000000, nullptr);
    out[5] = second != 0;
    out[6] = given_up;
    compute_resource_release(second);
    unsigned stubborn = acquire(most, 0, true, keep, 1000, nullptr);
    compute_resource_acquire_cached(stubborn, 1000);
    out[7] = compute_resource_acquire_cached(willing, 20000) != 0;
    compute_resource_release(stubborn);
    out[8] = compute_resource_acquire_cached(willing, 20000) == 0;
    compute_resource_release(willing);
    return 0;
}

// --- memory, queues, text ---------------------------------------------------------------------------

static int memory(const uint32_t *in, uint32_t *out) {
    void *at = nullptr;
    uint64_t physical = 0;
    out[0] = HAP_mmap_get(static_cast<int>(in[0]), &at, &physical);
    out[1] = reinterpret_cast<uint32_t>(at);
    if (at == nullptr) return 0;
    uint32_t *data = static_cast<uint32_t *>(at);
    out[2] = data[0];
    data[1] = data[0] + 1;
    if (in[1] == 0) out[3] = HAP_mmap_put(static_cast<int>(in[0])); // else it is kept
    return 0;
}

// Answers a packet with its own message and buffers, and what lies in the first of these.
static void on_packet(void *queue, int, void *) {
    uint32_t flags, count, size, message[16];
    uint64_t buffers[3 * 4];
    if (dspqueue_read_noblock(queue, &flags, 4, &count, buffers, sizeof message, &size, message) != 0)
        return;
    const uint32_t *first = reinterpret_cast<uint32_t *>(static_cast<uint32_t>(buffers[2]));
    if (count > 0 && first != nullptr) message[0] = *first;
    dspqueue_write(queue, flags, count, buffers, size, message, 1000000);
}

// Writes into the file that a handle names: its fd and its offset.
static int stamp(const Buffer &handle) {
    void *at = nullptr;
    int fd = reinterpret_cast<int>(handle.data), error = HAP_mmap_get(fd, &at, nullptr);
    if (error != 0) return error;
    memmove(static_cast<char *>(at) + handle.size, "here", 4);
    return HAP_mmap_put(fd);
}

static int text(const Buffer &out) {
    return snprintf(reinterpret_cast<char *>(out.data), out.size, "%d %s %.2f %llx %c", -3, "skel",
                    1.5, 0x123456789ull, 'x');
}

// --- what ends the process --------------------------------------------------------------------------

static int end(const uint32_t *in) {
    switch (in[0]) {
        case 0: *reinterpret_cast<volatile int *>(8) = 1; break;
        case 1: asm volatile(".word 0x1dffffff"); break;  // among those of vector float
        case 2: asm volatile(".word 0xa6e0dfff"); break;  // among those of HMX
        case 3: asm volatile("{ r2 = add(r2,#1); r3 = add(r3,#1) }\n .word 0xffffffff"); break;
        case 4: nobody_has_this(); break;
        default: HAP_timer_sleep(60000000);
    }
    return 0;
}

extern "C" {
int test_open(const char *, uint64_t *handle) {
    static bool registered;
    static uint32_t room[8];
    if (!registered) __register_frame_info_bases(frames_begin, room, nullptr, nullptr);
    registered = true;
    *handle = 0;
    return 0;
}
int test_close(uint64_t) { return 0; }

int test_skel_handle_invoke(uint64_t, uint32_t scalars, Buffer *buffers) {
    int inputs = scalars >> 16 & 255;
    const Buffer &in = buffers[0], &out = buffers[inputs];
    void *queue;
    switch (scalars >> 24 & 31) {
        case 1: return threads(out.data);
        case 2: return exceptions(in.data, out.data);
        case 3: return dma(in, out);
        case 4: return vtcm(in.data, out.data);
        case 5: return memory(in.data, out.data);
        case 6: return dspqueue_import(in.data[0], on_packet, nullptr, nullptr, &queue);
        case 7: return text(out);
        case 8: memmove(out.data, in.data, in.size); return in.size == out.size ? 0 : -1;
        case 9: return end(in.data);
        default: return stamp(buffers[0]);
    }
}
}
