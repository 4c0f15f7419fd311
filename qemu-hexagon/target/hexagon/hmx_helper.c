/*
 * HMX in QEMU: the state of a thread's matrix unit, and its way to the guest's memory.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "cpu.h"
#include "exec/exec-all.h"
#include "exec/cpu_ldst.h"
#include "internal.h"
#include "hmx_helper.h"

/* In user mode, each thread of the guest is a thread of its own. */
static __thread HMXState state;

typedef struct {
    HMXMemory memory;
    CPUHexagonState *env;
    uintptr_t ra;
} GuestMemory;

static __thread GuestMemory guest;

HMXState *hmx_state(void)
{
    return &state;
}

static uint8_t *guest_at(const HMXMemory *memory, uint32_t address, unsigned size, bool write)
{
    const GuestMemory *to = container_of(memory, GuestMemory, memory);

    return probe_access(to->env, address, size, write ? MMU_DATA_STORE : MMU_DATA_LOAD,
                        MMU_USER_IDX, to->ra);
}

HMXMemory *hmx_memory(CPUHexagonState *env, uintptr_t ra)
{
    guest = (GuestMemory) { .memory.at = guest_at, .env = env, .ra = ra };
    return &guest.memory;
}

void hmx_need(CPUHexagonState *env, bool known, uintptr_t ra)
{
    if (!known) {
        CPUState *cs = env_cpu(env);
        uint32_t word;

        /* As for words that cannot be decoded, the PC lies behind the packet. */
        cpu_restore_state(cs, ra);
        do {
            word = cpu_ldl_code(env, env->gpr[HEX_REG_PC]);
            env->gpr[HEX_REG_PC] += 4;
        } while (!is_packet_end(word));
        cs->exception_index = HEX_CAUSE_INVALID_PACKET;
        cpu_loop_exit(cs);
    }
}
