/* Votes for clocks and sleep by the HTP backend's performance infrastructure, and their release.
 *
 * Each vote is a call of its own, so that each has an answer. A refused one fails no step: what a
 * library accepted is a finding, and the simulator has no clocks. Votes that are not released end
 * with the process, as FastRPC closes its session. */
#include "abi_power.h"
#include "probe.h"

enum { CONTROL_LATENCY_US = 100, POLLING_US = 9999, RELEASED_SLEEP_US = 2000 };

/* In the order of the words of `power` in verbs.h; the values are those of ONNX Runtime. */
static const struct profile {
    uint32_t corner, sleep_us;
    bool fixed;     /* no scaling of clocks by load */
    bool saves;     /* by the power saver's thresholds */
    uint32_t polling_us;
} profiles[] = {
    {0},
    {ABI_CORNER_MAX, 40, true, false, POLLING_US},        /* burst */
    {ABI_CORNER_MAX, 40, true, false, POLLING_US},        /* sustained_high_performance */
    {ABI_CORNER_TURBO, 100, true, false, POLLING_US},     /* high_performance */
    {ABI_CORNER_NOMINAL_PLUS, 1000, false, false, 0},     /* balanced */
    {ABI_CORNER_NOMINAL, 1000, false, false, 0},          /* low_balanced */
    {ABI_CORNER_SVS_PLUS, 1000, false, false, 0},         /* high_power_saver */
    {ABI_CORNER_SVS, 1000, false, false, 0},              /* power_saver */
    {ABI_CORNER_SVS2, 1000, false, false, 0},             /* low_power_saver */
    {ABI_CORNER_DISABLE, 1000, false, true, 0},           /* extreme_power_saver */
};
static const struct profile released = {ABI_CORNER_SVS2, RELEASED_SLEEP_US, false, true, 0};

static struct {
    const struct abi_htp_infrastructure *infrastructure; /* NULL: nothing was voted */
    uint32_t client;
} power;

static abi_error vote(struct json *json, const char *name, const struct abi_power_config *config) {
    const struct abi_power_config *list[] = {config, NULL};
    event_call("QnnHtpPerfInfrastructure_setPowerConfig");
    abi_error code = power.infrastructure->set_power_config(power.client, list);
    json_u64(json, name, code);
    return code;
}

static void vote_for(struct json *json, const struct profile *profile) {
    uint32_t corner = profile->corner;
    struct abi_power_config dcvs = {
        .option = ABI_POWER_DCVS_V3,
        .as.dcvs = {.client = power.client,
                    .set_scaling = 1,
                    .scaling = !profile->fixed,
                    .mode = profile->saves ? ABI_MODE_POWER_SAVER : ABI_MODE_PERFORMANCE,
                    .set_sleep_latency = 1,
                    .sleep_latency_us = profile->sleep_us,
                    .set_bus = 1,
                    .bus = {corner, corner, corner},
                    .set_core = 1,
                    .core = {corner, corner, corner}}};
    vote(json, "dcvs", &dcvs);
    struct abi_power_config latency = {.option = ABI_POWER_RPC_CONTROL_LATENCY,
                                       .as.us = profile == &released ? 0 : CONTROL_LATENCY_US};
    vote(json, "rpc_control_latency", &latency);
    struct abi_power_config polling = {.option = ABI_POWER_RPC_POLLING_TIME,
                                       .as.us = profile->polling_us};
    vote(json, "rpc_polling_time", &polling);
}

void power_vote(uint32_t profile, struct json *json) {
    const struct abi_htp_infrastructure *infrastructure = NULL;
    if (profile == 0 || qnn.api->device_infrastructure == NULL) return;
    json_open(json, "power_votes", '{');
    event_call("QnnDevice_getInfrastructure");
    abi_error code = qnn.api->device_infrastructure(&infrastructure);
    json_u64(json, "infrastructure", code);
    if (code == 0 && infrastructure != NULL && infrastructure->type == ABI_INFRASTRUCTURE_PERF) {
        event_call("QnnHtpPerfInfrastructure_createPowerConfigId");
        code = infrastructure->create_power_config_id(0, 0, &power.client);
        json_u64(json, "client", code);
        if (code == 0) {
            power.infrastructure = infrastructure;
            vote_for(json, &profiles[profile]);
        }
    }
    json_close(json, '}');
}

void power_release(struct json *json) {
    if (power.infrastructure == NULL) return;
    json_open(json, "power_votes", '{');
    vote_for(json, &released);
    event_call("QnnHtpPerfInfrastructure_destroyPowerConfigId");
    json_u64(json, "client", power.infrastructure->destroy_power_config_id(power.client));
    json_close(json, '}');
    power.infrastructure = NULL;
    event_call("QnnDevice_free");
}
