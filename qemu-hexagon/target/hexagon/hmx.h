/*
 * HMX, the matrix unit of Hexagon V73: its state and its instructions.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Nothing here knows QEMU's CPU: memory is reached through HMXMemory, so that this also compiles
 * alone. A tile is 2 KB of 64 positions by 32 channels of bytes, or 32 positions by 32 channels of
 * halves. A function that returns false met operands whose meaning is not known: the instruction
 * has to raise an exception, as one that is not implemented, and nothing is changed.
 */

#ifndef HEXAGON_HMX_H
#define HEXAGON_HMX_H

enum {
    HMX_TILE = 2048,
    HMX_VECTOR = 128,
    HMX_POSITIONS = 64,
    HMX_HALF_POSITIONS = 32,
    HMX_CHANNELS = 32,
    HMX_GENERATIONS = 2,
};

/* Where bytes lie in a tile: the channels of a position 4 bytes apart, or side by side (":cm"). */
typedef enum {
    HMX_SPATIAL_MAJOR,
    HMX_CHANNEL_MAJOR,
} HMXLayout;

/* Which taps of a filter an operand selects, of those that a row or a column of a tile has. */
typedef enum {
    HMX_TAPS_TO,            /* from the first to the one in Rs */
    HMX_TAPS_FROM,          /* from the one in Rs to the last */
    HMX_TAPS_ONE,           /* the one in Rs */
    HMX_TAPS_EVERY_OTHER,   /* 0, 2, 4 ... to the one in Rs */
    HMX_TAPS_NONE,          /* activations alone: several tiles, one after another (":deep") */
} HMXTaps;

typedef enum {
    HMX_BYTES,
    HMX_HALVES,
} HMXType;

/* What sums that move beyond the tile's columns become. */
typedef enum {
    HMX_BEYOND_TO_OTHER_SET,
    HMX_BEYOND_DROPPED,
    HMX_BEYOND_DROPPED_TWO_SETS,    /* and the weights are for both sets, one after the other */
} HMXBeyond;

/* An activation instruction, until the weights of its packet come. */
typedef struct HMXActivation {
    uint32_t rs;
    uint32_t rt;
    HMXType type;
    HMXLayout layout;
    HMXTaps taps;
} HMXActivation;

typedef struct HMXState {
    int32_t sum[2][HMX_POSITIONS][HMX_CHANNELS];
    double half_sum[2][HMX_HALF_POSITIONS][HMX_CHANNELS];
    /* 12 bits each, the newest first; a byte is its upper 8 bits */
    uint16_t result[HMX_GENERATIONS][HMX_POSITIONS][HMX_CHANNELS];
    uint64_t bias[HMX_CHANNELS];
    int set;                        /* the current one of the two sets of sums */
    HMXActivation activation;
    bool unknown[HMX_GENERATIONS];  /* results of a conversion that nobody has described */
} HMXState;

/* One access lies within an aligned tile. It returns the place, or does not return at all. */
typedef struct HMXMemory {
    uint8_t *(*at)(const struct HMXMemory *memory, uint32_t address, unsigned size, bool write);
} HMXMemory;

void hmx_activation(HMXState *state, HMXType type, HMXLayout layout, HMXTaps taps,
                    uint32_t rs, uint32_t rt);
bool hmx_weight(HMXState *state, const HMXMemory *memory, HMXType type, HMXTaps taps,
                HMXBeyond beyond, uint32_t rs, uint32_t rt);
void hmx_bias(HMXState *state, const HMXMemory *memory, uint32_t rs);
void hmx_clear(HMXState *state);
void hmx_clear_halves(HMXState *state);
void hmx_swap(HMXState *state);
bool hmx_convert_bytes(HMXState *state, uint32_t rs);
bool hmx_convert_halves(HMXState *state, uint32_t rs);
bool hmx_convert_pairs(HMXState *state, uint32_t rs);
bool hmx_store(const HMXState *state, const HMXMemory *memory, HMXLayout layout,
               uint32_t rs, uint32_t rt);
bool hmx_store_odd_channels(const HMXState *state, const HMXMemory *memory,
                            uint32_t rs, uint32_t rt);

/* The bits of a position in an address, and back: shared by multiplication and storing. */
typedef struct HMXGrid {
    int rows;
    int columns;
    uint16_t row[HMX_POSITIONS];        /* address bits of each row, rising */
    uint16_t column[HMX_POSITIONS];
    int row_selected;                   /* which row Rs names */
    int column_selected;
} HMXGrid;

void hmx_grid(HMXGrid *grid, unsigned mask, uint32_t rs, uint32_t rt);
int hmx_position(HMXLayout layout, unsigned address);

#endif
