/* The part of the QNN ABI for memory: registered buffers, contexts that share, profiles.
 *
 * As in abi.h only the layout matters. */
#ifndef PROBE_ABI_MEMORY_H
#define PROBE_ABI_MEMORY_H

#include "abi.h"

enum { ABI_MEMORY_HANDLE = 1 };             /* a tensor's memory type; its union holds the handle */
enum { ABI_BUFFER_ION = 1, ABI_BUFFER_DMA_BUF = 3 };

struct abi_memory_descriptor {
    uint32_t rank;
    uint32_t *dimensions;
    const char *shape_config;
    uint32_t data_type, buffer_type;
    union {
        struct {
            int32_t fd;
        } ion;
        struct {
            int32_t fd;
            void *data;
        } dma_buf;
    } as;
};
_Static_assert(offsetof(struct abi_memory_descriptor, as) == 32, "memory descriptor: union");
_Static_assert(sizeof(struct abi_memory_descriptor) == 48, "memory descriptor: stride");

/* One option of a context. Whatever its type, a number fills its union as a little-endian value. */
enum { ABI_CONTEXT_CUSTOM = 0, ABI_CONTEXT_PERSISTENT_BINARY = 7 };

struct abi_context_option {
    uint32_t option;
    union {
        const void *custom; /* for ABI_CONTEXT_CUSTOM: the backend's own words */
        uint64_t number;
    } as;
};
_Static_assert(sizeof(struct abi_context_option) == 16, "context option");

enum {
    ABI_HTP_REGISTER_MULTI_CONTEXTS = 2,
    ABI_HTP_SHARE_RESOURCES = 5,
    ABI_HTP_SHARE_RESOURCES_TYPE = 10,
    ABI_HTP_REGISTER_CONCURRENT = 12,
    ABI_HTP_REUSED_IO_LIMIT = 17
};

struct abi_htp_context_option {
    uint32_t option;
    union {
        uint64_t number;
        struct {
            abi_handle first; /* of the group; NULL begins a group */
            uint64_t max_spill_fill_bytes;
        } group;
    } as;
};
_Static_assert(sizeof(struct abi_htp_context_option) == 24, "HTP context option");

enum { ABI_NOTIFY_GRAPH = 0, ABI_NOTIFY_CONTEXT = 1 };

typedef void abi_context_notify(abi_handle context, abi_handle graph, const char *graph_name,
                                uint32_t what, void *parameter, abi_error status);

struct abi_context_params {
    uint32_t version; /* 1 */
    const void **config;
    const void *binary;
    uint64_t size;
    abi_handle profile;
    abi_context_notify *notify;
    void *parameter;
};
_Static_assert(sizeof(struct abi_context_params) == 56, "context parameters");

/* Core API 2.26 is the first that ORT takes to have the list. */
enum { ABI_CORE_MINOR_WITH_LIST = 26 };

enum { ABI_PROFILE_BASIC = 1, ABI_PROFILE_DETAILED = 2 };

struct abi_profile_event {
    uint32_t type, unit;
    uint64_t value;
    const char *name;
};
_Static_assert(sizeof(struct abi_profile_event) == 24, "profile event");

#endif
