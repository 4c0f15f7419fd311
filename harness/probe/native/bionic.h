/* What Android's C library has otherwise than musl, whose headers zig brings: included before all
 * else where no NDK compiles the probe. tests/integration/probe/test_android_build.py compares every
 * constant and type that the sources use with the NDK's. */
#ifndef BIONIC_H
#define BIONIC_H

#include <errno.h>
#include <unistd.h>

int *__errno(void);
#undef errno
#define errno (*__errno())

#undef _SC_PAGESIZE
#define _SC_PAGESIZE 39

#endif
