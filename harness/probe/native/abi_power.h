/* The part of the QNN ABI for votes for power: the HTP backend's performance infrastructure.
 *
 * As in abi.h only the layout matters. */
#ifndef PROBE_ABI_POWER_H
#define PROBE_ABI_POWER_H

#include "abi.h"

enum { ABI_INFRASTRUCTURE_PERF = 0 };
enum { ABI_POWER_DCVS_V3 = 1, ABI_POWER_RPC_CONTROL_LATENCY, ABI_POWER_RPC_POLLING_TIME };
enum { ABI_MODE_POWER_SAVER = 0x4, ABI_MODE_PERFORMANCE = 0x10 };
enum {
    ABI_CORNER_DISABLE = 0x10,
    ABI_CORNER_SVS2 = 0x30,
    ABI_CORNER_SVS = 0x40,
    ABI_CORNER_SVS_PLUS = 0x50,
    ABI_CORNER_NOMINAL = 0x60,
    ABI_CORNER_NOMINAL_PLUS = 0x70,
    ABI_CORNER_TURBO = 0x80,
    ABI_CORNER_MAX = 0xA0,
};

struct abi_corners {
    uint32_t least, target, most;
};

struct abi_power_config {
    uint32_t option;
    union {
        struct {
            uint32_t client;
            uint32_t set_scaling, scaling, mode;
            uint32_t set_sleep_latency, sleep_latency_us;
            uint32_t set_sleep_disable, sleep_disable;
            uint32_t set_bus;
            struct abi_corners bus;
            uint32_t set_core;
            struct abi_corners core;
        } dcvs;
        uint32_t us;
        uint32_t room[32]; /* newer libraries have larger options */
    } as;
};
_Static_assert(offsetof(struct abi_power_config, as.dcvs.bus) == 40, "power: bus corners");
_Static_assert(offsetof(struct abi_power_config, as.dcvs.core) == 56, "power: core corners");

struct abi_htp_infrastructure {
    uint32_t type;
    abi_error (*create_power_config_id)(uint32_t device, uint32_t core, uint32_t *client);
    abi_error (*destroy_power_config_id)(uint32_t client);
    abi_error (*set_power_config)(uint32_t client, const struct abi_power_config **configs);
    void *set_memory_config;
};

#endif
