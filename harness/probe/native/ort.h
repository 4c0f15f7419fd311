/* The part of ONNX Runtime's C API that the probe uses, declared for itself, and its state.
 *
 * OrtApi is one table of functions that is only ever appended to, so a function keeps its slot in
 * every version. Only the slots that are used have a name here; what lies between them is padding.
 * tests/integration/probe checks them against the real libraries of ORT 1.24 to 1.31. */
#ifndef PROBE_ORT_H
#define PROBE_ORT_H

#include "probe.h"

typedef void *ort_handle;
typedef void *ort_status; /* NULL: success; else to be released */

typedef void ort_log_callback(void *param, int severity, const char *category, const char *id,
                              const char *place, const char *message);

struct ort_api {
    void *slot_0;
    int (*error_code)(ort_status status);
    const char *(*error_message)(ort_status status);
    void *slot_3;
    ort_status (*create_env)(ort_log_callback *callback, void *param, int severity, const char *id,
                             ort_handle *env);
    void *slots_5_6[2];
    ort_status (*create_session)(ort_handle env, const char *model, ort_handle options,
                                 ort_handle *session);
    void *slot_8;
    ort_status (*run)(ort_handle session, ort_handle run_options, const char *const *input_names,
                      const ort_handle *inputs, size_t input_count,
                      const char *const *output_names, size_t output_count, ort_handle *outputs);
    ort_status (*create_options)(ort_handle *options);
    void *slots_11_23[13];
    ort_status (*set_threads)(ort_handle options, int threads);
    void *slots_25_29[5];
    ort_status (*input_count)(ort_handle session, size_t *count);
    ort_status (*output_count)(ort_handle session, size_t *count);
    void *slot_32;
    ort_status (*input_type)(ort_handle session, size_t index, ort_handle *type);
    ort_status (*output_type)(ort_handle session, size_t index, ort_handle *type);
    void *slot_35;
    ort_status (*input_name)(ort_handle session, size_t index, ort_handle allocator, char **name);
    ort_status (*output_name)(ort_handle session, size_t index, ort_handle allocator, char **name);
    void *slots_38_48[11];
    ort_status (*create_tensor)(ort_handle memory, void *data, size_t bytes, const int64_t *shape,
                                size_t rank, int type, ort_handle *value);
    void *slots_50_54[5];
    ort_status (*tensor_info)(ort_handle type, ort_handle *info); /* the type's own: not freed */
    void *slots_56_59[4];
    ort_status (*element_type)(ort_handle info, int *type);
    ort_status (*rank)(ort_handle info, size_t *rank);
    ort_status (*dimensions)(ort_handle info, int64_t *dimensions, size_t rank);
    void *slots_63_68[6];
    ort_status (*create_cpu_memory)(int allocator_type, int memory_type, ort_handle *memory);
    void *slots_70_75[6];
    ort_status (*allocator_free)(ort_handle allocator, void *memory);
    void *slot_77;
    ort_status (*default_allocator)(ort_handle *allocator); /* ORT's own: not freed */
    void *slots_79_91[13];
    void (*release_env)(ort_handle env);
    void (*release_status)(ort_status status);
    void (*release_memory)(ort_handle memory);
    void (*release_session)(ort_handle session);
    void (*release_value)(ort_handle value);
    void *slot_97;
    void (*release_type)(ort_handle type);
    void *slot_99;
    void (*release_options)(ort_handle options);
    void *slots_101_124[24];
    ort_status (*providers)(char ***names, int *count);
    ort_status (*release_providers)(char **names, int count);
    void *slots_127_129[3];
    ort_status (*set_option)(ort_handle options, const char *key, const char *value);
    void *slots_131_215[85];
    ort_status (*append_provider)(ort_handle options, const char *name, const char *const *keys,
                                  const char *const *values, size_t count);
    void *slots_217_300[84];
    /* From API 22 on. */
    ort_status (*register_library)(ort_handle env, const char *name, const char *path);
    ort_status (*unregister_library)(ort_handle env, const char *name);
    ort_status (*ep_devices)(ort_handle env, ort_handle const **devices, size_t *count);
    ort_status (*append_devices)(ort_handle options, ort_handle env, const ort_handle *devices,
                                 size_t device_count, const char *const *keys,
                                 const char *const *values, size_t count);
    void *slots_305_306[2];
    int (*hardware_type)(ort_handle hardware);
    void *slots_308_311[4];
    const char *(*ep_name)(ort_handle ep_device);
    const char *(*ep_vendor)(ort_handle ep_device);
    void *slots_314_315[2];
    ort_handle (*ep_hardware)(ort_handle ep_device);
    void *slots_317_406[90];
    /* From API 24 on. */
    ort_status (*assignment)(ort_handle session, ort_handle const **subgraphs, size_t *count);
    ort_status (*subgraph_ep)(ort_handle subgraph, const char **name);
    ort_status (*subgraph_nodes)(ort_handle subgraph, ort_handle const **nodes, size_t *count);
    void *slots_410_411[2];
    ort_status (*node_operator)(ort_handle node, const char **name);
};

#define ORT_SLOT(member, slot) \
    _Static_assert(offsetof(struct ort_api, member) == (slot) * sizeof(void *), #member)
ORT_SLOT(error_code, 1);
ORT_SLOT(create_env, 4);
ORT_SLOT(create_session, 7);
ORT_SLOT(run, 9);
ORT_SLOT(create_options, 10);
ORT_SLOT(set_threads, 24);
ORT_SLOT(input_count, 30);
ORT_SLOT(output_type, 34);
ORT_SLOT(output_name, 37);
ORT_SLOT(create_tensor, 49);
ORT_SLOT(tensor_info, 55);
ORT_SLOT(element_type, 60);
ORT_SLOT(dimensions, 62);
ORT_SLOT(create_cpu_memory, 69);
ORT_SLOT(allocator_free, 76);
ORT_SLOT(default_allocator, 78);
ORT_SLOT(release_env, 92);
ORT_SLOT(release_value, 96);
ORT_SLOT(release_type, 98);
ORT_SLOT(release_options, 100);
ORT_SLOT(providers, 125);
ORT_SLOT(set_option, 130);
ORT_SLOT(append_provider, 216);
ORT_SLOT(register_library, 301);
ORT_SLOT(append_devices, 304);
ORT_SLOT(hardware_type, 307);
ORT_SLOT(ep_vendor, 313);
ORT_SLOT(ep_hardware, 316);
ORT_SLOT(assignment, 407);
ORT_SLOT(node_operator, 412);

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
    const struct ort_api *api;
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
