/* HMX without QEMU: a memory of its own, and one function for each kind of instruction. */
#include "qemu/osdep.h"

#include "hmx.h"

static HMXState state;
static uint8_t memory[1 << 18] __attribute__((aligned(2048)));

static uint8_t *at(const HMXMemory *of, uint32_t address, unsigned size, bool write)
{
    (void)of;
    (void)write;
    return address + size <= sizeof(memory) ? memory + address : NULL;
}

static const HMXMemory accessor = { at };

HMXState *alone_state(void)
{
    return &state;
}

uint8_t *alone_memory(void)
{
    return memory;
}

void alone_activation(int type, int layout, int taps, uint32_t rs, uint32_t rt)
{
    hmx_activation(&state, type, layout, taps, rs, rt);
}

bool alone_weight(int type, int taps, int beyond, uint32_t rs, uint32_t rt)
{
    return hmx_weight(&state, &accessor, type, taps, beyond, rs, rt);
}

void alone_bias(uint32_t rs)
{
    hmx_bias(&state, &accessor, rs);
}

void alone_clear(int halves)
{
    (halves ? hmx_clear_halves : hmx_clear)(&state);
}

void alone_swap(void)
{
    hmx_swap(&state);
}

bool alone_convert(int kind, uint32_t rs)
{
    switch (kind) {
    case 0:
        return hmx_convert_bytes(&state, rs);
    case 1:
        return hmx_convert_halves(&state, rs);
    default:
        return hmx_convert_pairs(&state, rs);
    }
}

bool alone_store(int kind, uint32_t rs, uint32_t rt)
{
    if (kind == 2) {
        return hmx_store_odd_channels(&state, &accessor, rs, rt);
    }
    return hmx_store(&state, &accessor, kind ? HMX_CHANNEL_MAJOR : HMX_SPATIAL_MAJOR, rs, rt);
}
