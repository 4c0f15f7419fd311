/*
 * HMX, the matrix unit of Hexagon V73: activations, weights, stores.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <math.h>
#include "hmx.h"

/* The bits of an address in a tile that tell the position. */
static unsigned position_mask(HMXType type, HMXLayout layout)
{
    if (type == HMX_HALVES) {
        return 0x782;
    }
    return layout == HMX_CHANNEL_MAJOR ? 0x7e0 : 0x783;
}

int hmx_position(HMXLayout layout, unsigned address)
{
    if (layout == HMX_CHANNEL_MAJOR) {
        return (address >> 5) & 63;
    }
    return ((address >> 5) & 0x3c) | (address & 3);
}

/* All values that consist of bits of the mask, rising; which of them is the given one. */
static int enumerate(uint16_t *values, unsigned mask, unsigned selected, int *index)
{
    int n = 0;
    unsigned value = 0;

    do {
        if (value == selected) {
            *index = n;
        }
        values[n++] = value;
        value = (value - mask) & mask;
    } while (value);
    return n;
}

/* Rt divides the bits of a position: those that are set are rows, the others columns. */
void hmx_grid(HMXGrid *grid, unsigned mask, uint32_t rs, uint32_t rt)
{
    unsigned row_mask = rt & mask;
    unsigned column_mask = ~rt & mask;

    grid->rows = enumerate(grid->row, row_mask, rs & row_mask, &grid->row_selected);
    grid->columns = enumerate(grid->column, column_mask, rs & column_mask,
                              &grid->column_selected);
}

/* The taps that are meant, rising: the first, the step, the last. */
static void tap_range(HMXTaps taps, int selected, int count, int *first, int *step, int *last)
{
    *first = taps == HMX_TAPS_FROM || taps == HMX_TAPS_ONE ? selected : 0;
    *step = taps == HMX_TAPS_EVERY_OTHER ? 2 : 1;
    *last = taps == HMX_TAPS_FROM ? count - 1 : selected;
    if (taps == HMX_TAPS_NONE) {
        *last = 0;
    }
}

/*
 * Channels that are one group: 32, or, if the first of Rs lies behind the last of Rt, fewer:
 * the borrows of last - first say how many.
 */
static int group_size(unsigned first, unsigned last)
{
    unsigned borrows = (((last - first) ^ first ^ last) << 2) & 0xff;
    int size = 32;

    while (borrows & 0x80) {
        size >>= 1;
        borrows = (borrows << 1) & 0xff;
    }
    return size;
}

/* Weights come as a stream of steps, one for each input channel, each with 32 output channels. */
typedef struct {
    const HMXMemory *memory;
    uint32_t address;
    unsigned bytes;                     /* of one weight */
    unsigned steps;                     /* taken so far */
    unsigned end;                       /* steps there are */
    const uint8_t *tile;                /* where the last weights were */
    uint32_t tile_address;
} Stream;

/* The vector of the next step. A tile's worth of memory is looked up at once. */
static const uint8_t *next_vector(Stream *stream)
{
    unsigned vector = stream->steps * stream->bytes / 4;
    uint32_t address = stream->address + vector * HMX_VECTOR;
    uint32_t tile_address = address & -HMX_TILE;

    if (!stream->tile || tile_address != stream->tile_address) {
        stream->tile = stream->memory->at(stream->memory, tile_address, HMX_TILE, false);
        stream->tile_address = tile_address;
    }
    return stream->tile + (address - tile_address);
}

static float half_to_float(uint16_t half)
{
    static float table[65536];
    static bool made;

    if (!__atomic_load_n(&made, __ATOMIC_ACQUIRE)) {
        for (int i = 0; i < 65536; i++) {
            int exponent = (i >> 10) & 31;
            float value = i & 0x3ff;

            if (exponent == 31) {
                value = value ? NAN : INFINITY;
            } else {
                value = exponent ? ldexpf(value + 1024, exponent - 25) : ldexpf(value, -24);
            }
            table[i] = i & 0x8000 ? -value : value;
        }
        __atomic_store_n(&made, true, __ATOMIC_RELEASE);
    }
    return table[half];
}

/*
 * The channels that the steps of weights are for: "count" of them from "first" on. With groups of
 * fewer than 32, the first of them belongs to the first group, and so on for each group.
 */
typedef struct {
    int first;
    int count;
    int group;
} Channels;

/*
 * The values of one tap: all channels of all positions, in the order of rows and columns. Weights
 * of bytes are a matrix of output and input channels, 0 where there are none, so that the compiler
 * makes dot products of it; those of halves are as they come, by steps and output channels.
 */
typedef union {
    struct {
        int16_t activation[HMX_POSITIONS][HMX_CHANNELS];
        int16_t weight[HMX_CHANNELS][HMX_CHANNELS];
    } bytes;
    struct {
        float activation[HMX_POSITIONS][HMX_CHANNELS];
        float weight[HMX_CHANNELS][HMX_CHANNELS];
    } halves;
} Operands;

/* Weights of the next steps; how many there were. */
static int read_weights(Stream *stream, Operands *operands, const Channels *channels)
{
    int n;

    if (stream->bytes == 1 && channels->count < HMX_CHANNELS) {
        memset(operands->bytes.weight, 0, sizeof(operands->bytes.weight));
    }
    for (n = 0; n < channels->count && stream->steps < stream->end; n++, stream->steps++) {
        const uint8_t *from = next_vector(stream) + stream->steps * stream->bytes % 4;

        for (int out = 0; out < HMX_CHANNELS; out++, from += 4) {
            if (stream->bytes == 1) {
                int group = channels->group < HMX_CHANNELS ? out & -channels->group : 0;

                operands->bytes.weight[out][group + channels->first + n] = (int8_t)from[0];
            } else {
                operands->halves.weight[n][out] = half_to_float(from[0] | from[1] << 8);
            }
        }
    }
    if (stream->bytes == 1 && channels->count == HMX_CHANNELS) {
        for (int out = 0; out < HMX_CHANNELS; out++) {
            memset(&operands->bytes.weight[out][n], 0,
                   (HMX_CHANNELS - n) * sizeof(operands->bytes.weight[0][0]));
        }
    }
    return n;
}

/* Activations of one position. */
static void read_activations(const HMXActivation *activation, const uint8_t *from,
                             Operands *operands, int position)
{
    int apart = activation->layout == HMX_CHANNEL_MAJOR ? 1 : 4;

    for (int channel = 0; channel < HMX_CHANNELS; channel++, from += apart) {
        if (activation->type == HMX_BYTES) {
            operands->bytes.activation[position][channel] = from[0];
        } else {
            operands->halves.activation[position][channel] =
                half_to_float(from[0] | from[1] << 8);
        }
    }
}

static void multiply_bytes(int32_t *restrict sum, const int16_t *restrict activation,
                           const int16_t (*restrict weight)[HMX_CHANNELS])
{
    for (int out = 0; out < HMX_CHANNELS; out++) {
        int32_t product = 0;

        for (int channel = 0; channel < HMX_CHANNELS; channel++) {
            product += activation[channel] * weight[out][channel];
        }
        sum[out] += product;
    }
}

static void multiply_halves(double *restrict sum, const float *restrict activation,
                            const float (*restrict weight)[HMX_CHANNELS], int n)
{
    for (int i = 0; i < n; i++) {
        double value = activation[i];

        for (int out = 0; out < HMX_CHANNELS; out++) {
            sum[out] += value * weight[i][out];
        }
    }
}

/* As above, but an output channel sees the channels of its own group only. */
static void multiply_groups(double *restrict sum, const float *restrict activation,
                            const float (*restrict weight)[HMX_CHANNELS], int n, int group)
{
    for (int i = 0; i < n; i++) {
        for (int out = 0; out < HMX_CHANNELS; out++) {
            sum[out] += (double)activation[(out & -group) + i] * weight[i][out];
        }
    }
}

/* One column tap of all the positions, into the sums of a set, moved by the tap. */
static void multiply_tap(HMXState *state, const Operands *operands, const HMXGrid *grid,
                         HMXBeyond beyond, int set, int tap, const Channels *channels, int steps)
{
    const HMXActivation *activation = &state->activation;

    for (int row = 0; row < grid->rows; row++) {
        for (int column = 0; column < grid->columns; column++) {
            int source = row * grid->columns + column;
            const float *halves = operands->halves.activation[source] + channels->first;
            int moved = column + tap;
            int into = set;
            int position;

            if (moved >= grid->columns) {
                if (beyond != HMX_BEYOND_TO_OTHER_SET) {
                    continue;
                }
                moved -= grid->columns;
                into = !set;
            }
            position = hmx_position(activation->layout, grid->row[row] | grid->column[moved]);
            if (activation->type == HMX_BYTES) {
                multiply_bytes(state->sum[into][position], operands->bytes.activation[source],
                               operands->bytes.weight);
            } else if (channels->group < HMX_CHANNELS) {
                multiply_groups(state->half_sum[into][position >> 1], halves,
                                operands->halves.weight, steps, channels->group);
            } else {
                multiply_halves(state->half_sum[into][position >> 1], halves,
                                operands->halves.weight, steps);
            }
        }
    }
}

void hmx_activation(HMXState *state, HMXType type, HMXLayout layout, HMXTaps taps,
                    uint32_t rs, uint32_t rt)
{
    state->activation = (HMXActivation) {
        .rs = rs, .rt = rt, .type = type, .layout = layout, .taps = taps,
    };
}

/* The channel of an address's bits. */
static int channel_of(HMXLayout layout, uint32_t address)
{
    return layout == HMX_CHANNEL_MAJOR ? address & 31 : (address >> 2) & 31;
}

bool hmx_weight(HMXState *state, const HMXMemory *memory, HMXType type, HMXTaps taps,
                HMXBeyond beyond, uint32_t rs, uint32_t rt)
{
    const HMXActivation *activation = &state->activation;
    HMXLayout layout = activation->layout;
    bool deep = activation->taps == HMX_TAPS_NONE;
    int tiles = deep ? (activation->rt >> 11) + 1 : 1;
    /* Channels come by whole vectors of weights. */
    int whole = type == HMX_BYTES ? 4 : 2;
    int first = channel_of(layout, activation->rs) & -whole;
    int last = channel_of(layout, activation->rt) | (whole - 1);
    int group = tiles == 1 && first > last ? group_size(first, last) : HMX_CHANNELS;
    int sets = beyond == HMX_BEYOND_DROPPED_TWO_SETS ? 2 : 1;
    int row_first, row_step, row_last, column_first, column_step, column_last;
    HMXGrid grid;
    Operands operands;
    Stream stream = {
        .memory = memory,
        .address = rs & -HMX_VECTOR,
        .bytes = type == HMX_BYTES ? 1 : 2,
    };

    if (activation->type != type) {
        return false;
    }
    stream.end = ((rt >> 7) + 1) * (4 / stream.bytes);
    hmx_grid(&grid, position_mask(type, layout), activation->rs, activation->rt);
    tap_range(activation->taps, grid.row_selected, grid.rows, &row_first, &row_step, &row_last);
    tap_range(taps, grid.column_selected, grid.columns, &column_first, &column_step,
              &column_last);

    for (int tile = 0; tile < tiles; tile++) {
        uint32_t base = (activation->rs & -HMX_TILE) + tile * HMX_TILE;
        uint32_t next = base + (activation->rt & -HMX_TILE);
        int from = tile == 0 ? first & (group - 1) : 0;
        int to = tile == tiles - 1 ? last & (group - 1) : HMX_CHANNELS - 1;
        Channels channels = { .first = from, .count = to - from + 1, .group = group };

        for (int tap = row_first; tap <= row_last; tap += row_step) {
            for (int row = 0; row < grid.rows; row++) {
                int wrapped = (row + tap) % grid.rows;
                const uint8_t *place = memory->at(memory, row + tap < grid.rows ? base : next,
                                                  HMX_TILE, false) + grid.row[wrapped];

                for (int column = 0; column < grid.columns; column++) {
                    read_activations(activation, place + grid.column[column], &operands,
                                     row * grid.columns + column);
                }
            }
            for (int set = 0; set < sets; set++) {
                for (int column = column_first; column <= column_last; column += column_step) {
                    int steps = read_weights(&stream, &operands, &channels);

                    multiply_tap(state, &operands, &grid, beyond, state->set ^ set, column,
                                 &channels, steps);
                }
            }
        }
    }
    return true;
}

/* Each channel, or each second one; those are stored side by side, from Rs's bit 6 on. */
static bool store(const HMXState *state, const HMXMemory *memory, HMXLayout layout,
                  uint32_t rs, uint32_t rt, int step)
{
    uint32_t base = rs & -HMX_TILE;
    int apart = layout == HMX_CHANNEL_MAJOR ? 1 : 4;
    HMXGrid grid;

    hmx_grid(&grid, position_mask(HMX_BYTES, layout), rs, rt);
    if (state->unknown[0] || (grid.column_selected > 0 && state->unknown[1])) {
        return false;
    }
    for (int row = 0; row < grid.rows; row++) {
        int below = row + grid.row_selected;
        uint32_t tile = below < grid.rows ? base : base + (rt & -HMX_TILE);
        uint8_t *place = memory->at(memory, tile, HMX_TILE, true)
                         + grid.row[below % grid.rows];

        for (int column = 0; column < grid.columns; column++) {
            bool older = column < grid.column_selected;
            int source = column - grid.column_selected + (older ? grid.columns : 0);
            const uint16_t *result = state->result[older][
                hmx_position(layout, grid.row[row] | grid.column[source])];
            uint8_t *to = place + grid.column[column];

            if (step == 2) {
                to += ((rs & 64) >> 2) * apart;
            }
            for (int channel = step - 1; channel < HMX_CHANNELS; channel += step, to += apart) {
                *to = result[channel] >> 4;
            }
        }
    }
    return true;
}

bool hmx_store(const HMXState *state, const HMXMemory *memory, HMXLayout layout,
               uint32_t rs, uint32_t rt)
{
    return store(state, memory, layout, rs, rt, 1);
}

/* The results of 16 pairs of channels, side by side from channel 0 or 16 on. */
bool hmx_store_odd_channels(const HMXState *state, const HMXMemory *memory,
                            uint32_t rs, uint32_t rt)
{
    return store(state, memory, HMX_SPATIAL_MAJOR, rs, rt, 2);
}
