/*
 * HMX in QEMU: what the instructions of imported/hmx.idef call.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef HEXAGON_HMX_HELPER_H
#define HEXAGON_HMX_HELPER_H

#include "hmx.h"

HMXState *hmx_state(void);
HMXMemory *hmx_memory(CPUHexagonState *env, uintptr_t ra);
void hmx_need(CPUHexagonState *env, bool known, uintptr_t ra);

#define fHMX_ACTIVATION(TYPE, LAYOUT, TAPS, RS, RT) \
    hmx_activation(hmx_state(), HMX_##TYPE, HMX_##LAYOUT, HMX_TAPS_##TAPS, RS, RT)
#define fHMX_WEIGHT(TYPE, TAPS, BEYOND, RS, RT) \
    hmx_need(env, hmx_weight(hmx_state(), hmx_memory(env, GETPC()), HMX_##TYPE, \
                             HMX_TAPS_##TAPS, HMX_BEYOND_##BEYOND, RS, RT), GETPC())
#define fHMX_BIAS(RS) hmx_bias(hmx_state(), hmx_memory(env, GETPC()), RS)
#define fHMX_CLEAR() hmx_clear(hmx_state())
#define fHMX_CLEAR_HALVES() hmx_clear_halves(hmx_state())
#define fHMX_SWAP() hmx_swap(hmx_state())
#define fHMX_CONVERT(WHAT, RS) \
    hmx_need(env, hmx_convert_##WHAT(hmx_state(), RS), GETPC())
#define fHMX_STORE(LAYOUT, RS, RT) \
    hmx_need(env, hmx_store(hmx_state(), hmx_memory(env, GETPC()), HMX_##LAYOUT, RS, RT), \
             GETPC())
#define fHMX_STORE_ODD_CHANNELS(RS, RT) \
    hmx_need(env, hmx_store_odd_channels(hmx_state(), hmx_memory(env, GETPC()), RS, RT), \
             GETPC())

#endif
