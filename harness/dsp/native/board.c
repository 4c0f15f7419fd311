/* The folder of a simulated board's DSP: what it tells it to be, and what is said there for the
 * harness. A part of libcdsprpc.so and of the loader.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "board.h"

enum { MAX_PATH = 4096, MAX_SAID_BYTES = 1 << 16 };

/* Sessions: the context banks compute-cb@1 to @8 of the CDSP in the kernel's device trees of
   SM8450 to SM8650. Handles: as many DMA handles as the public library keeps. Mapped: what 32 bits
   of address reach. */
static struct limits told = {73, 8, 256, 4096, 8, 4, 1};
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The file has their names, too, in their order. */
static void read_limits(void) {
    char path[MAX_PATH];
    snprintf(path, sizeof path, "%s/limits", dsp_folder());
    FILE *file = fopen(path, "re");
    if (file == NULL) return;
    for (size_t at = 0; at < sizeof told / sizeof(long); at++)
        if (fscanf(file, "%*s %ld", (long *)&told + at) != 1) break;
    fclose(file);
}

const char *dsp_folder(void) {
    const char *folder = getenv("QNN_DSP");
    return folder != NULL && *folder != '\0' ? folder : NULL;
}

const struct limits *limits(void) {
    if (dsp_folder() != NULL) pthread_once(&once, read_limits);
    return &told;
}

uint32_t arch_number(void) {
    return (uint32_t)(limits()->arch / 10 * 16 + limits()->arch % 10);
}

/* One field of a line: control characters would end it. */
static void plain(char *field, size_t size, const char *text) {
    size_t at = 0;
    for (; text[at] != '\0' && at < size - 1; at++)
        field[at] = (unsigned char)text[at] < ' ' ? '?' : text[at];
    field[at] = '\0';
}

void tell_harness(const char *kind, const char *call, const char *answer, const char *words,
                  const char *spoken) {
    char path[MAX_PATH], line[512], asked[64], said[400];
    struct stat status;
    if (dsp_folder() == NULL) return;
    plain(asked, sizeof asked, call);
    plain(said, sizeof said, words);
    int length = snprintf(line, sizeof line, "%s\t%s\t%.20s\t%s\n", kind, asked, answer, said);
    if (spoken != NULL) dprintf(STDERR_FILENO, "%s%s", spoken, line);
    snprintf(path, sizeof path, "%s/%s", dsp_folder(), strcmp(kind, "vote") ? "said" : "votes");
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file >= 0 && fstat(file, &status) == 0 && status.st_size < MAX_SAID_BYTES &&
        write(file, line, (size_t)length) < 0)
        dprintf(STDERR_FILENO, "%s: %s\n", path, strerror(errno));
    if (file >= 0) close(file);
}
