/*
 * Vector floating point of Hexagon V73: one lane of each instruction.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A qf32 has a signed significand M in bits 31..8 and an exponent E in bits 7..0; it stands for
 * (2 M + 1) * 2^(E - 127 - 23). A qf16 has M in bits 15..5 and E in bits 4..0, and stands for
 * (2 M + 1) * 2^(E - 15 - 10). Zero is all 0. Nothing is ever normalised. sf and hf are IEEE's,
 * but for the largest exponent, which is one more ordinary one: no infinity, no NaN.
 *
 * All functions are inline, since the type of an operand is a constant where they are called.
 */

#ifndef HEXAGON_QFLOAT_H
#define HEXAGON_QFLOAT_H

typedef enum {
    QFLOAT_SF,
    QFLOAT_HF,
    QFLOAT_QF32,
    QFLOAT_QF16,
} QFloatType;

/* A significand in units of 2^-23 or 2^-10, below 2 in magnitude (or -2), and its exponent. */
typedef struct {
    int64_t significand;
    int exponent;
    bool ieee;
} QFloat;

static inline bool qfloat_is_wide(QFloatType type)
{
    return type == QFLOAT_SF || type == QFLOAT_QF32;
}

static inline int qfloat_fraction(QFloatType type)
{
    return qfloat_is_wide(type) ? 23 : 10;
}

static inline int qfloat_bias(QFloatType type)
{
    return qfloat_is_wide(type) ? 127 : 15;
}

static inline int qfloat_largest(QFloatType type)
{
    return qfloat_is_wide(type) ? 255 : 31;
}

static inline QFloat qfloat_unpack(uint32_t bits, QFloatType type)
{
    int fraction = qfloat_fraction(type);
    QFloat number = { 0 };

    if (type == QFLOAT_QF32) {
        number.exponent = bits & 0xff;
        number.significand = ((int32_t)bits >> 8) * 2 + 1;
    } else if (type == QFLOAT_QF16) {
        number.exponent = bits & 0x1f;
        number.significand = ((int16_t)bits >> 5) * 2 + 1;
    } else {
        int sign = type == QFLOAT_SF ? bits >> 31 : bits >> 15 & 1;
        int exponent = bits >> fraction & qfloat_largest(type);
        int mantissa = bits & ((1 << fraction) - 1);

        number.ieee = true;
        number.exponent = exponent ? exponent : 1;
        number.significand = exponent ? mantissa | 1 << fraction : mantissa;
        if (sign) {
            number.significand = -number.significand;
        }
    }
    return number;
}

static inline uint32_t qfloat_join(int64_t mantissa, int exponent, QFloatType type)
{
    if (type == QFLOAT_QF32) {
        return (uint32_t)mantissa << 8 | exponent;
    }
    return ((uint32_t)mantissa << 5 | exponent) & 0xffff;
}

/*
 * The nearest odd multiple of the unit. The value has some more binary digits below the unit, and
 * "lost" tells that there were others below them, all cut off. Complemented: it is a magnitude,
 * of which the mantissa is complemented at the end, as -(2 M + 1) is 2 ~M + 1.
 */
static inline uint32_t qfloat_pack(int64_t value, int more, bool lost, int exponent,
                                   bool complement, QFloatType type)
{
    int fraction = qfloat_fraction(type);
    int largest = qfloat_largest(type);
    int64_t two = 2ll << (fraction + more);
    int64_t invert = complement ? -1 : 0;
    int64_t rest, units, half;
    bool halved = false;

    if (value == 0 && !lost) {
        return 0;
    }
    while (value >= two || value < -two || (exponent == -1 && !halved)) {
        halved = true;
        more++;
        exponent++;
        two <<= 1;
    }
    if (exponent < 0) {
        return qfloat_join((value < 0 ? -1 : 0) ^ invert, 0, type);
    }
    units = value >> (more + 2) << 2;
    rest = value - (units << more);
    half = (1ll << more) / 2;
    if (halved ? rest < 4 * half || (rest == 4 * half && !lost)
               : rest < 3 * half || (rest == 3 * half && !lost)) {
        units += 1;
    } else if (!halved && (rest < 5 * half || (rest == 5 * half && !lost))) {
        units = units / 2 + 1;
        exponent++;
    } else {
        units += 3;
    }
    if (exponent > largest) {
        return qfloat_join(((units < 0 ? -1 : 0) ^ invert) < 0 ? -(1ll << fraction)
                           : (1ll << fraction) - 1, largest, type);
    }
    return qfloat_join((units >> 1) ^ invert, exponent, type);
}

static inline int qfloat_log2(int64_t significand, int fraction)
{
    uint64_t magnitude = significand < 0 ? -significand : significand;

    return 63 - __builtin_clzll(magnitude) - fraction;
}

static inline uint32_t qfloat_add(uint32_t a, QFloatType a_type, uint32_t b, QFloatType b_type,
                                  bool subtract)
{
    QFloatType type = qfloat_is_wide(a_type) ? QFLOAT_QF32 : QFLOAT_QF16;
    QFloat x = qfloat_unpack(a, a_type), y = qfloat_unpack(b, b_type);
    bool complement = false, lost = false;
    int exponent, up, down;
    const int more = 8;
    int64_t value, small;

    if (subtract) {
        y.significand = -y.significand;
    }
    if (x.ieee && y.ieee && x.significand < 0 && y.significand < 0) {
        complement = true;
        x.significand = -x.significand;
        y.significand = -y.significand;
    }
    if (x.exponent < y.exponent) {
        QFloat other = x;

        x = y;
        y = other;
    }
    exponent = y.exponent;
    if (x.significand) {
        exponent = MAX(exponent,
                       x.exponent + qfloat_log2(x.significand, qfloat_fraction(type)));
    }
    /* A significand of -2 has the exponent 1: then both are moved down, which loses nothing. */
    up = more + x.exponent - exponent;
    value = x.significand ? x.significand * (1ll << up) : 0;
    down = exponent - y.exponent - more;
    if (down <= 0) {
        small = y.significand * (1ll << -down);
    } else {
        down = MIN(down, 62);
        small = y.significand >> down;
        lost = small << down != y.significand;
    }
    return qfloat_pack(value + small, more, lost, exponent, complement, type);
}

static inline uint32_t qfloat_multiply(uint32_t a, QFloatType a_type, uint32_t b,
                                       QFloatType b_type, QFloatType type)
{
    QFloat x = qfloat_unpack(a, a_type), y = qfloat_unpack(b, b_type);
    int exponent = x.exponent - qfloat_bias(a_type) + y.exponent - qfloat_bias(b_type)
                   + qfloat_bias(type);
    int64_t value = x.significand * y.significand;
    int more = qfloat_fraction(a_type) + qfloat_fraction(b_type) - qfloat_fraction(type);
    bool complement = x.ieee && y.ieee && value < 0;

    if (more < 0) {
        value = value * (1ll << -more);
        more = 0;
    }
    /* One digit more, so that the half of a unit is a whole number of digits. */
    return qfloat_pack((complement ? -value : value) * 2, more + 1, false, exponent, complement,
                       type);
}

/* A significand times 2^exponent as IEEE's, to the nearest, ties to even. */
static inline uint32_t qfloat_to_ieee(int64_t significand, int exponent, QFloatType type)
{
    int fraction = qfloat_fraction(type);
    int largest = qfloat_largest(type);
    int width = qfloat_is_wide(type) ? 31 : 15;
    uint32_t sign = significand < 0 ? 1u << width : 0;
    uint64_t magnitude = significand < 0 ? -significand : significand;
    uint64_t kept, tail;
    int unit, drop;

    if (magnitude == 0) {
        return sign;
    }
    /* The exponent of the last digit that is kept: that of a denormal, or of the leading digit. */
    unit = 1 - qfloat_bias(type) - fraction;
    unit = MAX(unit, exponent + qfloat_log2(magnitude, 0) - fraction);
    drop = unit - exponent;
    if (drop <= 0) {
        kept = magnitude << -drop;
    } else if (drop > 62) {
        kept = 0;
    } else {
        kept = magnitude >> drop;
        tail = magnitude & ((1ull << drop) - 1);
        kept += tail > 1ull << (drop - 1) || (tail == 1ull << (drop - 1) && (kept & 1));
    }
    kept += (uint64_t)(unit + qfloat_bias(type) + fraction - 1) << fraction;
    if (kept >> fraction > largest) {
        return sign | ((1u << width) - 1);
    }
    return sign | (uint32_t)kept;
}

/* qf32 or qf16 to sf or hf. */
static inline uint32_t qfloat_convert(uint32_t bits, QFloatType from, QFloatType to)
{
    QFloat number = qfloat_unpack(bits, from);

    return qfloat_to_ieee(number.significand,
                          number.exponent - qfloat_bias(from) - qfloat_fraction(from), to);
}

/* w to sf, h to hf. */
static inline uint32_t qfloat_from_integer(int32_t value, QFloatType to)
{
    return qfloat_to_ieee(value, 0, to);
}

/* sf to w, hf to h: towards zero, saturated. */
static inline int32_t qfloat_to_integer(uint32_t bits, QFloatType from)
{
    QFloat number = qfloat_unpack(bits, from);
    int shift = number.exponent - qfloat_bias(from) - qfloat_fraction(from);
    int64_t most = from == QFLOAT_SF ? INT32_MAX : INT16_MAX;
    int64_t value = number.significand;

    if (value == 0) {
        return 0;
    }
    if (shift < 0) {
        value = shift < -62 ? 0 : value / (1ll << -shift);
    } else {
        value = value * (1ll << MIN(shift, 34));
    }
    return MAX(-most - 1, MIN(value, most));
}

/* sf or hf by value: both zeros are equal. */
static inline bool qfloat_greater(uint32_t a, uint32_t b, QFloatType type)
{
    int width = type == QFLOAT_SF ? 31 : 15;
    int64_t x = a & ((1u << width) - 1), y = b & ((1u << width) - 1);

    x = a >> width & 1 ? -x : x;
    y = b >> width & 1 ? -y : y;
    return x > y;
}

static inline uint32_t qfloat_max(uint32_t a, uint32_t b, QFloatType type)
{
    return qfloat_greater(a, b, type) ? a : b;
}

static inline uint32_t qfloat_min(uint32_t a, uint32_t b, QFloatType type)
{
    return qfloat_greater(b, a, type) ? a : b;
}

#endif
