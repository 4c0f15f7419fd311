/* How a context is to share with others: the configuration that context-load gives the library. */
#ifndef PROBE_SHARING_H
#define PROBE_SHARING_H

#include "abi_memory.h"
#include "probe.h"

struct context_config {
    struct abi_htp_group_option group;
    struct abi_device_config entry; /* a context's looks like a device's */
    const void *entries[2];
    const void **list; /* NULL: nothing out of the ordinary */
};

/* False and a failed outcome if the step names a group that does not exist. */
bool context_configure(const struct step *step, struct context_config *config,
                       struct outcome *outcome);

#endif
