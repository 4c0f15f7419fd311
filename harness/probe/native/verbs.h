/* Every verb of the probe stands here, and nowhere else: its name, the C function that carries it
 * out, the first call that this makes, whether it can change memory, and its fields.
 *
 * Included several times, each time with other macros (see probe.h, plan.c); read by
 * harness/probe/plan.py, too, so that a bad plan is refused before it travels. A LINE has no
 * function: `set` is dealt with in plan.c, `cleanup` in main.c.
 *
 * A field: MUST or MAY be given, and what it holds:
 *     TEXT         anything but the empty text
 *     REAL         a number such as 0.5, neither negative nor infinite
 *     NUMBER       of up to 19 digits
 *     BELOW(n)     0 to n - 1
 *     ONE_TO(n)    1 to n
 *     ONE_OF("a b")  one of these words; its number, from 0, is what C sees
 * LIST("input.", n): input.0 to input.(n - 1) may be given, each a TEXT; NUMBERS("custom.", n): the
 * same, each a NUMBER. */
#ifndef LIMIT
#define LIMIT(name, value)
#endif
#ifndef VERB
#define VERB(name, function, api, memory, fields)
#endif
#ifndef LINE
#define LINE(name, fields)
#endif

LIMIT(PLAN_BYTES_MAX, 8388608)
LIMIT(PLAN_LINE_MAX, 16384)
LIMIT(PLAN_STEPS_MAX, 65536)
LIMIT(STEP_FIELDS_MAX, 64)
LIMIT(CONTEXTS_MAX, 8192)
LIMIT(GRAPHS_MAX, 256)
LIMIT(TENSORS_MAX, 512)
LIMIT(REPEATS_MAX, 100000)
LIMIT(ARGUMENTS_MAX, 12)
LIMIT(LIST_MAX, 48)
LIMIT(OPTIONS_MAX, 24)
LIMIT(CONTEXT_OPTIONS_MAX, 64)

LINE("set",
     MAY("deadline_ms", ONE_TO(999999999999))
     MAY("linger_ms", BELOW(1000000))
     MAY("log_level", ONE_OF("off error warn info verbose debug"))
     MAY("max_log_bytes", BELOW(1000000000000))
     MAY("memory", ONE_OF("off rss pss"))
     MAY("power", ONE_OF("default burst sustained_high_performance high_performance balanced "
                          "low_balanced high_power_saver power_saver low_power_saver "
                          "extreme_power_saver")))
LINE("cleanup", NO_FIELDS)

/* backend.c */
VERB("backend-load", backend_load, "dlopen", true, MUST("lib", TEXT))
VERB("system-load", system_load, "dlopen", true, MUST("lib", TEXT))
VERB("log-create", log_create, "QnnLog_create", true, NO_FIELDS)
VERB("backend-create", backend_create, "QnnBackend_create", true, NO_FIELDS)
VERB("device-create", device_create, "QnnDevice_create", true,
     MAY("soc", NUMBER) MAY("arch", NUMBER))
VERB("device-free", device_free, "QnnDevice_free", true, NO_FIELDS)
VERB("backend-free", backend_free, "QnnBackend_free", true, NO_FIELDS)
VERB("log-free", log_free, "QnnLog_free", true, NO_FIELDS)

/* inspect.c, context.c, sharing.c */
VERB("context-inspect", context_inspect, "QnnSystemContext_create", true,
     MUST("file", TEXT) MAY("offset", NUMBER) MAY("bytes", NUMBER))
VERB("context-load", context_load, "QnnContext_createFromBinary", true,
     MUST("context", BELOW(CONTEXTS_MAX)) MUST("file", TEXT) MAY("max_bytes", NUMBER)
     MAY("group", BELOW(CONTEXTS_MAX)) MAY("max_spill_fill", NUMBER) MAY("concurrent", BELOW(2))
     NUMBERS("custom.", CONTEXT_OPTIONS_MAX) NUMBERS("standard.", CONTEXT_OPTIONS_MAX)
     MAY("profile", ONE_OF("basic detailed")))
VERB("context-load-list", context_load_list, "QnnContext_createFromBinaryListAsync", true,
     MUST("first", BELOW(CONTEXTS_MAX)) MUST("file.0", TEXT) LIST("file.", LIST_MAX)
     NUMBERS("custom.", CONTEXT_OPTIONS_MAX) NUMBERS("standard.", CONTEXT_OPTIONS_MAX))
VERB("context-free", context_free, "QnnContext_free", true, MUST("context", BELOW(CONTEXTS_MAX)))

/* execute.c, bound.c, memory_sample.c */
VERB("execute", execute, "QnnGraph_execute", true,
     MUST("context", BELOW(CONTEXTS_MAX)) MUST("graph", BELOW(GRAPHS_MAX))
     LIST("input.", TENSORS_MAX) LIST("expect.", TENSORS_MAX) LIST("save.", TENSORS_MAX)
     MAY("tolerance", REAL) MAY("repeat", ONE_TO(REPEATS_MAX))
     MAY("warmup", BELOW(REPEATS_MAX)) MAY("budget_ms", ONE_TO(1000000000))
     MAY("least_ms", ONE_TO(1000000000)) MAY("cooling", TEXT)
     MAY("profile", ONE_OF("basic detailed")))
VERB("io-bind", io_bind, "QnnGraph_retrieve", true,
     MUST("context", BELOW(CONTEXTS_MAX)) MUST("graph", BELOW(GRAPHS_MAX))
     MUST("memory", ONE_OF("raw memhandle")) MAY("share", BELOW(2))
     LIST("input.", TENSORS_MAX) LIST("expect.", TENSORS_MAX))
VERB("io-run", io_run, "QnnGraph_execute", true,
     MUST("context", BELOW(CONTEXTS_MAX)) MAY("tolerance", REAL)
     MAY("repeat", ONE_TO(REPEATS_MAX)) MAY("warmup", BELOW(REPEATS_MAX))
     MAY("budget_ms", ONE_TO(1000000000)) MAY("least_ms", ONE_TO(1000000000))
     MAY("cooling", TEXT) MAY("profile", ONE_OF("basic detailed")))
VERB("io-release", io_release, NULL, true, MUST("context", BELOW(CONTEXTS_MAX)))
VERB("memory-sample", memory_sample, NULL, true, MUST("label", TEXT) MAY("back_ms", NUMBER))

/* ort_library.c, ort_session.c, ort_placement.c, ort_run.c; a session's number is its context */
VERB("ort-load", ort_load, "dlopen", true, MUST("lib", TEXT))
VERB("ort-env", ort_env, "CreateEnvWithCustomLogger", true, MAY("severity", BELOW(5)))
VERB("ort-register-ep", ort_register_ep, "RegisterExecutionProviderLibrary", true,
     MUST("name", TEXT) MUST("lib", TEXT))
VERB("ort-session", ort_session, "CreateSessionOptions", true,
     MUST("context", BELOW(CONTEXTS_MAX)) MUST("file", TEXT) MAY("ep", TEXT) MAY("device", NUMBER)
     MAY("threads", BELOW(1025)) LIST("session.", OPTIONS_MAX) LIST("provider.", OPTIONS_MAX))
VERB("ort-placement", ort_placement, "Session_GetEpGraphAssignmentInfo", false,
     MUST("context", BELOW(CONTEXTS_MAX)) MAY("whole", TEXT))
VERB("ort-run", ort_run, "CreateTensorWithDataAsOrtValue", true,
     MUST("context", BELOW(CONTEXTS_MAX))
     LIST("input.", TENSORS_MAX) LIST("expect.", TENSORS_MAX) LIST("save.", TENSORS_MAX)
     MAY("tolerance", REAL) MAY("repeat", ONE_TO(REPEATS_MAX))
     MAY("warmup", BELOW(REPEATS_MAX)) MAY("budget_ms", ONE_TO(1000000000))
     MAY("least_ms", ONE_TO(1000000000)) MAY("cooling", TEXT))
VERB("ort-session-free", ort_session_free, "ReleaseSession", true,
     MUST("context", BELOW(CONTEXTS_MAX)))
VERB("ort-unregister-ep", ort_unregister_ep, "UnregisterExecutionProviderLibrary", true,
     MUST("name", TEXT))
VERB("ort-env-free", ort_env_free, "ReleaseEnv", true, NO_FIELDS)

/* executorch.cpp */
VERB("executorch-program", executorch_program, "Module::load", true,
     MUST("file", TEXT) MAY("method", TEXT))
VERB("executorch-device", executorch_device, "Module::load_method", true,
     MAY("performance_mode", BELOW(9)))
VERB("executorch-context", executorch_context, "Module::load_method", true,
     MUST("context", BELOW(CONTEXTS_MAX)))
VERB("executorch-run", executorch_run, "Module::execute", true,
     LIST("input.", TENSORS_MAX) LIST("expect.", TENSORS_MAX) LIST("save.", TENSORS_MAX)
     MAY("tolerance", REAL) MAY("repeat", ONE_TO(REPEATS_MAX))
     MAY("warmup", BELOW(REPEATS_MAX)) MAY("budget_ms", ONE_TO(1000000000))
     MAY("least_ms", ONE_TO(1000000000)) MAY("cooling", TEXT))
VERB("executorch-free", executorch_free, "Module::~Module", true, NO_FIELDS)

/* call.c */
VERB("call", raw_call, NULL, true,
     MUST("api", TEXT) MUST("slot", NUMBER) LIST("arg.", ARGUMENTS_MAX) MAY("value", TEXT)
     MAY("file", TEXT) MAY("system", TEXT) MAY("save", TEXT))

/* faults.c */
VERB("noop", fault_noop, NULL, false, NO_FIELDS)
VERB("sleep", fault_sleep, NULL, false, MUST("ms", NUMBER))
VERB("crash", fault_crash, NULL, false, MUST("signal", NUMBER))
VERB("hang", fault_hang, NULL, false, NO_FIELDS)
VERB("spew", fault_spew, NULL, false,
     MUST("bytes", NUMBER) MAY("to", ONE_OF("stdout stderr events")))
VERB("exit", fault_exit, NULL, false, MUST("code", NUMBER))

#undef LIMIT
#undef VERB
#undef LINE
