"""Excerpts of logs as people paste them, each with the answer that it must get.

Most are of public threads other than those of tests/field/logs.tsv: lines as they stand there,
shortened. `None`: nothing in them tells a cause, or what is told is no failure.
"""

from __future__ import annotations

from typing import Final

from tests.unit.diagnosis.log_rows_system import SYSTEM_ROWS

AVC: Final = (
    "07-31 02:14:05.594 27723 27723 W mqt_v_js: type=1400 audit(0.0:1658): avc:  denied  { read } "
    'for  name="adsprpc-smd-secure" dev="tmpfs" ino=1536 scontext=u:r:untrusted_app:s0 '
    "tcontext=u:object_r:vendor_xdsp_device:s0 tclass=chr_file permissive=0 app=com.x"
)
LET_IN: Final = (
    "I dsp-client: DspClient.cpp (132): open_hal_session: opened device fd 93 for domain 3"
)
NOT_BUILT: Final = "QnnDsp <E> Failed to create transport for device, error: 4000"
SKEL_CHAIN: Final = """\
[ERROR] [Qnn ExecuTorch]:  <E> DspTransport.openSession qnn_open failed, 0x80000406
[ERROR] [Qnn ExecuTorch]:  <E> IDspTransport: Unable to load lib 0x80000406
[ERROR] [Qnn ExecuTorch]:  <E> DspTransport failed,cannot open session, error 0x00000009
[ERROR] [Qnn ExecuTorch]:  <E> Unable to load Skel Library. transportStatus: 9
[ERROR] [Qnn ExecuTorch]:  <E> Failed to retrieve skel build id: err: 1008
[ERROR] [Qnn ExecuTorch]:  <E> Failed to create transport for device, error: 1008
[ERROR] [Qnn ExecuTorch]:  <E> Failed to load skel, error: 1008
[ERROR] [Qnn ExecuTorch]: Failed to create device_handle for Backend ID 6, error=1008"""
DENIED_CHAIN: Final = """\
     0.0ms [ ERROR ] QnnDsp <E> DspTransport.openSession qnn_open failed, 0xffffffff, prio 100
     0.0ms [ ERROR ] QnnDsp <E> IDspTransport: Unknown rpc status 0x000003ff
     0.0ms [ ERROR ] QnnDsp <E> Failed to retrieve skel build id: err: 1003
     0.0ms [ ERROR ] QnnDsp <E> Failed to create transport for device, error: 4000
     0.0ms [ ERROR ] QnnDsp <E> Failed to load skel, error: 4000
     0.0ms [ ERROR ] QnnDsp <E> Transport layer setup failed: 14001"""

_EXCERPTS: Final[tuple[tuple[str | None, str], ...]] = (
    # -- to the DSP
    ("skel-not-found likely", SKEL_CHAIN),
    ("skel-not-found likely", "DspTransport.openSession qnn_open failed, 0x80000406, prio 100"),
    (
        "skel-not-found likely",
        "remote handle open domain failed. domain 3, dlerror cannot open libhexagon_nn_skel_v65.so",
    ),
    ("skel-not-found likely", "remote_handle_open_domain failed (dlerror x.so not found)"),
    (
        "dsp-library-missing known",
        "apps_std_imp.c:1088: Successfully opened file libSnpeHtpV73Skel.so\n"
        "apps_std_imp.c:1143: Warning: apps_std_fopen_with_env failed with 0x2 for libc++.so.1 (No "
        "such file or directory)\n"
        "Error 0x80000406: remote_handle_open_domain: dynamic loading failed for "
        "file:///libSnpeHtpV73Skel.so?snpe_skel_handle_invoke&_modver=1.0&_dom=cdsp on domain 3 "
        "(dlerror _rtld_map_object_ex: cannot open libc++.so.1, errno 2 (no such file))",
    ),
    ("dsp-library-missing known", "libx_skel.so (dlerror cannot open libc++.so.1)"),
    ("skel-not-found likely", "<E> Unable to load Skel Library. transportStatus: 8"),
    ("skel-not-found likely", "IDspTransport: Unable to load lib 0x80000406"),
    (
        "skel-not-found known",
        "E app: apps_std_imp.c:695:Error 45: fopen failed for libQnnHtpV73Skel.so. (No such file)",
    ),
    ("skel-not-found known", "dlerror libQnnHtpV79Skel.so: cannot open: No such file or directory"),
    ("skel-not-found possible", "ggml-hex: failed to open session 0 : error 0x80000406"),
    ("skel-not-found possible", "Error 0x8000043e: remote_handle64_open failed"),
    ("skel-not-found possible", "Error 0x80000445: no such file"),
    ("invalid-config possible", "QnnDsp <E> Failed to load skel, error: 1002"),
    (
        "skel-not-found possible",
        "QnnDsp <E> DspTransport.openSession qnn_open failed, 0x80000600, prio 100\n"
        "QnnDsp <E> Failed to create transport for device, error: 4000\n"
        "QnnDevice_create = 14001 / 0x36b1 QNN_DEVICE_ERROR_INVALID_CONFIG",
    ),
    (
        "skel-refused known",
        "E llama-cli: fastrpc_apps_user.c:1622: Error 0x80000406: remote_handle_open_domain: "
        "dynamic loading failed for file:///libx_skel.so?x on domain 3 "
        "(dlerror signature verify start failed for libx_skel.so)",
    ),
    (
        "skel-refused known",
        "Error 0x80000406: dynamic loading failed for file:///libx_skel.so?x on domain 1600 "
        "(dlerror ELF verification: section header for CRC segment not found",
    ),
    ("skel-refused known", "test-sig not found for libx_skel.so"),
    (
        "skel-refused possible",
        "Error 0x80000406: remote_handle_open_domain: dynamic loading failed for file:///libx.so",
    ),
    (
        # the folders that were searched stand before it
        "skel-not-found possible",
        "apps_std_imp.c:1111: fopen for fastrpc_shell_3\n"
        "Error 0x80000406: remote_handle_open_domain: dynamic loading failed for file:///libx.so",
    ),
    ("skel-refused possible", "remote_handle64_open: error 0x80000438"),
    ("skel-refused possible", "remote_handle64_open: error 0x80000469"),
    ("skel-refused possible", "remote_handle64_open: error 0x80000481"),
    ("skel-refused possible", "remote_handle64_open: error 0x80000482"),
    (
        "page-size known",
        'dlopen failed: "/data/local/tmp/libQnnHtp.so" program alignment (4096) cannot be smaller '
        "than system page size (16384)",
    ),
    (
        "page-size known",
        "Unable to load backend. dlerror(): libQnnHtp.so: ELF load command alignment not "
        "page-aligned",
    ),
    ("stub-missing known", 'E linker: library "libQnnHtpV75Stub.so" not found'),
    ("stub-missing known", "libQnnHtpV79Stub.so: cannot open shared object file: No such file"),
    ("stub-missing known", "libQnnHtpV79Stub.so: No such file or directory"),
    ("stub-not-loaded likely", "<E> loadRemoteSymbols failed with err 4000"),
    ("stub-not-loaded likely", "<E> Failed in loading stub: dlopen failed"),
    (
        "stub-not-loaded likely",
        "     0.0ms [ ERROR ]  <E> Unable to load Remote symbols 4000\n"
        "     0.0ms [ ERROR ]  <E> Failed to create transport for device, error: 4000",
    ),
    ("stub-not-loaded likely", NOT_BUILT),
    ("stub-not-loaded likely", "<E> Unable to load Remote symbols, error: 4000"),
    ("invalid-config possible", "Failed to create transport for device"),
    (
        "linker-namespace known",
        'java.lang.UnsatisfiedLinkError: dlopen failed: library "libcdsprpc.so" not found: needed '
        "by /data/app/x/lib/arm64/libQnnHtpV73Stub.so in namespace clns-4",
    ),
    (
        "linker-namespace known",
        'E linker: library "/vendor/lib64/libcdsprpc.so" needed or dlopened by "/data/app/x.so" is '
        'not accessible for the namespace: [name="clns-4"]',
    ),
    ("no-fastrpc known", "Failed in loading stub: libcdsprpc.so: cannot open shared object file"),
    (
        "no-fastrpc known",
        'dlopen failed: library "libcdsprpc.so" not found: needed by /data/local/tmp/libQ.so in '
        "namespace (default)",
    ),
    (
        "npu-driver known",
        'CANNOT LINK EXECUTABLE: cannot locate symbol "rpcmem_alloc2" referenced by "libggml.so"',
    ),
    ("npu-driver known", "ggml-hex: failed to dlsym dspqueue_create"),
    (
        "npu-driver likely",
        "ggml-hex: Loading driver C:\\windows\\System32\\libcdsprpc.dll\n"
        "ggml-hex: failed to open session 0 : error 0x72\n"
        "ggml-hex: failed to create device/session 0",
    ),
    ("npu-driver likely", "ggml-hex: failed to open session 0 : error 0x80000414"),
    ("npu-driver likely", "ggml-hex: failed to get URI for session 0 : error 0x14"),
    ("npu-driver possible", "ggml-hex: HTP1 dspqueue_write failed: 0x0000000e"),
    ("npu-driver possible", "remote_session_control failed with 0x80000414"),
    ("npu-driver possible", "remote_session_control failed with 0x8000046c"),
    (
        "older-libraries likely",
        "Error 0x80000442: remote_handle64_open failed for file:///libQnnHtpV79Skel.so?qnn_2_49 "
        "(dlerror RX VA 0xFFF00000 outside ELF segment)",
    ),
    (
        "older-libraries known",
        "Using newer context binary on old SDK\n"
        "libQnnHtp.so: /vendor/lib64/libQnnHtp.so (2.28.2.241116104011) "
        "hides /data/local/tmp/qnn-harness/store/runtimes/ab/libQnnHtp.so",
    ),
    (
        "older-libraries known",
        "Using newer context binary on old SDK\n"
        '{"event":"library","name":"libQnnHtpV79Stub.so","path":"/vendor/lib64/libQnnHtpV79Stub.so"'
        ',"hides":"/data/local/tmp/ours/libQnnHtpV79Stub.so","version":"2.28.2.241116104011","n":7}',
    ),
    (
        None,
        '{"event":"library","name":"libcdsprpc.so","path":"/vendor/lib64/libcdsprpc.so",'
        '"hides":"/data/local/tmp/ours/libcdsprpc.so","n":7}',
    ),
    (
        "older-libraries likely",
        'Using libGenie.so version 1.1.0\n[ERROR] "Unable to find a valid interface."\n'
        '[ERROR] "Qnn getQnnInterface FAILED!"',
    ),
    ("mixed-libraries possible", "W [Qnn ExecuTorch]: Qnn API version 2.33.0 is mismatched"),
    (
        "op-unsupported likely",
        "Validation FAILED for nodes (NodeUnit):\n"
        "REASON : batch_norm_op_builder.cc:466 onnxruntime::qnn::BatchNormOpBuilder::IsOpSupported "
        "QNN BatchNorm doesn't support dynamic scale.",
    ),
    (
        "op-unsupported possible",
        "Validation FAILED for nodes (NodeUnit):\n"
        "REASON : base_op_builder.cc:162 onnxruntime::qnn::BaseOpBuilder::ProcessOutputs Failed to "
        "add node.",
    ),
    (
        "older-libraries possible",
        "LD_LIBRARY_PATH=./lib:/vendor/lib64 ./llama-bench -dev HTP0\n"
        "ggml-hex: failed to open session 0 : error 0x80000406",
    ),
    (None, "LD_LIBRARY_PATH=./lib:/vendor/lib64 ./qnn-net-run"),
    (
        "older-libraries known",
        "ERROR: [qnn_manager.cc:284] Qnn System library version 1.7.0 is mismatched. "
        "The minimum supported version is 1.8.0.",
    ),
    (
        None,
        "[WARNING] [Qnn ExecuTorch]: Qnn backend library version 2.14.0 is mismatched. "
        "The minimum supported version is 2.15.0.\nModel executed successfully.",
    ),
    (
        "older-libraries known",
        "Qnn backend library version 2.14.0 is not supported. The minimum supported version is "
        "2.15.0",
    ),
    (None, "Python version 3.7 is not supported. The minimum supported version is 3.8"),
    (
        None,
        "apps_std_fopen_with_env_fd failed with 0xd for libQnnHtpV79Skel.so (No such file or "
        "directory)\nadsprpc: apps_std_fopen_fd done for /vendor/dsp/cdsp/libQnnHtpV79Skel.so",
    ),
    (
        "mixed-libraries known",
        "[ERROR] [Qnn ExecuTorch]:  <E> Stub lib id mismatch: expected (v2.28.2), detected (v2.2)\n"
        "[ERROR] [Qnn ExecuTorch]:  <E> Unable to load Remote symbols 1008",
    ),
    ("mixed-libraries likely", "<E> Unable to load Remote symbols 1008"),
    ("mixed-libraries likely", "<E> loadRemoteSymbols failed with err 1008"),
    (
        "mixed-libraries likely",
        "QNN_COMMON_ERROR_INCOMPATIBLE_BINARIES: Loaded libraries are of incompatible versions",
    ),
    ("mixed-libraries likely", "<E> QNN_TRANSPORT_CONFIG crc32 failed in cpu, crcRX received 0"),
    ("mixed-libraries possible", "remote_handle64_open: error 0x80000594"),
    ("mixed-libraries possible", "Device creation failed: error 1008"),
    (
        "mixed-frameworks possible",
        "E litert  : [dispatch_delegate.cc:107] Failed to initialize Dispatch API: ERROR: [x:168]\n"
        "E litert  : [dispatch_delegate.cc:122] Failed to create a dispatch delegate kernel: "
        "No usable Dispatch runtime found",
    ),
    ("mixed-frameworks known", "QNN EP version handshake fails (ort_version_supported=0)"),
    ("mixed-frameworks known", "Dispatch API has unsupported version 0.2"),
    (
        "dispatch-missing known",
        "[litert_dispatch.cc:113] No dispatch library found in /data/user/0/my.app/files\n"
        "[dispatch_delegate.cc:115] Failed to initialize Dispatch API: ERROR: [x:174]",
    ),
    (
        "dispatch-missing likely",
        "[litert_dispatch.cc:149] Loading shared library: /data/app/x/lib/arm64/"
        "libLiteRtDispatch_GoogleTensor.so\n"
        "[dispatch_delegate.cc:115] Failed to initialize Dispatch API: ERROR: "
        "[litert/runtime/dispatch/dispatch_delegate.cc:174]",
    ),
    (
        "mixed-frameworks possible",
        "[litert_dispatch.cc:126] Loading shared library: /data/app/x/lib/arm64/"
        "libLiteRtDispatch_Qualcomm.so\n"
        "[dispatch_delegate.cc:107] Failed to initialize Dispatch API",
    ),
    ("dispatch-missing possible", "E litert: No usable Dispatch runtime found"),
    (
        "two-copies possible",
        '[ERROR] "Could not create context from binary for context index = 0 : err 1009"\n'
        '[ERROR] "Create From Binary FAILED!"',
    ),
    (
        "backend-not-loaded likely",
        "2024-04-04 21:24:37.4152414 [E:onnxruntime:, qnn_execution_provider.cc:499] QNN "
        "SetupBackend failed Unable to load backend, error: load library failed",
    ),
    (
        "backend-not-loaded known",
        "Cannot Open QNN library libQnnHtp.so, with error: libc++.so.1: cannot open shared object",
    ),
    (
        "backend-not-loaded known",
        "0.2ms [ ERROR ] Unable to load backend. dlerror(): libQnnHtp.so: cannot open shared",
    ),
    (
        "backend-not-loaded known",
        "MNN_QNN: Failed to open QNN libs. dlerror() returns dlopen failed: library "
        '"libQnnHtp.so" not found.',
    ),
    (
        "library-not-loaded known",
        "27.6ms [ ERROR ] Unable to load model. dlerror(): ./liblinear.so: cannot open shared",
    ),
    (
        "no-qnn-provider known",
        "it requires the 'QNNExecutionProvider' execution provider, which is not available",
    ),
    (
        "skel-not-found likely",
        "apps_std_imp.c:382: apps_std_fopen_fd done for /data/app/x/lib/arm64/cdsp/"
        "./libQnnHtpV79Skel.so with fopen:6us, read:0us fd 0x0 error_code 0x2",
    ),
    (
        None,
        "apps_std_imp.c:382: apps_std_fopen_fd done for /data/app/x/lib/arm64/cdsp/"
        "./libQnnHtpV79Skel.so with fopen:6us, read:0us fd 0x0 error_code 0x2\n"
        "apps_std_imp.c:1132: Successfully opened file /vendor/lib64/rfs/dsp/./libQnnHtpV79Skel.so",
    ),
    (
        "backend-not-loaded known",
        "MNN_QNN: Failed to open QNN libs. dlerror() returns dlopen failed: library "
        '"libQnnHtp.so" not found.',
    ),
    ("opencl-program likely", "ggml_opencl: kernel compile error:"),
    (
        "no-qnn-provider known",
        "Specified provider 'QNNExecutionProvider' is not in available provider names.",
    ),
    ("no-unsigned-pd likely", "<E> DspTransport.createUnsignedPD failed, 0x00000003"),
    (
        "no-unsigned-pd likely",
        "<E> DspTransport.createUnsignedPD failed, 0x00000006\n" + NOT_BUILT,
    ),
    (
        "no-unsigned-pd possible",
        "QnnDevice_create failed: createUnsignedPD unsigned PD or DSPRPC_GET_DSP_INFO not supported"
        " by HTP (err 1002)",
    ),
    ("no-channel likely", "<E> dspqueue_create failed with error: -2147482622"),
    ("no-channel likely", "<E> Unable to obtain file descriptor for rpc memory"),
    ("domain-refused likely", "FASTRPC_IOCTL_INIT_CREATE fails with AEE_ERESOURCENOTFOUND"),
    ("domain-refused likely", "DspTransport.openSession qnn_open failed, 0x80000416"),
    ("fastrpc-denied likely", DENIED_CHAIN),
    ("fastrpc-denied possible", "DspTransport.openSession qnn_open failed, 0x00000072, prio 100"),
    ("mixed-libraries likely", "DspTransport.openSession qnn_open failed, 0x80000442, prio 100"),
    ("pd-died likely", "DspTransport.openSession qnn_open failed, 0x8000040d, prio 100"),
    ("pd-died likely", "<E> DspTransport.transport_config failed: rpc 0x8000040d, cfg 0x00000000"),
    ("fastrpc-denied likely", f"{AVC}\n{NOT_BUILT}"),
    ("fastrpc-denied possible", AVC),
    (
        "fastrpc-denied likely",
        "E fastrpc_apps_user.c:4456: Error 0x72: open_dev (-1) failed for domain 3 (errno "
        "Connection refused)",
    ),
    (
        "fastrpc-denied likely",
        "Error 0x72: apps_dev_init failed for domain 3, errno Permission denied, ioErr -1",
    ),
    ("fastrpc-denied known", "cannot open /dev/fastrpc-cdsp: Permission denied"),
    (
        "fastrpc-denied possible",
        "Error 0xd: open_shell failed for domain 3 search paths used are /dsp/ (errno Permission "
        "denied)",
    ),
    # a service lets apps in whose direct way is denied
    (None, f"{AVC}\n{LET_IN}"),
    ("stub-not-loaded likely", f"{AVC}\n{LET_IN}\n{NOT_BUILT}"),
    (None, f"open /dev/fastrpc-cdsp: Permission denied\n{LET_IN}"),
    (
        None,
        "Error 0xd: open_shell failed for domain 3 search paths /dsp/ (errno Permission denied)\n"
        "I llama: fastrpc_apps_user.c:3924: Created user PD on domain 3, Unsigned:Y",
    ),
    # permissive: nothing was refused
    (None, AVC.replace("permissive=0", "permissive=1")),
    ("no-dsp-session likely", "ERROR 0x80000600: Unable to create FastRPC session on domain 3"),
    (
        "no-dsp-session likely",
        "fastrpc_apps_user.c:3773: Error 0x200: remote_init failed for domain 0",
    ),
    (
        "no-dsp-session possible",
        "Error 0x80000580: apps_dev_init failed for domain 3, errno Success",
    ),
    (
        "no-dsp-session likely",
        "E test: apps_std_imp.c:695:Error 45: fopen failed for fastrpc_shell_3. (No such file)",
    ),
    (
        None,
        "E test: apps_std_imp.c:695:Error 45: fopen failed for fastrpc_shell_3. (No such file)\n"
        "I test: Successfully created user PD on domain 3 (attrs 0x0, debug_trace 0x0)",
    ),
    ("no-dsp-session possible", "ERROR 0x80000600: Failed to compute sum on domain 3"),
    ("no-dsp-session possible", "ERROR 0x8000054f: Failed to compute sum on domain 3"),
    ("npu-busy likely", "QNN HTP device: Device or resource busy"),
    ("npu-busy likely", "failed to acquire VTCM: request timed out"),
    ("npu-busy possible", "remote call: error 0x80000420"),
    ("npu-busy possible", "remote call: error 0x80000583"),
    (
        "unknown-dsp-arch likely",
        'htp_backend_ext_config.json: "dsp_arch": "v85"\n[ERROR] "Failed to create device: 1008"',
    ),
    ("unknown-dsp-arch possible", "error 1008 (QNN_DEVICE_ERROR_UNSUPPORTED_FEATURE)"),
    ("unknown-dsp-arch possible", '[ERROR] "Failed to create device: 1008"'),
    (
        "mixed-libraries possible",
        'Failed to load skel, error: 1008\n[ERROR] "Failed to create device: 1008"',
    ),
    ("unknown-dsp-arch known", "[ERROR] Invalid value v85 for dsp_arch in htp_backend_ext_config"),
    ("unknown-dsp-arch known", 'QnnHtpNetRunExtensions: "dsp_arch": "v85" is not supported'),
    ("unknown-soc likely", "QnnDsp <E> No Snapdragon SOC detected\n" + NOT_BUILT),
    (
        "unknown-soc known",
        "QnnDsp <E> Dsp startup: SoC model (SnapdragonModel) is unknown\n"
        "QnnDsp <E> Htp startup on load failed\n"
        "QnnDsp <E> Unable to load Remote symbols 4000",
    ),
    (
        "linker-namespace known",
        "QnnDsp <E> No Snapdragon SOC detected\n"
        'W linker: library "libcdsprpc.so" ("/vendor/lib64/libcdsprpc.so") needed or dlopened by '
        '"/data/app/x/libQnnHtpV79Stub.so" is not accessible for the namespace "clns-7"\n'
        + NOT_BUILT,
    ),
    (
        "older-libraries likely",
        'Using libGenie.so version 1.1.0\n[ERROR] "Unable to find a valid interface."\n'
        '[ERROR] "Qnn getQnnInterface FAILED!"\nFailed to create the dialog',
    ),
    ("older-libraries likely", "Unable to find a valid interface for C:\\qnn\\QnnHtp.dll"),
    (None, "gLogger.error: Unable to find a valid interface for server"),
    (
        "no-qnn-provider likely",
        "Failed loading model: Could not find an implementation for EPContext(1) node with name "
        "'QNNExecutionProvider_QNN_9861429351518613142_29_0'",
    ),
    (
        "newer-context likely",
        "[WARNING] [Qnn ExecuTorch]: Unknown QNN BinaryInfo version 3.\n"
        "[ERROR] [Qnn ExecuTorch]: Failed to retrieve backend binary info from QNN context binary.",
    ),
    (
        "fastrpc-denied likely",
        "rpcmem_linux.c:92: Warning 13: Unable to open fastrpc dev node for domain: 3",
    ),
    (
        "other-htp-arch known",
        "[ERROR] [Qnn ExecuTorch]: Request feature arch with value 75 unsupported\n"
        "[ERROR] [Qnn ExecuTorch]: Failed to create context from binary with err 0x138d",
    ),
    ("other-htp-arch known", "<E> Unsupported HTP arch 69 from device custom config"),
    (
        "other-htp-arch possible",
        '[ERROR] "Could not create context from binary for context index = 0 : err 1008"',
    ),
    # the libraries were not all loaded yet
    (
        "mixed-libraries possible",
        "Failed to load skel, error: 1008\nCould not create context from binary: err 1008",
    ),
    (
        "dsp-restarted possible",
        '[ERROR] "Could not create context from binary for context index = 2 : err 1007"\n'
        '[ERROR] "Failed to free device: 14003"',
    ),
    ("dsp-restarted known", "SSR Detected - You must free and recreate affected QNN API handles"),
    (
        "dsp-restarted likely",
        "[12.3] remoteproc remoteproc2: crash detected in cdsp: type fatal error",
    ),
    ("dsp-restarted likely", "remoteproc remoteproc2: crash detected in cdsp: type mmufault"),
    ("dsp-restarted likely", "qcom_q6v5_pas remoteproc-cdsp: watchdog without message"),
    ("pd-died likely", "ggml-hexagon.cpp:1819: ggml-hex: dspqueue_read failed: 0x0000002e"),
    ("pd-died likely", "DspTransport.openSession qnn_open failed, 0x00000068, prio 100"),
    (
        "pd-died likely",
        "<E> DspTransport call failed, error 0x00000010\n"
        "<E> Failed to retrieve skel build id: err: 1003\n"
        "<E> Failed to create transport for device, error: 4000",
    ),
    ("pd-died likely", "<E> DspTransport call failed, error 0x00000007"),
    # a call that failed came to the DSP, so the stub was loaded
    (
        "invalid-config possible",
        "<E> DspTransport call failed, error 0x00000002\n"
        "<E> Failed to create transport for device, error: 4000",
    ),
    # its name alone is no cause
    (None, "Error 0x8000044e: remote_handle_invoke failed for handle 0x0"),
    # -- contexts
    (
        "newer-context known",
        "Context binary SDK version matches current SDK: 2.44.0\n"
        "Failed to create context from context binary: Unsupported context binary version.",
    ),
    (
        "newer-context known",
        "QnnDsp <E> Using newer context binary on old SDK\n"
        "QnnDsp <E> Fail to get context blob with err 5000\n"
        "Failed to create context from binary with err 0x1388",
    ),
    (
        "newer-context known",
        "<E> Can't read future blob. Newest blob version supported: 3.1.2. Current blob version: 4",
    ),
    ("newer-context possible", "Could not create context from binary: err 5004"),
    (
        "unreadable-context possible",
        '[ERROR] "Could not create context from binary for context index = 0 : err 5000"\n'
        '[ERROR] "Create From Binary FAILED!"\nFailed to create the dialog.',
    ),
    (
        "context-refused possible",
        '[ERROR] "Could not create context from binary for context index = 0 : err 5005"',
    ),
    (
        "npu-busy possible",
        'Qnn error code 5005: "Failed to load from EpContext model. qnn_backend_manager."',
    ),
    (
        "other-vtcm-size known",
        "<E> Request feature vtcm size with value 8388608 unsupported\n"
        "<E> Failed to register context to device and backend\nerr 5005",
    ),
    (
        "not-mapped known",
        "     0.0ms [ ERROR ]  <E> fastrpc memory map for fd: 47 with length: 12582912 failed with "
        "error: 0x1\n     0.0ms [ ERROR ]  <E> Failed to map weights buffer to device!\n"
        "     0.0ms [ ERROR ]  <E> DspTransport.openSession qnn_open failed, 0x00000068, prio 100",
    ),
    (
        "not-mapped likely",
        "E  fastrpc_mem.c:700: Error 0x58: remote_mmap64_internal failed for fd 0xffffffff of size "
        "293601280 (flags 0x1000, vaddrin 0x0) errno Success",
    ),
    (
        "pd-exhausted known",
        "[ERROR] [Qnn ExecuTorch]: fa_alloc.cc:2462::ERROR:graph requires estimated allocation of "
        "2315388 KB, limit is 2097152 KB",
    ),
    ("dsp-memory possible", "QnnMem_register failed: 0x80000402"),
    ("dsp-memory possible", "QnnMem_register failed: 0x8000041e"),
    ("dsp-memory possible", "QnnMem_register failed: 0x80000467"),
    ("dsp-memory possible", "QnnMem_register failed: 0x80000468"),
    (
        "second-load known",
        "PreRegisterMem failed to get file descriptor.\nFail to pre register custom memory handle",
    ),
    (
        "epcontext-incomplete known",
        "INVALID_GRAPH : Failed to load from EpContext model. qnn_backend_manager.cc:945 "
        "GetFileSizeIfValid Context binary does not exist:",
    ),
    (
        "dlc-fallback likely",
        "Failed to interpret QNN context binary. Error code 30010. Try verifying binary with "
        "online-prepare format.\nSkip qnn_graph_create, graph has already been composed from Dlc.",
    ),
    (
        "damaged-binary likely",
        "Failed to interpret QNN context binary. Error code 30010. Try verifying binary with "
        "online-prepare format.",
    ),
    (
        None,
        "Failed to interpret QNN context binary. Error code 30010. Try verifying binary with "
        "online-prepare format.\nModel executed successfully.",
    ),
    ("damaged-binary possible", "qnn: system error code 30001"),
    (None, "qnn: system error code 30001\nModel executed successfully."),
    ("model-for-cpu known", "NOT_FOUND: TF_LITE_AUX not found in the model."),
    # -- graphs
    (
        "op-unsupported known",
        "[ERROR] [Qnn ExecuTorch]:  <E> [4294967295] has incorrect Value 68, expected >= 73.\n\n"
        "[ERROR] [Qnn ExecuTorch]:  <E> QnnBackend_validateOpConfig failed 3110",
    ),
    (
        "op-unsupported known",
        "Unsupported nodes in QNN EP: { name: shrink_1, type: Shrink }{ name: a, type: Acosh }",
    ),
    ("op-unsupported known", "op n7 (Op) is not supported here: the provider names no reason"),
    ("op-unsupported known", "No translation registered for op type onnx_dynamicquantizelinear."),
    ("invalid-config possible", "QnnDevice_create failed 14001"),
    ("invalid-config possible", "QnnDevice_create returned 0x36b1"),
    (
        "op-unsupported likely",
        "[ERROR]QnnDsp <E> validateNativeOps aten_linear_default_23 (quantized and FP16) failed\n\n"
        "[WARNING][Qnn ExecuTorch] Qnn Backend op validation failed with error: 3110",
    ),
    (
        "arch-not-set known",
        "<E> [4294967295] has incorrect Value 0, expected >= 69.\n"
        "<E> QnnBackend_validateOpConfig failed 3110",
    ),
    (
        "float-unsupported likely",
        "Could not find an implementation for com.ms.internal.nhwc.Conv(11) node with name 'c1'",
    ),
    ("float-unsupported known", "Non-QDQ Relu operators are not supported on HTP or DSP backends."),
    ("float-unsupported known", "QNN EP: FP16 tensors are not supported on HTP v68"),
    ("float-unsupported known", "HTP v68 does not have a hardware FP32 or FP16 execution path"),
    (
        "float-unsupported possible",
        "NOT_IMPLEMENTED : Could not find an implementation for Conv(11) node with name 'conv1'",
    ),
    ("float-unsupported known", "this SoC does not support float16"),
    (
        "graph-prepare-failed likely",
        "2024-07-01 21:56:45.190463253 [V:onnxruntime:test, qnn_backend_manager.cc:249 QnnLogging] "
        "graph_prepare.cc:205:ERROR:could not create op: q::flat_from_vtcm\n"
        "QnnDsp <E> RouterX86 graph prepare failed 12\n"
        "QnnDsp <E> Failed to finalize graph (id: 1) with err 1002",
    ),
    (
        "graph-prepare-failed possible",
        "[onnxruntime] Failed to finalize QNN graph. at qnn_model.cc:181",
    ),
    (
        "vtcm-overflow known",
        'A single op, "q::x" (Op ID: 1165), requires 0x2400000 bytes of TCM, which is greater',
    ),
    (
        "prepared-on-device possible",
        "Failed to profile the model: Non-zero status code returned while running QNN_7121_5 node. "
        "Status Message: QNN graph execute error. Error code: 6001",
    ),
    (
        "prepared-on-device possible",
        "Non-zero status code returned while running QNN_91325_1 node. Error code: 1100",
    ),
    (
        "op-not-executable possible",
        "Non-zero status code returned while running QNN_95001_52 node. Name:'x' Status Message: "
        "QNN graph execute error. Error code: 6031",
    ),
    ("invalid-config possible", "QNN_DEVICE_ERROR_INVALID_CONFIG: Invalid config values"),
    # -- nothing
    # of the folders that are tried one has the skel, and a signature need not be there
    (
        None,
        "apps_std_imp.c:1185: Warning: apps_std_fopen_with_env_fd failed with 0xd for path "
        "/vendor/dsp/cdsp/./libQnnHtpV79Skel.so name ./libQnnHtpV79Skel.so (No such file)\n"
        "apps_std_imp.c:1088: Successfully opened file /data/local/tmp/libQnnHtpV79Skel.so\n"
        "apps_std_imp.c:1056: Warning: apps_std_fopen_with_env failed with 0x2 for testsig.so (No "
        "such file or directory)",
    ),
    # what FastRPC's library and daemons say where nothing is wrong
    (
        None,
        "cdsprpcd: fastrpc_cap.c:133: Warning 0xffffffff: fastrpc_get_cap failed to get attribute "
        "131 for domain 3 (errno Operation not permitted)\n"
        "cdsprpcd: mod_table.c:909: Error 0x3e: open_mod_table_handle_invoke failed for "
        "handle:0xffffffff, sc:0x10000\n"
        "app: Error 0x8000043e: fastrpc_enable_kernel_optimizations failed for domain 3 (Success)\n"
        "app: remote_handle64_open: Successfully opened handle 0x1 for file:///libx_skel.so?x",
    ),
    ("genie-config known", "Invalid dialog config: no key x"),
    ("genie-config known", "Failed to validate standalone-sampler config: x"),
    ("prompt-too-long known", "Context limit exceeded (512 + 1 > 512)"),
    ("prompt-too-long known", "Input is too large for maximum context length available"),
    (
        "registered-twice known",
        "[ERROR] [Qnn ExecuTorch]: QnnDsp <E> Memory Handle duplicate found, matches Handle ID 0x2",
    ),
    (
        "spill-fill-too-small known",
        "QnnDsp <E> Shared spill buffer length 4096 is not enough, need at least 8192 bytes",
    ),
    # numbers of other programs
    (None, "ERROR 14001 side-by-side configuration is incorrect\nerror code: 1008 (disk)"),
    (None, "mysql: ERROR 1002: no\nrunning task failed with 4000"),
    (None, "Failed to load from EpContext model."),
    (None, 'htp_backend_ext_config.json: "dsp_arch": "v75"'),
    (None, "Non-zero status code returned while running QNN_91325_1 node. Error code: 6123"),
    (
        None,
        "[WARNING] [Qnn ExecuTorch]: QnnDsp <W> Arch 68 set by custom config is different from "
        "arch associated with SoC 57, will overwrite it to 75",
    ),
    (None, "GenieDialog_create returned GENIE_STATUS_ERROR_GENERAL(-1)"),
    (
        None,
        "[Qnn ExecuTorch]: QnnContextCustomProtocol expected magic number: 0x5678abcd but get: 1",
    ),
    (None, 'W linker: "libQnnHtpV68Skel.so" is 32-bit instead of 64-bit'),
    (None, "E method.cpp:939] Overriding output data pointer allocated by memory plan"),
    (None, "cat: /dev/adsprpc-smd: Permission denied"),
    (None, "shell@device:/ $ cat: /dev/adsprpc-smd: Permission denied"),
    (None, "/system/bin/sh: can't open /dev/fastrpc-cdsp: Permission denied"),
    (None, "ls: /dev/dma_heap/system: Permission denied"),
    (None, "ls: /vendor/dsp/cdsp/libQnnHtpV73Skel.so: No such file or directory"),
    (None, "md5sum: libQnnHtpV73Stub.so: No such file or directory"),
    (
        None,
        'W cat: type=1400 audit(0.0:9): avc: denied { read } for comm="cat" name="adsprpc-smd" '
        "scontext=u:r:shell:s0 tclass=chr_file permissive=0",
    ),
    ("fastrpc-denied known", "open of /dev/adsprpc-smd failed: Permission denied"),
    (None, "HTTP error 500 from the server, error: 32"),
    (None, ""),
)

LOG_ROWS: Final = (*_EXCERPTS, *SYSTEM_ROWS)
