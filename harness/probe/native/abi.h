/* The part of the QNN ABI that the probe uses, declared for itself: 64-bit, little-endian.
 *
 * Only the layout matters here, so the names are ours. Interface tables are append-only: entries
 * keep their place, newer libraries add more behind them. tests/integration/probe checks all of
 * this against the real libraries of QNN 2.47 to 2.51. */
#ifndef PROBE_ABI_H
#define PROBE_ABI_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t abi_error; /* the low 16 bits are the code */
typedef void *abi_handle;

struct abi_version {
    uint32_t major, minor, patch;
};

enum { ABI_LOG_ERROR = 1, ABI_LOG_WARN, ABI_LOG_INFO, ABI_LOG_VERBOSE, ABI_LOG_DEBUG };

typedef void abi_log_callback(const char *format, uint32_t level, uint64_t timestamp, va_list args);

enum {
    ABI_MEMORY_RAW = 0,
    ABI_SCALE_OFFSET = 0,
    ABI_AXIS_SCALE_OFFSET = 1,
    ABI_UNDEFINED = 0x7fffffff
};

struct abi_quantization {
    uint32_t definition, encoding;
    union {
        struct {
            float scale;
            int32_t offset;
        } scale_offset;
        struct {
            int32_t axis;
            uint32_t count;
        } axis;
        uint64_t other[4];
    } as;
};

/* Both known versions share this stride; what lies behind `memory` is version 2's. */
struct abi_tensor {
    uint32_t version, padding;
    uint32_t id;
    const char *name;
    uint32_t type, data_format, data_type;
    struct abi_quantization quantization;
    uint32_t rank;
    uint32_t *dimensions;
    uint32_t memory_type;
    struct {
        void *data;
        uint32_t size;
    } memory;
    uint8_t *is_dynamic;
    uint32_t sparse[3];
    uint8_t is_produced;
};
_Static_assert(sizeof(struct abi_quantization) == 40, "quantization parameters");
_Static_assert(offsetof(struct abi_tensor, data_type) == 32, "tensor: data type");
_Static_assert(offsetof(struct abi_tensor, rank) == 80, "tensor: rank");
_Static_assert(offsetof(struct abi_tensor, memory) == 104, "tensor: memory");
_Static_assert(sizeof(struct abi_tensor) == 144, "tensor: stride");

struct abi_memory_descriptor; /* these three: abi_memory.h */
struct abi_profile_event;
struct abi_context_params;
struct abi_htp_infrastructure; /* abi_power.h */

struct abi_backend_api {
    void *property_has_capability;
    abi_error (*backend_create)(abi_handle log, const void **config, abi_handle *backend);
    void *backend_set_config, *backend_api_version;
    abi_error (*backend_build_id)(const char **id);
    void *register_op_package, *supported_operations, *validate_op_config;
    abi_error (*backend_free)(abi_handle backend);
    void *context_create, *context_set_config, *context_binary_size, *context_binary;
    abi_error (*context_create_from_binary)(abi_handle backend, abi_handle device,
                                            const void **config, const void *binary, uint64_t size,
                                            abi_handle *context, abi_handle profile);
    abi_error (*context_free)(abi_handle context, abi_handle profile);
    void *graph_create, *graph_create_subgraph, *graph_set_config, *graph_add_node, *graph_finalize;
    abi_error (*graph_retrieve)(abi_handle context, const char *name, abi_handle *graph);
    abi_error (*graph_execute)(abi_handle graph, const struct abi_tensor *inputs,
                               uint32_t input_count, struct abi_tensor *outputs,
                               uint32_t output_count, abi_handle profile, abi_handle signal);
    void *graph_execute_async, *tensor_create_context, *tensor_create_graph;
    abi_error (*log_create)(abi_log_callback *callback, uint32_t level, abi_handle *log);
    void *log_set_level;
    abi_error (*log_free)(abi_handle log);
    abi_error (*profile_create)(abi_handle backend, uint32_t level, abi_handle *profile);
    void *profile_set_config;
    abi_error (*profile_events)(abi_handle profile, const uint64_t **events, uint32_t *count);
    abi_error (*profile_sub_events)(uint64_t event, const uint64_t **events, uint32_t *count);
    abi_error (*profile_data)(uint64_t event, struct abi_profile_event *data);
    void *profile_extended_data;
    abi_error (*profile_free)(abi_handle profile);
    abi_error (*memory_register)(abi_handle context,
                                 const struct abi_memory_descriptor *descriptors, uint32_t count,
                                 abi_handle *handles);
    abi_error (*memory_deregister)(const abi_handle *handles, uint32_t count);
    void *platform_info, *free_platform_info;
    abi_error (*device_infrastructure)(const struct abi_htp_infrastructure **infrastructure);
    abi_error (*device_create)(abi_handle log, const void **config, abi_handle *device);
    void *device_set_config, *device_info;
    abi_error (*device_free)(abi_handle device);
    void *signal[4];
    abi_error (*error_message)(abi_error error, const char **message);
    /* An older table may end here: see ABI_CORE_MINOR_WITH_LIST. */
    void *behind[7];
    abi_error (*context_create_list)(abi_handle backend, abi_handle device,
                                     const struct abi_context_params **contexts,
                                     const void **config, abi_handle signal);
};
_Static_assert(offsetof(struct abi_backend_api, context_create_from_binary) == 13 * 8, "table");
_Static_assert(offsetof(struct abi_backend_api, graph_retrieve) == 20 * 8, "table");
_Static_assert(offsetof(struct abi_backend_api, log_create) == 25 * 8, "table");
_Static_assert(offsetof(struct abi_backend_api, memory_register) == 35 * 8, "table");
_Static_assert(offsetof(struct abi_backend_api, device_infrastructure) == 39 * 8, "table");
_Static_assert(offsetof(struct abi_backend_api, device_create) == 40 * 8, "table");
_Static_assert(offsetof(struct abi_backend_api, error_message) == 48 * 8, "table");
_Static_assert(offsetof(struct abi_backend_api, context_create_list) == 56 * 8, "table");

struct abi_backend_provider {
    uint32_t backend_id;
    const char *name;
    struct abi_version core, backend;
    struct abi_backend_api api;
};
/* QnnInterface_getProviders and QnnSystemInterface_getProviders: pointers to `struct
 * abi_backend_provider` and `struct abi_system_provider`. */
typedef abi_error abi_providers(const void *const **list, uint32_t *count);

struct abi_graph_info {
    uint32_t version;
    const char *name;
    uint32_t input_count;
    struct abi_tensor *inputs;
    uint32_t output_count;
    struct abi_tensor *outputs;
    uint32_t updateable_count; /* from version 2 */
    struct abi_tensor *updateable;
    uint32_t blob_size; /* from version 3 */
    const void *blob;
    uint32_t first_operation, last_operation;
};
_Static_assert(sizeof(struct abi_graph_info) == 88, "graph: stride");

struct abi_binary_info_1 { /* version 2 only adds a pointer behind it */
    uint32_t version;
    uint32_t padding;
    uint32_t backend_id;
    const char *build_id;
    struct abi_version core, backend;
    const char *soc_version;
    struct abi_version hardware_blob, context_blob;
    uint32_t hardware_blob_size;
    const void *hardware_blob_data;
    uint64_t context_blob_size;
    uint32_t context_tensor_count;
    const struct abi_tensor *context_tensors;
    uint32_t graph_count;
    const struct abi_graph_info *graphs;
};

struct abi_binary_info_3 {
    uint32_t version;
    uint32_t padding;
    uint32_t backend_id;
    const char *build_id;
    struct abi_version core, backend;
    const char *soc_version;
    struct abi_version context_blob;
    uint64_t context_blob_size;
    uint32_t context_tensor_count;
    const struct abi_tensor *context_tensors;
    uint32_t graph_count;
    const struct abi_graph_info *graphs;
    const void *platform_info;
    uint32_t metadata_size;
    const void *metadata;
    uint32_t soc_model;
};
_Static_assert(offsetof(struct abi_binary_info_1, graphs) == 128, "binary info 1");
_Static_assert(offsetof(struct abi_binary_info_3, graphs) == 104, "binary info 3");
_Static_assert(offsetof(struct abi_binary_info_3, soc_model) == 136, "binary info 3");

/* What the HTP backend adds to a graph. The second half is absent in older libraries: compare the
 * blob's size before reading it. */
struct abi_htp_graph_blob {
    uint32_t version; /* 1 */
    uint64_t spill_fill_bytes;
    uint32_t vtcm_size, optimization_level;
    uint8_t dlbc;
    uint64_t hvx_threads;
    uint32_t second_version; /* 2 */
    uint64_t native_k_bytes, native_v_bytes;
    uint32_t io_may_be_shared;
    uint64_t io_bytes, op_data_bytes, const_bytes, ddr_tensor_bytes, shared_weights_bytes;
};
enum { ABI_HTP_GRAPH_BLOB_1_SIZE = offsetof(struct abi_htp_graph_blob, second_version) };
_Static_assert(ABI_HTP_GRAPH_BLOB_1_SIZE == 40, "HTP graph blob 1");
_Static_assert(sizeof(struct abi_htp_graph_blob) == 112, "HTP graph blob 2");

struct abi_htp_context_blob {
    uint32_t version; /* 1 */
    uint32_t dsp_arch;
};

struct abi_system_api {
    abi_error (*context_create)(abi_handle *context);
    abi_error (*binary_info)(abi_handle context, void *binary, uint64_t size, const void **info,
                             uint64_t *info_size);
    abi_error (*metadata)(abi_handle context, const void *binary, uint64_t size,
                          const void **info);
    abi_error (*context_free)(abi_handle context);
};

struct abi_system_provider {
    uint32_t backend_id;
    const char *name;
    struct abi_version version;
    struct abi_system_api api;
};

/* A device configuration: option 0 (custom) and a pointer to the backend's own words. */
struct abi_device_config {
    uint32_t option;
    const void *custom;
};

#endif
