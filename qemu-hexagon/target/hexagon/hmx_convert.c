/*
 * HMX, the matrix unit of Hexagon V73: what becomes of sums.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <math.h>
#include "hmx.h"

void hmx_bias(HMXState *state, const HMXMemory *memory, uint32_t rs)
{
    uint32_t address = rs & -HMX_VECTOR;

    for (int word = 0; word < 2; word++) {
        const uint8_t *from = memory->at(memory, address + word * HMX_VECTOR, HMX_VECTOR, false);

        for (int channel = 0; channel < HMX_CHANNELS; channel++, from += 4) {
            uint64_t value = from[0] | from[1] << 8 | from[2] << 16 | (uint32_t)from[3] << 24;

            if (word == 0) {
                state->bias[channel] = value;
            } else {
                state->bias[channel] |= value << 32;
            }
        }
    }
}

void hmx_clear(HMXState *state)
{
    memset(state->sum, 0, sizeof(state->sum));
}

void hmx_clear_halves(HMXState *state)
{
    memset(state->half_sum, 0, sizeof(state->half_sum));
}

void hmx_swap(HMXState *state)
{
    state->set ^= 1;
}

static unsigned bits(uint64_t word, int high, int low)
{
    return (word >> low) & ((2ull << (high - low)) - 1);
}

/* What Rs of a conversion asks for. */
enum {
    CONVERT_KEEP = 1,                   /* the sums; else clear them, go on with the other set */
    CONVERT_WRAP = 2,                   /* instead of saturating */
    CONVERT_FEEDBACK = 3 << 2,          /* if not 0, results replace the newest generation */
    CONVERT_FEEDBACK_OFFSET = 1 << 2,   /* the earlier result limits the offset */
    CONVERT_FEEDBACK_SCALE = 2 << 2,    /* ... the scale */
    CONVERT_FEEDBACK_MAX = 1 << 4,      /* by the larger of the two, not the smaller */
};

/* Which channels of each pair a conversion of 16-bit operands takes, by Rs 10..9. */
enum {
    PAIRS_NONE = 0,                     /* met where only the sums are to be cleared */
    PAIRS_ODD = 1,
    PAIRS_EVEN = 2,
    PAIRS_BOTH = 3,
};

/* Makes room for results, unless they replace those they are made of. */
static void age(HMXState *state, uint32_t rs)
{
    if (!(rs & CONVERT_FEEDBACK)) {
        memmove(state->result[1], state->result[0],
                (HMX_GENERATIONS - 1) * sizeof(state->result[0]));
        state->unknown[1] = state->unknown[0];
        state->unknown[0] = false;
    }
}

/* A sum with its bias, as a fraction of the kept bits and one more, set unless it is zero. */
static int64_t fraction(int64_t sum, int exponent, int kept)
{
    int64_t limit = 4ll << 32 >> exponent;
    int64_t shifted;

    if (sum >= limit) {
        return (4ll << (kept + 1)) - 1;
    }
    if (sum < -limit) {
        return -(4ll << (kept + 1));
    }
    shifted = sum * (1ll << exponent);
    return (shifted >> (32 - kept)) * 2 | (sum != 0);
}

static void finish(HMXState *state, uint32_t rs)
{
    if (!(rs & CONVERT_KEEP)) {
        memset(state->sum[state->set], 0, sizeof(state->sum[0]));
        state->set ^= 1;
    }
}

static int limited(int value, int earlier, uint32_t rs)
{
    return rs & CONVERT_FEEDBACK_MAX ? MAX(value, earlier) : MIN(value, earlier);
}

/* Bias words of bytes can bend the sum (bits 18, 17, 15): how, is not known. */
static bool usual_shape(uint64_t word)
{
    return !bits(word, 18, 17) && !bits(word, 15, 15);
}

bool hmx_convert_bytes(HMXState *state, uint32_t rs)
{
    for (int channel = 0; channel < HMX_CHANNELS; channel++) {
        if (!usual_shape(state->bias[channel])) {
            return false;
        }
    }
    age(state, rs);
    for (int channel = 0; channel < HMX_CHANNELS; channel++) {
        uint64_t word = state->bias[channel];
        int32_t bias = word >> 32;
        int full_scale = !bits(word, 16, 16) << 11 | bits(word, 9, 0) << 1 | bits(word, 31, 31);
        int full_offset = bits(word, 30, 19);
        int exponent = bits(word, 14, 10);

        for (int position = 0; position < HMX_POSITIONS; position++) {
            uint16_t *result = &state->result[0][position][channel];
            int64_t sum = state->sum[state->set][position][channel];
            int64_t value = fraction(sum + bias, exponent, 12);
            int scale = full_scale, offset = full_offset;

            if ((rs & CONVERT_FEEDBACK) == CONVERT_FEEDBACK_OFFSET) {
                offset = limited(offset, *result, rs);
            } else if ((rs & CONVERT_FEEDBACK) == CONVERT_FEEDBACK_SCALE) {
                scale = limited(scale, *result, rs);
            }
            value = (value * scale >> 12) + offset;
            if (!(rs & CONVERT_WRAP)) {
                value = MAX(0, MIN(value, 0xfff));
            }
            *result = value & 0xfff;
        }
    }
    finish(state, rs);
    return true;
}

/* A half whose mantissa is longer by some more bits. */
static double long_half(unsigned half, unsigned more, int more_bits)
{
    int exponent = (half >> 10) & 31;
    double value = (half & 0x3ff) + ldexp(more, -more_bits);

    value = exponent ? ldexp(value + 1024, exponent - 25) : ldexp(value, -24);
    return half & 0x8000 ? -value : value;
}

/* The nearest half, ties to even. */
static uint16_t to_half(double value, bool saturate)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    int exponent;
    double units;

    value = fabs(value);
    if (isnan(value)) {
        return 0x7fff;
    }
    if (value >= 65520) {
        return sign | (saturate ? 0x7bff : 0x7c00);
    }
    if (value < ldexp(1, -14)) {
        return sign | (uint16_t)nearbyint(ldexp(value, 24));
    }
    frexp(value, &exponent);
    exponent--;
    units = nearbyint(ldexp(value, 10 - exponent));
    return sign | (uint16_t)(units + ldexp(exponent + 14, 10));
}

bool hmx_convert_halves(HMXState *state, uint32_t rs)
{
    if ((rs & CONVERT_FEEDBACK) == CONVERT_FEEDBACK_SCALE) {
        return false;
    }
    age(state, rs);
    for (int channel = 0; channel < HMX_CHANNELS; channel++) {
        uint64_t word = state->bias[channel];
        double scale = long_half(bits(word, 15, 0), bits(word, 35, 32), 4);
        double full_offset = long_half(bits(word, 31, 16), bits(word, 39, 36), 4);
        double bias = long_half(bits(word, 63, 48), bits(word, 47, 43), 5);
        bool negate = bits(word, 42, 42);

        for (int position = 0; position < HMX_HALF_POSITIONS; position++) {
            uint16_t *low = &state->result[0][2 * position][channel];
            uint16_t *high = &state->result[0][2 * position + 1][channel];
            double value = state->half_sum[state->set][position][channel] + bias;
            double offset = full_offset;
            uint16_t half;

            switch (bits(word, 41, 40)) {
            case 1:
                value = MIN(value, 0);
                break;
            case 2:
                value = MAX(value, 0);
                break;
            case 3:
                value = fabs(value);
                break;
            }
            if (negate) {
                value = -value;
            }
            if ((rs & CONVERT_FEEDBACK) == CONVERT_FEEDBACK_OFFSET) {
                double earlier = long_half(*high << 4 | *low >> 4, 0, 0);

                offset = rs & CONVERT_FEEDBACK_MAX ? MAX(offset, earlier) : MIN(offset, earlier);
            }
            half = to_half(value * scale + offset, !(rs & CONVERT_WRAP));
            *low = (half & 0xff) << 4;
            *high = half >> 8 << 4;
        }
    }
    if (!(rs & CONVERT_KEEP)) {
        memset(state->half_sum[state->set], 0, sizeof(state->half_sum[0]));
        state->set ^= 1;
    }
    return true;
}

/*
 * The sum of 16-bit operands: low bytes of activations are at even positions, the high ones behind
 * them. With both channels of a pair, the even one has the low bytes of weights.
 */
static int64_t wide_sum(const int32_t low[HMX_CHANNELS], const int32_t high[HMX_CHANNELS],
                        int channel, int select)
{
    if (select == PAIRS_BOTH) {
        int64_t middle = (int64_t)low[channel + 1] + high[channel];

        return high[channel + 1] + ((middle * 256 + low[channel]) >> 16);
    }
    channel += select == PAIRS_ODD;
    return (int64_t)high[channel] + (low[channel] >> 8);
}

/* Whether all fields of a pair's bias words that are not understood have their usual values. */
static bool usual_pair(uint64_t even, uint64_t odd)
{
    return usual_shape(even) && usual_shape(odd) && !bits(even, 30, 23) && !bits(even, 21, 19) &&
           !bits(even, 16, 16) && !bits(odd, 31, 31) && !bits(odd, 14, 10) && !(odd >> 32);
}

bool hmx_convert_pairs(HMXState *state, uint32_t rs)
{
    int select = bits(rs, 10, 9);
    int feedback = rs & CONVERT_FEEDBACK;

    if (feedback == CONVERT_FEEDBACK_OFFSET || feedback == CONVERT_FEEDBACK_SCALE) {
        return false;
    }
    if (select == PAIRS_NONE) {
        age(state, rs);
        state->unknown[0] = true;
        finish(state, rs);
        return true;
    }
    for (int channel = 0; channel < HMX_CHANNELS; channel += 2) {
        if (!usual_pair(state->bias[channel], state->bias[channel + 1])) {
            return false;
        }
    }
    age(state, rs);
    for (int channel = 0; channel < HMX_CHANNELS; channel += 2) {
        uint64_t even = state->bias[channel];
        uint64_t odd = state->bias[channel + 1];
        int64_t scale = (!bits(odd, 16, 16) << 10 | bits(odd, 9, 0)) << 11 |
                        bits(even, 9, 0) << 1 | bits(even, 31, 31);
        int64_t offset = bits(odd, 30, 19) << 8 | bits(even, 22, 22) << 3;
        int32_t bias = even >> 32;
        int exponent = bits(even, 14, 10);
        int to = channel + (select != PAIRS_EVEN);

        for (int position = 0; position < HMX_POSITIONS; position += 2) {
            const int32_t (*sum)[HMX_CHANNELS] = &state->sum[state->set][position];
            int64_t value = wide_sum(sum[0], sum[1], channel, select) + bias;

            value = (fraction(value, exponent, 24) * scale >> 26) + offset;
            if (!(rs & CONVERT_WRAP)) {
                value = MAX(0, MIN(value, 0xfffff));
            }
            state->result[0][position][to] = value & 0xfff;
            state->result[0][position + 1][to] = value >> 8 & 0xff0;
        }
    }
    finish(state, rs);
    return true;
}
