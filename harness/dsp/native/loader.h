/* What the parts of the DSP's side share: Hexagon code, run by qemu-hexagon. */
#ifndef LOADER_H
#define LOADER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "board.h"
#include "wire.h"

/* How the process ends when it does not end with its client. */
enum { EXIT_CRASHED = 70, EXIT_NO_INSTRUCTION = 71, EXIT_NO_IMPORT = 72 };

/* imports.S: what the skel may import. */
struct import {
    const char *name;
    const void *address;
};
extern const struct import import_table[];
extern const uint32_t import_count;
enum { UNLISTED = 64, STUB_BYTES = 16 };
extern const char unlisted_stubs[];

/* Loads a skel for a DSP of this version (0x73 is v73) and runs its initialisers; 0 or an error. */
int skel_load(const char *path, uint32_t arch);
/* The address of what the skel defines; NULL if it does not. */
void *skel_symbol(const char *name);
/* Where in the skel something is, as text for the log. */
const char *skel_place(const void *address, char *text, size_t size);

/* Prints into the DSP's log, which no longer grows once it is long. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Serves the client until its control socket closes; `loaded` is what opening answers if not 0. */
void serve(int control, int loaded);
/* faults.c: signals, and instructions that the emulator leaves to us. */
void handle_faults(void);
/* What a thread is doing, for what is told of a fault. */
extern _Thread_local char doing[96];

/* hap.c: tells that what was voted for and not taken back ends with the process. */
void power_ends(void);

/* Where `size` bytes of the client's memory lie, held until `release_mapping`; NULL if they do not. */
uint8_t *hold_mapping(int fd, uint32_t offset, uint32_t size);
void release_mapping(int fd);
/* A queue over this socket; 0 and its number, or an error. */
int new_queue(int socket, uint64_t *number);

#endif
