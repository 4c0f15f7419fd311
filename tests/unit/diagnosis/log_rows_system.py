"""More excerpts with their answers: what kernels, linkers, the DSP and frameworks say.

Lines are made after the sources of those programs, or stand in public threads, shortened.
"""

from __future__ import annotations

from typing import Final

_BOOT: Final = "[   26.07] qcom_q6v5_pas a300000.remoteproc: start timed out"
_IS_UP: Final = "remoteproc remoteproc1: remote processor cdsp is now up"
_NOT_THERE: Final = "Direct firmware load for qcom/sc8280xp/cdsp.mbn failed with error -2"
_REFUSED: Final = "remoteproc remoteproc0: error -22 initializing firmware qcom/x1e/cdsp.mbn"
_NO_START: Final = "remoteproc remoteproc3: can't start rproc cdsp: -110"
_NO_IMAGE: Final = "cdsp-loader soc:qcom,msm-cdsp-loader: cdsp_load_fw: CDSP image loading failed"
_ADDRESSED: Final = "qcom_q6v5_pas 32300000.remoteproc: fatal error received: "
_KILL: Final = "lowmemorykiller: Kill 'org.app.chat' (2570), uid 10123, oom_score_adj"
_XNNPACK: Final = "Replacing 470 out of 476 node(s) with delegate (TfLiteXNNPackDelegate) node"
_NO_TRANSPORT: Final = "QnnDsp <E> Failed to create transport for device, error: 1002"
_NO_DEVICE: Final = "Error 0x80000580: apps_dev_init failed for domain 3, errno Success"
_COLONS: Final = "export ADSP_LIBRARY_PATH=/data/local/tmp/qnn:/vendor/dsp/cdsp"
_NO_SOC: Final = "QnnDsp <E> No Snapdragon SOC detected"
_HEAP: Final = "rpcmem_linux.c:92: Warning 13: Unable to open /dev/dma_heap/system, falling back"
_WRONG_IMPORT: Final = (
    "ImportError: cannot import name 'Constraint' from 'torch._dynamo.eval_frame'"
)

SYSTEM_ROWS: Final[tuple[tuple[str | None, str], ...]] = (
    # -- the kernel
    ("no-dsp-session known", _NOT_THERE),
    (None, f"{_NOT_THERE}\n{_IS_UP}"),
    (
        "no-dsp-session known",
        "remoteproc2: loading /lib/firmware/qcom/cdsp.mbn failed for no such file or directory",
    ),
    ("no-dsp-session known", _REFUSED),
    (None, f"{_REFUSED}\n{_IS_UP}"),
    ("no-dsp-session known", _NO_START),
    (None, f"{_NO_START}\n{_IS_UP}"),
    ("no-dsp-session likely", _BOOT),
    (None, f"{_BOOT}\nremoteproc remoteproc1: remote processor a300000.remoteproc is now up"),
    (None, f"{_NOT_THERE}\nremoteproc remoteproc1: remote processor remoteproc-cdsp is now up"),
    ("no-dsp-session known", _NO_IMAGE),
    (None, f"{_NO_IMAGE}\nsubsys-pil-tz 8300000.qcom,turing: cdsp: Brought out of reset"),
    # a number in a line of the kernel's is a driver's own
    (
        None,
        "[    1.205512] adsprpc: probe of adsprpc-smd\n[    1.205530] abov: dt: sub_det:1009",
    ),
    # who boots or installs looks at signatures, too
    (None, "{ 2646698 }[ ABL ] Signature verification failed\n[ ABL ] loading adsp"),
    (None, "W: An error occurred during the signature verification. GPG error: http://x"),
    # -- linkers
    (None, 'CANNOT LINK EXECUTABLE "ls": library "libx.so" not found: needed by main executable'),
    (
        "library-not-loaded known",
        'CANNOT LINK EXECUTABLE "./qnn-net-run": library "libc++_shared.so" not found: needed by '
        "main executable",
    ),
    ("no-dsp-session known", "Error 19: open_device_node: fastRPC device driver is disabled"),
    ("no-dsp-session likely", "ggml-hex: unable to get domain struct for CDSP"),
    (
        "no-dsp-session possible",
        "qcom,fastrpc 3700000.remoteproc:glink-edge.fastrpcglink: No session available",
    ),
    ("dsp-restarted likely", "remoteproc remoteproc1: handling crash #1 in cdsp"),
    ("dsp-restarted likely", f"{_ADDRESSED}:0:EX:kernel:0:frpck_0_0:108a:PC=c0117de0"),
    ("dsp-restarted possible", f"{_ADDRESSED}EX:kernel:0:PC=c0117de0"),
    (None, f"{_ADDRESSED}modem_main.c:512"),
    (
        "dsp-restarted possible",
        "remoteproc2: crash detected in 32300000.remoteproc: type fatal error",
    ),
    (
        "no-dsp-session likely",
        "qcom_q6v5_pas 1.x: on\nremoteproc remoteproc1: Failed to load program segments: -22",
    ),
    # another maker's processor
    (
        None,
        "remoteproc1: Direct firmware load for PRU.out failed with error -2\n"
        "remoteproc remoteproc1: request_firmware failed: -2\nremoteproc1: Boot failed: -2",
    ),
    ("no-dsp-session known", "remoteproc1: can't start rproc gpdsp0: -22"),
    (None, "remoteproc1: can't start rproc gpdsp0: -22\nremote processor gpdsp0 is now up"),
    (
        "no-dsp-session known",
        "remoteproc1: can't start rproc gpdsp0: -22\nremote processor cdsp is now up",
    ),
    ("dsp-restarted likely", "remoteproc remoteproc2: crash detected in gpdsp0: type watchdog"),
    ("dsp-restarted likely", "remoteproc remoteproc2: recovering gpdsp1"),
    ("dsp-restarted likely", "qcom_q6v5_pas remoteproc-gpdsp0: fatal error received: x"),
    ("killed-for-memory likely", f"{_KILL} 0 to free 4223760kB rss"),
    (None, f"{_KILL} 905 to free 4223760kB rss"),
    ("killed-for-memory likely", "Out of memory: Killed process 4711 (qnn-net-run) total-vm:8kB"),
    (None, "Out of memory: Killed process 4711 (chrome) total-vm:8kB"),
    ("killed-for-memory likely", "reason: OOMKilled\n[INFO] qnn-context-binary-generator"),
    (None, "reason: OOMKilled"),
    ("killed-for-memory possible", "./run.sh: line 3: 77 Killed    qnn-onnx-converter -i m.onnx"),
    ("killed-for-memory possible", "qnn-context-binary-generator\nexited with code 137"),
    (None, "Process completed with exit code 137"),
    # -- the DSP, and FastRPC
    (
        "pd-died known",
        "adsprpc:dsp: CDSP:platform_qdi_driver.c:792:0x191:1: Process on cDSP CRASHED!!!",
    ),
    (
        "pd-died known",
        'CDSP:platform_qdi_driver.c:792: Crashed Shared Object "./libx-htp-v68.so" load : 0x20',
    ),
    (
        "skel-refused likely",
        "Session already open on domain 3 ! Request unsigned offload before making any RPC calls",
    ),
    ("no-unsigned-pd likely", "ggml-hex: failed to enable unsigned PD for session 0 : error 0x4e"),
    (
        "no-channel likely",
        "Error 13: Unable to allocate memory dmaheap fd -1, heapid 25, size 4096",
    ),
    (
        "no-channel likely",
        "dspqueue_rpc_open failed on domain 3 - packet queue support likely not present on DSP",
    ),
    ("no-channel possible", _HEAP),
    ("no-channel possible", _HEAP.replace("13", "2")),
    (
        "no-channel likely",
        "ggml-hex: rpcmem: open /dev/dma_heap/system: No such file or directory",
    ),
    (None, "mpp_dma_heap: open /dev/dma_heap/system-uncached: No such file or directory"),
    ("domain-refused known", "fastrpc-healthcheck: CDSP: Firmware/Shell build mismatch"),
    ("fastrpc-denied known", "Error: Untrusted application trying to offload to signed PD"),
    (
        "fastrpc-denied known",
        "Error 13: open_device_node: app does not have access to fastrpc device of domain 3",
    ),
    ("fastrpc-denied likely", "ERROR 0x72: Unable to create FastRPC session on domain 3"),
    ("fastrpc-denied likely", "cdsprpcd: fastRPC device is not accessible, daemon exiting..."),
    ("adsp-path-colons known", f"{_COLONS}\n{_NO_SOC}"),
    (None, _COLONS),
    ("unknown-soc likely", f"{_COLONS.replace(':/vendor', ';/vendor')}\n{_NO_SOC}"),
    (
        None,
        "fastrpc_apps_user.c:1491: Error 0x80000414: remote_handle64_invoke failed for module "
        "libdspqueue_rpc_skel.so, handle 0xaaaad7759380, method 3 on domain 3",
    ),
    # -- what commands answer that are asked for
    ("no-dsp-session known", f"{_NO_TRANSPORT}\nadsp is running\ncdsp is offline"),
    (None, "cdsp is offline"),
    ("no-dsp-session possible", _NO_DEVICE),
    (None, f"{_NO_DEVICE}\ncdsp is running"),
    (None, "qcom,fastrpc 3700000.remoteproc: No session available\ncdsp is running"),
    (
        "fastrpc-denied known",
        f"{_NO_TRANSPORT}\ncrw------- 1 root root u:object_r:device:s0 10, 1 fastrpc-cdsp",
    ),
    (None, "crw------- 1 root root u:object_r:device:s0 10, 1 fastrpc-cdsp"),
    (
        "older-libraries likely",
        f"{_NO_TRANSPORT}\n7f00-7f10 r-xp 0 fd:01 77 /vendor/lib64/libQnnHtp.so",
    ),
    (None, "7f00-7f10 r-xp 0 fd:01 77 /vendor/lib64/libQnnHtp.so"),
    (
        "invalid-config possible",
        f"{_NO_TRANSPORT}\nSuccessfully opened file /vendor/lib64/libQnnHtpV75Skel.so",
    ),
    # -- linkers
    (
        "symbol-missing known",
        'CANNOT LINK EXECUTABLE "./llama-cli": cannot locate symbol "__emutls_get_address"',
    ),
    ("symbol-missing known", "ImportError: /x/libGenie.so: undefined symbol: _ZNSt3pmr"),
    (None, "ImportError: /x/libfoo.so: undefined symbol: _ZNSt3pmr"),
    (
        "backend-not-loaded known",
        "libQnnHtp.so: cannot open shared object file: No such file or directory",
    ),
    ("backend-not-loaded known", "FileNotFoundError: Could not find module 'C:\\qnn\\QnnHtp.dll'"),
    ("backend-not-loaded known", 'Failed to load qnn shared library from "libQnnHtp.so"'),
    ("library-not-loaded known", "libGenie.so: cannot open shared object file: No such file"),
    (None, "libfoo.so: cannot open shared object file: No such file"),
    (
        "backend-not-loaded known",
        "libQnnHtp.so: cannot open shared object file\nlibLiteRt.so: cannot open shared object",
    ),
    (
        "library-not-loaded known",
        "/lib/libc.so.6: version `GLIBC_2.38' not found (required by /opt/qnn/libQnnHtp.so)",
    ),
    (
        "library-not-loaded known",
        'dlopen failed: "/x/libQnnHtp.so" is for EM_X86_64 (62) instead of EM_AARCH64 (183)',
    ),
    ("library-not-loaded known", "LoadLibrary failed with error 126 when trying to load Genie.dll"),
    (
        None,
        'LoadLibrary failed with error 126 when trying to load "onnxruntime_providers_cuda.dll"',
    ),
    (None, 'LoadLibrary failed with error 126 when trying to load "ggml-vulkan.dll"'),
    (
        "library-not-loaded known",
        'LoadLibrary failed with error 126 when trying to load "onnxruntime_providers_qnn.dll"',
    ),
    (
        "library-not-loaded likely",
        "import onnxruntime_qnn\nOSError: [WinError 126] The specified module could not be found",
    ),
    (
        None,
        "import onnxruntime_qnn\nOSError: [WinError 126] no module; Error loading c10_cuda.dll",
    ),
    (None, "OSError: [WinError 193] %1 is not a valid Win32 application"),
    (
        "library-not-loaded known",
        "./qnn-net-run: error while loading shared libraries: libc++.so.1: x",
    ),
    (
        "library-not-loaded known",
        'dlopen failed: library "libc++_shared.so" not found: needed by /data/app/x/libQnnHtp.so',
    ),
    (
        "linker-namespace known",
        'dlopen failed: library "libcdsprpc.so" not found: needed by /x/libQnnS.so in namespace a',
    ),
    ("library-not-loaded likely", "qnn-net-run.exe exited with code -1073741515 (0xC0000135)"),
    (None, "ERROR: game.exe exited with code -1073741515 (0xC0000135)"),
    ("library-not-loaded known", "The program cannot go on because Genie.dll was not found."),
    (
        "library-not-loaded known",
        "./qnn-net-run: /lib/libc.so.6: version `GLIBC_2.34' not found (required by ./qnn-net-run)",
    ),
    (None, "node: /lib/libc.so.6: version `GLIBC_2.28' not found (required by node)"),
    (
        "library-not-loaded known",
        'dlopen failed: "/x/libQnnHtp.so" has unexpected e_machine: 62 (EM_X86_64)',
    ),
    (
        "symbol-missing known",
        'cannot locate symbol "QnnInterface_getProviders" referenced by "/data/app/libx.so"',
    ),
    ("no-fastrpc known", r"ggml-hex: failed to load C:\Windows\nspmcdm\libcdsprpc.dll: "),
    # -- warnings of runs that succeed
    (None, "[Qnn ExecuTorch]:  <W> This META does not have Alloc2 Support"),
    (
        None,
        "QnnDsp <W> createUnsignedPD unsigned PD or DSPRPC_GET_DSP_INFO not supported by HTP",
    ),
    # -- memory
    (
        "not-mapped likely",
        "ggml-hex: HTP0 buffer mapping failed : domain_id 3 size 536883200 fd 5 error 0x00000001",
    ),
    (
        "not-mapped likely",
        "ggml-hex: HTP0 failed to allocate device buffer context: ggml-hex: fastrpc_mmap failed",
    ),
    ("sdk-python known", "ModuleNotFoundError: No module named 'qti.aisw'"),
    ("two-copies known", "Error: aborting due to 3 instances of libxdsprpc. Only 2 allowed"),
    # -- frameworks
    (
        "mixed-libraries known",
        "This might be because you're using incompatible versions of libhexagon_interface",
    ),
    ("older-libraries likely", "QnnSystemInterface failed to get providers. Error 1"),
    (
        "mixed-frameworks known",
        f"python backends/qualcomm/tests/test_qnn_delegate.py\n{_WRONG_IMPORT}",
    ),
    (None, _WRONG_IMPORT),
    ("mixed-frameworks known", "litert: Unsupported dispatch runtime version"),
    ("dispatch-missing known", "Encountered unresolved custom op: DISPATCH_OP."),
    (
        "dispatch-missing likely",
        "NPU accelerator could not be loaded: Dispatch library directory is not set.",
    ),
    ("no-qnn-provider known", "E executorch: Backend QnnBackend is not registered."),
    ("compiler-plugin likely", "ERROR: [qnn_compiler_plugin.cc:350] Failed to create QNN manager"),
    ("compiler-plugin known", "ERROR: [qnn_compiler_plugin.cc:395] Unexpected SoC model: SM9999"),
    (
        "litert-version known",
        "QAIRT SDK v2.31.0 is not supported; please upgrade to v2.35.0 or later",
    ),
    ("cpu-fallback possible", f"I litert: accelerator: NPU\n{_XNNPACK}"),
    ("cpu-fallback possible", f"I litert: libLiteRtDispatch_Qualcomm.so\n{_XNNPACK}"),
    ("cpu-fallback possible", f"I litert: [dispatch_delegate.cc:107] no kernel\n{_XNNPACK}"),
    (None, f"INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n{_XNNPACK}"),
    (None, f"I litert: CompiledModel is made\nI litert: NPU accelerator registered\n{_XNNPACK}"),
    (
        None,
        f"I litert: x\n{_XNNPACK}\n"
        "Replacing 6 out of 6 node(s) with delegate (DispatchDelegate) node",
    ),
    ("nodes-not-taken possible", "ERROR: [compiled_model.cc:300] Some ops are not accelerated."),
    ("newer-context likely", "ERROR: Context binary isn't compatible with the current SDK."),
    ("newer-context likely", "QNN: Unsupported context binary info version."),
    ("epcontext-incomplete known", "Failed to find the EPContext node with main_context=1."),
    (
        "tensor-refused known",
        "QnnDsp <E> tensor type 1 client buffer should be nullptr at tensor creation",
    ),
    *(
        ("tensor-refused possible", f"QnnTensor_createGraphTensor returned {code}")
        for code in range(7001, 7008)
    ),
    # -- what was found last
    (
        # the modem's driver
        None,
        "qcom-q6v5-mss 4080000.remoteproc: fatal error without message\n"
        "remoteproc remoteproc0: crash detected in 4080000.remoteproc: type fatal error",
    ),
    ("symbol-missing known", "x.cpp.o: undefined reference to `Snpe_TensorShape_Set'"),
    (
        "skel-not-found possible",
        "PF_VALIDATOR: ERROR: -2 . Error while executing the sum function.",
    ),
    ("sdk-python known", "ImportError: cannot import name 'libPyIrGraph38' from partially x"),
    ("no-qnn-provider known", "WinML EP QNNExecutionProvider: Download failed (result: Failure"),
    (
        "no-qnn-provider known",
        "Failed to download or register the following EPs: QNNExecutionProvider",
    ),
    ("no-memory possible", "QNN: Failed to validate binary: 1002"),
    (
        "library-not-loaded known",
        "Unable to load DLL 'onnxruntime-genai' or one of its dependencies",
    ),
    (None, "Unable to load DLL 'sqlite3' or one of its dependencies"),
    (
        "context-refused possible",
        "LoadCachedQnnContextFromBuffer Failed to create context from binary.",
    ),
    ("cpu-fallback known", "INFO: TfLiteQnnDelegate delegate: 0 nodes delegated out of 31 nodes"),
    (
        "skel-not-found known",
        "fopen returned 0xd for file libhexagon_nn_skel_v66.so. (Permission denied)",
    ),
    (
        "dsp-library-missing possible",
        "apps_std_fopen_with_env failed with 0x2 for libc++abi.so.1 (No x)",
    ),
    (
        None,
        "apps_std_fopen_with_env failed with 0x2 for libc++.so.1 (No x)\n"
        "apps_std_imp.c:1: Successfully opened file /vendor/dsp/cdsp/libc++.so.1",
    ),
    ("skel-not-found possible", "qnn: error 0x80000406 (dlerror cannot open oemconfig.so)"),
    ("genie-config known", "HTP config NOT found! Expected at: /x.json"),
    ("genie-config likely", "Using libGenie.so version 1.0.0\nmap::at:  key not found"),
    (None, "map::at:  key not found"),
    # what was asked, and not what was said
    *(
        (None, f"{start}{'x' * long} grep -E 'QnnDsp|SSR Detected|CONN Reset|libx_skel.so not'")
        for long in (0, 1500)
        for start in (
            "11-26 21:58:09.594  1234  1234 I adbd    : service shell,v2,raw:export A=",
            "I/adbd    ( 1234): service shell,v2,raw:",
            "Nov 26 21:58:09 board adbd[77]: ",
            "+ ./a ",
            "++ A=b timeout 5 ",
            "2026-11-26T21:58:09.1234567Z + timeout ",
            "sh -c 'export QNN_HARNESS_CALL=a;'",
        )
    ),
    ("pd-died likely", "11-26 21:58:09.594  1234  1234 E x: CONN Reset"),
    (
        "outputs-too-far known",
        "max_error[y]: 2.86328149, at most 0.001 of the expected files is asked; furthest at [0]",
    ),
    ("outputs-too-far known", "nan[y]: 3 of 10 elements are NaN on one side only"),
    ("outputs-too-far known", "cosine[y]: 0.17381, at least 0.99 of ONNX Runtime is asked"),
    ("not-mapped known", "QnnDsp <E> DspTransport: mapping weight buffer failed, RPC result 8003"),
)
