/* What a simulated board tells its DSP, and what is said there for the harness. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

/* NULL without a DSP behind libcdsprpc.so. */
const char *dsp_folder(void);
struct limits {
    long arch, sessions, handles, mapped_mb, vtcm_mb, hvx_threads, unsigned_pd;
};
const struct limits *limits(void);
/* As an ELF file has it: v73 is 0x73. */
uint32_t arch_number(void);
/* A line for the harness, unless much was said already; with `spoken` in front on stderr, too. */
void tell_harness(const char *kind, const char *call, const char *answer, const char *words,
                  const char *spoken);

#endif
