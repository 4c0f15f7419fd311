/* Vector floating point without QEMU: its inline functions, one element each. */
#include "qemu/osdep.h"

#include "qfloat.h"

uint32_t alone_add(uint32_t a, int a_type, uint32_t b, int b_type, bool subtract)
{
    return qfloat_add(a, a_type, b, b_type, subtract);
}

uint32_t alone_multiply(uint32_t a, int a_type, uint32_t b, int b_type, int type)
{
    return qfloat_multiply(a, a_type, b, b_type, type);
}

uint32_t alone_convert(uint32_t bits, int from, int to)
{
    return qfloat_convert(bits, from, to);
}

uint32_t alone_from_integer(int32_t value, int to)
{
    return qfloat_from_integer(value, to);
}

int32_t alone_to_integer(uint32_t bits, int from)
{
    return qfloat_to_integer(bits, from);
}

bool alone_greater(uint32_t a, uint32_t b, int type)
{
    return qfloat_greater(a, b, type);
}

uint32_t alone_max(uint32_t a, uint32_t b, int type)
{
    return qfloat_max(a, b, type);
}

uint32_t alone_min(uint32_t a, uint32_t b, int type)
{
    return qfloat_min(a, b, type);
}
