/* Signals of the DSP's process: instructions that the emulator leaves to us, those that it lacks, and
 * crashes of the protection domain.
 *
 * qemu-hexagon raises SIGILL behind the packet that it does not know. User DMA stands alone in its
 * packets: it is done here, at once. `callrh` is a call. What else is not known is named, and ends the
 * process: the emulator cannot, which is no failure of QNN.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "loader.h"

enum { R31 = 31, MOST_DESCRIPTORS = 1 << 20 };

_Thread_local char doing[96];
static int PC = 42; /* which word of a signal's registers it is: 41 before QEMU 11 */

static void lacks(const char *answer, const char *words) {
    const char *what = doing[0] != '\0' ? doing : "a thread of the DSP";
    say("%s: %s: %s", what, answer, words);
    tell_harness("emulator", what, answer, words, NULL);
}

/* --- user DMA ------------------------------------------------------------------------------------ */

/* A descriptor of size 0 copies `length` bytes. One of size 1 copies a rectangle: in form 0 its
   numbers have 16 bits; in form 9, of v75 and later, 24, and `length` is the target's stride. */
struct descriptor {
    struct descriptor *next;
    uint32_t length : 24, size : 2, flags : 5, done : 1;
    const uint8_t *source;
    uint8_t *target;
    uint32_t form : 8, reserved : 24;
    uint32_t shape[3];
};
enum { LINE = 0, RECTANGLE = 1, NARROW = 0, WIDE = 9 };

static bool copy_rectangle(const struct descriptor *one) {
    const uint32_t *shape = one->shape;
    uint32_t width = shape[0] & 0xFFFF, height = shape[0] >> 16;
    uint32_t source_stride = shape[1] & 0xFFFF, target_stride = shape[1] >> 16;
    if (one->form == WIDE) {
        width = shape[0] & 0xFFFFFF;
        height = shape[0] >> 24 | (shape[1] & 0xFF) << 8;
        source_stride = shape[1] >> 8;
        target_stride = one->length;
    } else if (one->form != NARROW)
        return false;
    for (uint32_t row = 0; row < height; row++)
        memmove(one->target + row * target_stride, one->source + row * source_stride, width);
    return true;
}

static void run_dma(struct descriptor *first) {
    int count = 0;
    for (struct descriptor *one = first; one != NULL && count < MOST_DESCRIPTORS; one = one->next) {
        count++;
        if (one->done) continue;
        if (one->size == LINE)
            memmove(one->target, one->source, one->length);
        else if (one->size != RECTANGLE || !copy_rectangle(one)) {
            char words[80];
            snprintf(words, sizeof words, "user DMA with a descriptor of size %u, form %u",
                     (unsigned)one->size, (unsigned)one->form);
            lacks("user DMA", words);
            _exit(EXIT_NO_INSTRUCTION);
        }
        one->done = 1;
    }
}

/* --- instructions -------------------------------------------------------------------------------- */

static bool ends_packet(uint32_t word) {
    uint32_t parse = word >> 14 & 3;
    return parse == 3 || parse == 0;
}

static bool is(uint32_t word, uint32_t mask, uint32_t value) { return (word & mask) == value; }

/* Does what a packet of one word asks, `word`; whether it is known. */
static bool done_here(uint32_t word, uint32_t *registers) {
    uint32_t *first = &registers[word >> 16 & 31], *second = &registers[word >> 8 & 31];
    uint32_t *result = &registers[word & 31];
    if (is(word, 0xFFE020E0, 0xA6000020)) { /* dmstart(Rs) */
        run_dma((struct descriptor *)*first);
    } else if (is(word, 0xFFE020E0, 0xA6000040)) { /* dmlink(Rs,Rt) */
        if (*first != 0) ((struct descriptor *)*first)->next = (struct descriptor *)*second;
        run_dma((struct descriptor *)*second);
    } else if (is(word, 0xFFE020E0, 0xA6000080)) { /* dmresume(Rs) */
        run_dma((struct descriptor *)*first);
    } else if (is(word, 0xFFFF3FE0, 0xA8000020) || is(word, 0xFFFF3FE0, 0xA8000040) ||
               is(word, 0xFFFF3FE0, 0xA8000060)) { /* Rd = dmwait, dmpoll, dmpause: nothing runs */
        *result = 0;
    } else if (is(word, 0xFFE03FFF, 0x50C00000)) { /* callrh Rs */
        registers[R31] = registers[PC];
        registers[PC] = *first;
    } else {
        return is(word, 0xFFFF3FFF, 0x57E01000); /* unpause */
    }
    return true;
}

static const char *kind_of(uint32_t word) {
    if (is(word, 0xFFE00000, 0x92000000) || is(word, 0xFFE00000, 0xA6E00000)) return "HMX";
    if (is(word, 0xFF800000, 0x1C800000) || is(word, 0xFE000000, 0x1E000000) ||
        is(word, 0xFF000000, 0x1D000000))
        return "vector float";
    return NULL;
}

/* --- signals ------------------------------------------------------------------------------------- */

static void on_illegal(uint32_t *registers) {
    const uint32_t *end = (const uint32_t *)registers[PC];
    int length = 1;
    while (length < 4 && !ends_packet(end[-length - 1])) length++;
    if (length == 1 && done_here(end[-1], registers)) return;
    char place[200], words[420];
    const char *kind = NULL;
    int lacking = length;
    for (int i = length; i > 0 && kind == NULL; i--)
        if ((kind = kind_of(end[-i])) != NULL) lacking = i;
    snprintf(words, sizeof words, "%s instruction %08x at %s", kind != NULL ? kind : "unknown",
             (unsigned)end[-lacking], skel_place(end - length, place, sizeof place));
    lacks("SIGILL", words);
    _exit(EXIT_NO_INSTRUCTION);
}

static void on_signal(int number, siginfo_t *info, void *context) {
    uint32_t *registers = (uint32_t *)&((ucontext_t *)context)->uc_mcontext;
    char place[200];
    if (number == SIGILL) {
        on_illegal(registers);
        return;
    }
    power_ends();
    if (number == SIGTERM) _exit(0); /* the client has died */
    say("the protection domain crashed: signal %d at address %p, in %s", number, info->si_addr,
        skel_place((const void *)registers[PC], place, sizeof place));
    say("called from %s, while: %s", skel_place((const void *)registers[R31], place, sizeof place),
        doing);
    _exit(EXIT_CRASHED);
}

extern const char __executable_start[], etext[];
static void find_pc(int number, siginfo_t *info, void *context) {
    const char **registers = (const char **)&((ucontext_t *)context)->uc_mcontext;
    (void)number, (void)info;
    if (registers[41] >= __executable_start && registers[41] < etext) PC = 41;
}

void handle_faults(void) {
    struct sigaction trial = {.sa_sigaction = find_pc, .sa_flags = SA_SIGINFO | SA_RESETHAND};
    sigaction(SIGUSR1, &trial, NULL);
    raise(SIGUSR1);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_NODEFER};
    const int caught[] = {SIGILL, SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGTRAP, SIGTERM};
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) sigaction(caught[i], &action, NULL);
}
