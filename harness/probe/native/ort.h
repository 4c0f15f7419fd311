/* The part of ONNX Runtime's C API that the probe uses, declared for itself, and its state.
 *
 * OrtApi is one table of functions that is only ever appended to, so a function keeps its slot in
 * every version. Only what is used stands here, each function with its slot.
 * tests/integration/probe checks them against the real libraries of ORT 1.24 to 1.31. */
#ifndef PROBE_ORT_H
#define PROBE_ORT_H

#include "probe.h"

typedef void *ort_handle;
typedef void *ort_status; /* NULL: success; else to be released */

typedef void ort_log_callback(void *param, int severity, const char *category, const char *id,
                              const char *place, const char *message);

#define SLOT(slot, type, name, parameters) \
    struct { \
        void *before_##name[slot]; \
        type(*name) parameters; \
    };

union ort_api {
    SLOT(1, int, error_code, (ort_status status))
    SLOT(2, const char *, error_message, (ort_status status))
    SLOT(4, ort_status, create_env,
         (ort_log_callback *callback, void *param, int severity, const char *id, ort_handle *env))
    SLOT(7, ort_status, create_session,
         (ort_handle env, const char *model, ort_handle options, ort_handle *session))
    SLOT(9, ort_status, run,
         (ort_handle session, ort_handle run_options, const char *const *input_names,
          const ort_handle *inputs, size_t input_count, const char *const *output_names,
          size_t output_count, ort_handle *outputs))
    SLOT(10, ort_status, create_options, (ort_handle *options))
    SLOT(24, ort_status, set_threads, (ort_handle options, int threads))
    SLOT(30, ort_status, input_count, (ort_handle session, size_t *count))
    SLOT(31, ort_status, output_count, (ort_handle session, size_t *count))
    SLOT(33, ort_status, input_type, (ort_handle session, size_t index, ort_handle *type))
    SLOT(34, ort_status, output_type, (ort_handle session, size_t index, ort_handle *type))
    SLOT(36, ort_status, input_name,
         (ort_handle session, size_t index, ort_handle allocator, char **name))
    SLOT(37, ort_status, output_name,
         (ort_handle session, size_t index, ort_handle allocator, char **name))
    SLOT(49, ort_status, create_tensor,
         (ort_handle memory, void *data, size_t bytes, const int64_t *shape, size_t rank, int type,
          ort_handle *value))
    SLOT(55, ort_status, tensor_info,
         (ort_handle type, ort_handle *info)) /* the type's own: not freed */
    SLOT(60, ort_status, element_type, (ort_handle info, int *type))
    SLOT(61, ort_status, rank, (ort_handle info, size_t *rank))
    SLOT(62, ort_status, dimensions, (ort_handle info, int64_t *dimensions, size_t rank))
    SLOT(69, ort_status, create_cpu_memory,
         (int allocator_type, int memory_type, ort_handle *memory))
    SLOT(76, ort_status, allocator_free, (ort_handle allocator, void *memory))
    SLOT(78, ort_status, default_allocator, (ort_handle *allocator)) /* ORT's own: not freed */
    SLOT(92, void, release_env, (ort_handle env))
    SLOT(93, void, release_status, (ort_status status))
    SLOT(94, void, release_memory, (ort_handle memory))
    SLOT(95, void, release_session, (ort_handle session))
    SLOT(96, void, release_value, (ort_handle value))
    SLOT(98, void, release_type, (ort_handle type))
    SLOT(100, void, release_options, (ort_handle options))
    SLOT(125, ort_status, providers, (char ***names, int *count))
    SLOT(126, ort_status, release_providers, (char **names, int count))
    SLOT(130, ort_status, set_option, (ort_handle options, const char *key, const char *value))
    SLOT(216, ort_status, append_provider,
         (ort_handle options, const char *name, const char *const *keys, const char *const *values,
          size_t count))
    /* From API 22 on. */
    SLOT(301, ort_status, register_library, (ort_handle env, const char *name, const char *path))
    SLOT(302, ort_status, unregister_library, (ort_handle env, const char *name))
    SLOT(303, ort_status, ep_devices, (ort_handle env, ort_handle const **devices, size_t *count))
    SLOT(304, ort_status, append_devices,
         (ort_handle options, ort_handle env, const ort_handle *devices, size_t device_count,
          const char *const *keys, const char *const *values, size_t count))
    SLOT(307, int, hardware_type, (ort_handle hardware))
    SLOT(312, const char *, ep_name, (ort_handle ep_device))
    SLOT(313, const char *, ep_vendor, (ort_handle ep_device))
    SLOT(316, ort_handle, ep_hardware, (ort_handle ep_device))
    /* From API 24 on. */
    SLOT(407, ort_status, assignment,
         (ort_handle session, ort_handle const **subgraphs, size_t *count))
    SLOT(408, ort_status, subgraph_ep, (ort_handle subgraph, const char **name))
    SLOT(409, ort_status, subgraph_nodes,
         (ort_handle subgraph, ort_handle const **nodes, size_t *count))
    SLOT(410, ort_status, node_name, (ort_handle node, const char **name))
    SLOT(412, ort_status, node_operator, (ort_handle node, const char **name))
};

enum { ORT_API_OLDEST = 17, ORT_API_PLUGIN = 22, ORT_API_NEWEST = 24 };

struct ort_tensor {
    char *name;
    int type; /* ORT's element type */
    int64_t shape[RANK_MAX];
    uint32_t dimensions[RANK_MAX];
    struct abi_tensor tensor; /* as the rest of the probe knows it; data_type 0: not known */
};

struct ort_session {
    ort_handle handle;
    uint32_t input_count, output_count;
    struct ort_tensor *inputs, *outputs;
};

struct ort_state {
    const union ort_api *api;
    uint32_t api_version, alive, registered; /* plug-in libraries that can be let go of */
    ort_handle env;
    struct ort_session sessions[CONTEXTS_MAX];
};
extern struct ort_state ort;

/* Takes a status: adds code, symbol and text to the outcome if it is an error; true: success. */
bool ort_fine(ort_status status, struct outcome *outcome);
bool ort_has_env(struct outcome *outcome);
/* The EP devices of a name; NULL and a failed outcome if ORT does not say. */
ort_handle const *ort_devices(size_t *count, struct outcome *outcome);
struct ort_session *ort_session_of(const struct step *step, struct outcome *outcome);

#endif
