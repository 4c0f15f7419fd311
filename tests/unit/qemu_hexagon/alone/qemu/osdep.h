/* What hmx.c and hmx_convert.c need of QEMU's osdep.h, so that they compile without QEMU. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
