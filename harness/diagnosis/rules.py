"""The table of known causes of failures, in its order (data).

The confidence of a cause depends on the line that shows it (`rule.py`). One code has many causes:
1002 is a full protection domain, weights that cannot be mapped, and a damaged binary. Among equally
sure causes the order of the table decides. Lines are quoted from the threads, or from the libraries
themselves. A failure that no rule recognises stays unknown: no diagnosis is better than a guess.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import pluggy

from harness.core import hooks
from harness.core.codes import RANGE_ENDS, dsp_error
from harness.core.errors import ConfigError
from harness.diagnosis.rule import CONFIDENCES, Rule, known, likely, possible
from harness.diagnosis.rules_context import CONTEXT_RULES
from harness.diagnosis.rules_reach import LOAD, NO_SESSION, NO_WAY, REACH_RULES

_OPENED: Final = r"open_hal_session: opened|[Cc]reated user PD|Successfully opened handle"
"""The DSP was reached nevertheless: an app that is denied direct access may use a service."""
_DENIED: Final = r"avc: +denied (?!.*permissive=1).*(?:adsprpc|fastrpc|[qx]dsp_device|cdsp)"

_DSP: Final = r"(?:[ac]dsp|turing)"
_UP: Final = (
    r"remote processor (?:\S*cdsp\S*|[0-9a-f]+\.remoteproc) is now up|cdsp: Brought out of reset"
)
"""It came up later: firmware is searched in several folders, and before they are mounted."""
_QUALCOMM: Final = r"qcom_q6v5|qcom/|remoteproc.*[acg]p?dsp\d?\b|\.mbn\b|\d\.remoteproc\b"
"""Remote processors of Qualcomm; other chips have some, too: a PRU, a Cortex-M."""

_RUNS: Final = r"^cdsp\S* is running\b"

SESSION_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "skel-refused",
        "the DSP found the skel and its loader refused it: its signature or checksum does not "
        "satisfy this device, mostly because no unsigned domain was asked for",
        "ask for an unsigned domain before the first call (QNN does), run as another user than "
        "root, or sign the skel for this device",
        "a skel that is not found leaves lines of `fopen` that name the folders; `Unsigned:N` in "
        "the log says that a signed domain was made",
        ("chraac/llama.cpp#41", "qualcomm/hexagon-mlir#87", "qualcomm/GenieX#1143"),
        (
            known(
                r"(?i)(?:dlerror|skel\w*\.so|[acs]dsp|fastrpc).{0,120}signature verif"
                r"|test-?sig not found|CRC segment not found"
            ),
            possible(
                r"dynamic loading failed for", absent=r"fopen|No such file|\.so\b.{0,40}not found"
            ),
            likely(r"Request unsigned offload before making any RPC calls"),
            possible(codes=tuple(map(dsp_error, (0x38, 0x69, 0x81, 0x82)))),
        ),
    ),
    Rule(
        "no-further-pd",
        "the device gives this process no further protection domain",
        "fewer sessions in one process",
        "the first session of the process came up; with a single one nothing fails",
        ("pytorch/executorch#4030",),
        (likely(r"createUnsignedPD (?:failed|unable)", api=LOAD),),
    ),
    Rule(
        "no-unsigned-pd",
        "this device lets no unsigned code onto its DSP: not even the first session of a process "
        "gets an unsigned domain",
        "libraries that are signed for this device (its vendor has them), or another device",
        "a new process with one session fails, too; if only later ones do, it is their number",
        ("qualcomm/ai-hub-apps#130", "xororz/local-dream#310"),
        (
            likely(r"createUnsignedPD (?:failed|unable)|failed to enable unsigned PD"),
            # a warning, after which the library continues
            possible(r"^(?!.*<[WI]>).*createUnsignedPD.*not supported"),
        ),
    ),
    Rule(
        "no-channel",
        "the memory or the queue through which CPU and DSP talk could not be made",
        "may the process open /dev/dma_heap/system (or /dev/ion)? Queues (dspqueue) need a FastRPC "
        "of the device and DSP firmware that have them",
        "the session itself opens: no line says that qnn_open failed",
        ("ggml-org/llama.cpp#21842", "qualcomm/fastrpc#167"),
        (
            likely(r"dspqueue_create failed|Unable to obtain file descriptor for rpc memory"),
            likely(
                r"Unable to allocate memory (?:dmaheap|fastrpc) fd|dma_heap/\S{0,20}.{0,60}"
                r"(?:[Pp]ermission denied|EACCES)",
                note="on a Linux board the user's group must be the one that udev lets open "
                "/dev/dma_heap/system and /dev/fastrpc-* (qualcomm/fastrpc 1.0.6: fastrpc)",
            ),
            likely(r"packet queue support likely not present on DSP"),
            # a warning, after which FastRPC allocates memory from its own driver
            possible(r"Warning 13: Unable to open \S*dma_heap"),
            likely(
                r"dma_heap/\S{0,20}.{0,60}(?:No such file|ENOENT)",
                evidence=r"(?i)rpcmem|fastrpc|[acs]dsprpc|qnn|htp\b|hexagon",
                note="the kernel has no heap of the system (CONFIG_DMABUF_HEAPS_SYSTEM)",
            ),
            possible(r"Warning 2: Unable to open \S*dma_heap"),
        ),
    ),
    Rule(
        "domain-refused",
        "the DSP refuses the domain that was asked for: that is known of programs that run as "
        "root (su), and of systems whose unsigned domains are not allowed or whose shell files do "
        "not fit",
        "run it as the shell user, not under su; on a Linux board take the DSP's files "
        "(fastrpc_shell_unsigned_3) that belong to its firmware",
        "try the same as another user; `fastrpc_test -d 3 -U 1` on a Linux board",
        ("pytorch/executorch#7492", "qualcomm/fastrpc#401"),
        (
            known(r"(?i)firmware\W{1,3}shell build(?: id)? mismatch"),
            likely(r"\b0x80000416\b|AEE_ERESOURCENOTFOUND"),
        ),
    ),
    Rule(
        "fastrpc-denied",
        "the process may not talk to the DSP",
        "look at the permissions of the fastrpc device nodes and at SELinux",
        "`avc: denied` with permissive=0 names what was refused (permissive=1 refuses nothing); "
        "`ls -lZ /dev/fastrpc* /dev/adsprpc*` shows who may; where no session was free, it works "
        "once other programs have ended",
        ("UbiquitousLearning/mllm#272", "qualcomm/ai-hub-apps#55"),
        (
            known(r"/dev/(?:adsprpc|fastrpc)\S*.{0,60}[Pp]ermission denied", absent=_OPENED),
            known(r"(?i)untrusted app(?:lication)? trying to (?:offload|attach)"),
            known(r"app does not have access to fastrpc device"),
            known(
                NO_SESSION,
                evidence=r"(?:^|\s)crw-------.*\b(?:fastrpc-cdsp|adsprpc-smd)$",
                note="only root may open its node in /dev",
            ),
            likely(r"ERROR 0x0*72: Unable to create \w* ?session"),
            likely(r"fastRPC device is not accessible"),
            likely(r"qnn_open.*\b0xffffffff\b"),
            # also if the driver has no session left, or refuses a domain without a signature
            possible(r"qnn_open.*\b0x0*72\b"),
            likely(
                r"(?:apps_dev_init|open_dev)\b.*failed.*(?:Permission denied|Connection refused)"
            ),
            # FastRPC's library for Linux names errno: 13 is "permission denied"
            likely(r"Warning 13: Unable to open fastrpc dev node"),
            possible(r"open_shell failed.*Permission denied", absent=_OPENED),
            likely(evidence=_DENIED, absent=_OPENED, codes=(1003, 4000, 14001)),
            possible(_DENIED, absent=_OPENED),
        ),
    ),
    Rule(
        "no-dsp-session",
        "no program gets a session with the DSP because of its firmware, its daemon (cdsprpcd), "
        "the kernel's driver or a setting of the board",
        "look whether the remote processor runs (`cat /sys/class/remoteproc/*/state`), whether "
        "cdsprpcd runs, and whether the files in its dsp folder belong to its firmware",
        "`fastrpc_test -d 3` fails, too; where that works, it is the skel or its path",
        ("radxa-docs/docs#1303", "qualcomm/fastrpc#325", "qualcomm/fastrpc#400"),
        (
            known(
                rf"(?:Direct firmware load for|loading) (\S*{_DSP}\S*) failed (?:with error -?\d"
                r"|for no such file)",
                absent=_UP,
                note=r"the DSP's firmware \1 is not there, or cannot be read",
            ),
            known(
                rf"error -?\d+ (?:initializing|reading|setting up|loading) (?:firmware )?\S*{_DSP}"
                rf"|request_firmware failed for \S*{_DSP}"
                rf"|(?:failed|unable) to load \S*{_DSP}\S*\.[bm]"
                r"|remoteproc.*(?:invalid firmware metadata|failed to authenticate"
                r"|segment outside memory range|segment \d+ would be truncated|no hash segment)",
                absent=_UP,
                note="the DSP's firmware is refused: another device's signature, or a damaged file",
            ),
            known(
                r"can't (?:start|prepare|attach to) rproc \S*cdsp\S*: (-?\d+)",
                absent=_UP,
                note=r"the DSP does not start (\1)",
            ),
            known(
                r"can't (?:start|prepare|attach to) rproc \S*(gpdsp\S*): -?\d"
                r"|(?:firmware load for|initializing (?:firmware)?) \S*(gpdsp\d?)\.",
                absent=r"remote processor \S*gpdsp\S* is now up",
                note=r"\1\2 does not start: its firmware is missing, or refused",
            ),
            known(
                r"cdsp_load\w*: CDSP image loading failed",
                absent=_UP,
                note="the DSP's firmware was not loaded",
            ),
            likely(
                r"remoteproc.*(?:start timed out|Boot failed: |request_firmware failed: "
                r"|Failed to load program segments|Image is (?:corrupted|too small)|truncated fw: "
                r"|no memory-region specified|unable to (?:resolve|map) memory.region)",
                evidence=_QUALCOMM,
                absent=_UP,
                note="a processor beside the CPU does not start",
            ),
            known(r"fastRPC device driver is disabled|Missing FastRPC device node"),
            likely(
                r"failed to setup fastrpc session in kernel|unable to get domain struct for CDSP"
                r"|[ac]?dsprpcd?.{0,40} daemon (?:error|exiting)"
            ),
            likely(r"(?i)unable to create (?:\w+ )?session"),
            likely(r"(?:remote_init|domain_init)\b.{0,20}failed for domain"),
            likely(
                r"(fastrpc_shell_\w+)(?:: | load failed|\W{1,4}\(?No such)"
                r"|fopen\w* fail\w* .{0,20}(fastrpc_shell_\w+)",
                absent=_OPENED,
                note=r"\1\2 is not there (on a board hexagon-dsp-binaries has it)",
            ),
            known(
                NO_SESSION,
                evidence=r"(?:^|\s)cdsp\S* is (?:offline|crashed|suspended|invalid)\b",
                note="the remote processor does not run",
            ),
            possible(r"(?:apps_dev_init|open_dev \(-1\)) failed for domain", absent=_RUNS),
            possible(r"qcom,fastrpc.*No session available", absent=rf"{_RUNS}|{_OPENED}"),
            possible(codes=(dsp_error(0x14F),)),
            possible(codes=(dsp_error(0x200),), absent=r"qnn_open"),
        ),
    ),
    Rule(
        "adsp-path-colons",
        "ADSP_LIBRARY_PATH is divided by colons: to FastRPC the whole list is one folder, which is "
        "not there, so no skel is found",
        "divide its folders by semicolons, in quotes, or name one folder alone; only "
        "LD_LIBRARY_PATH has colons",
        "with one folder in it the same program works",
        ("qualcomm/fastrpc#379",),
        (
            known(
                r"ADSP_LIBRARY_PATH\W{1,3}[^;\s]*/[^;:\s]+:[./$]",
                evidence=NO_SESSION,
            ),
        ),
    ),
    Rule(
        "npu-busy",
        "another process, or another session of this one, holds the NPU or a part of it",
        "end what else uses the NPU (on Windows also Copilot+ features), or reboot; then try again",
        "alone after a reboot it works; a context that was made for another device never does",
        ("microsoft/onnxruntime-genai#1806", "microsoft/onnxruntime#25128"),
        (
            likely(
                r"(?i)(?:npu|htp|[ac]dsp|vtcm|hmx|fastrpc|qnn).{0,80}"
                r"(?:resource busy|already in use|in use by (?:an)?other|held by (?:an)?other)"
            ),
            likely(
                r"(?i)(?:acquir|reserv|lock)\w* .{0,30}(?:vtcm|hmx)\b.{0,60}(?:fail|tim\w+ ?out)"
            ),
            possible(r"EpContext model|LoadCachedQnnContext", codes=(5005,)),
            possible(codes=(dsp_error(0x20), dsp_error(0x183))),
        ),
    ),
    Rule(
        "unknown-soc",
        "the libraries do not know this SoC, or see none of Qualcomm's",
        "a newer SDK; or a device with an HTP",
        "`/sys/devices/soc0/soc_id` has a number; a newer SDK knows it. Where an app alone sees "
        "none, it has not declared libcdsprpc.so with <uses-native-library>",
        ("pytorch/executorch#16465", "argmaxinc/WhisperKitAndroid#58", "pytorch/executorch#21586"),
        (
            known(r"SoC model \(\w{1,40}\) is unknown"),
            known(foreseen="no-htp", codes=NO_WAY),
            likely(foreseen="soc-unknown", codes=NO_WAY),
            likely(r"No Snapdragon SOC detected"),
        ),
    ),
    Rule(
        "dsp-library-missing",
        "the DSP found the skel, and not a library that the skel needs on its side (libc++.so.1)",
        "put the DSP's libraries of this device (on Linux: hexagon-dsp-binaries) or of the Hexagon "
        "SDK into a folder of ADSP_LIBRARY_PATH; the CPU's files of the same name do not serve",
        "`dlerror` names another file than the skel",
        ("linux-msm/hexagon-dsp-binaries#58",),
        (
            known(r"dlerror\W.{0,40}cannot open (?!\S*[Ss]kel|oemconfig)\S*\.so\b"),
            possible(
                r"fopen\w* fail\w* .{0,20}libc\+\+(?:abi)?\.so",
                absent=r"Successfully opened file \S*libc\+\+|fopen_fd done for \S*libc\+\+"
                r"(?!.*error_code 0x[1-9])",
            ),
        ),
    ),
    Rule(
        "skel-not-found",
        "the DSP could not load the skel (libQnnHtpV..Skel.so): it lies in no folder where the DSP "
        "looks for it, or is for another arch",
        "put the skel of this SoC and this SDK into a folder of ADSP_LIBRARY_PATH, whose folders "
        "are divided by semicolons; on Windows its .cat file beside it",
        "FastRPC's log lists the folders in which it called `fopen`; if it opened the file, its "
        "signature was refused; with stub and skel of two builds the mismatch is logged",
        ("qualcomm/ai-hub-apps#158", "pytorch/executorch#2788", "microsoft/onnxruntime#23171"),
        (
            # it is enough if one of the folders has it
            known(
                r"(?i)fopen\w* (?:fail\w*|returned 0x\w+) .{0,30}skel\w*\.so"
                r"|skel\w*\.so\W.{0,60}(?:No such|not found)",
                absent=r"(?i)Successfully opened (?:file|handle) .*skel"
                r"|fopen_fd done for \S*skel\.so\b(?!.*error_code 0x[1-9])",
            ),
            known(foreseen="skel-missing|arch-label", codes=NO_WAY),
            likely(foreseen="soc-arch", codes=NO_WAY),
            likely(
                r"fopen_fd done for \S*[Ss]kel\.so\b.* error_code 0x2\b",
                absent=r"Successfully opened file \S*[Ss]kel\.so",
            ),
            likely(
                r"Unable to load Skel Library|dlerror\W{1,3}.{0,40}"
                r"(?:cannot open \S*[Ss]kel|not found)"
            ),
            likely(r"qnn_open.*\b0x80000406\b|Unable to load lib 0x80000406"),
            # SNPE's validator adds numbers on the DSP; it also fails if no signature fits
            possible(r"PF_VALIDATOR: ERROR.*executing the sum function"),
            possible(codes=tuple(map(dsp_error, (0x6, 0x3E, 0x45, 0x200)))),
        ),
    ),
    Rule(
        "stub-not-loaded",
        "the CPU's half of the way to the DSP did not come up: the stub is not packed beside "
        "libQnnHtp.so, or libcdsprpc.so is out of its reach; the skel was not asked for yet",
        "pack stub and skel of this arch with the backend; in an app declare libcdsprpc.so with "
        "<uses-native-library>",
        "the linker's line with `dlopen` in the log names the file; 4000 comes from here, and "
        "1008 from the DSP's side",
        ("meta-pytorch/executorch-examples#81", "pytorch/executorch#16415"),
        (
            likely(r"Failed in loading stub|(?:load Remote symbols|loadRemoteSymbols)\b.* 4000\b"),
            likely(
                r"Failed to (?:create transport|load skel).*\b4000\b",
                absent=r"qnn_open|createUnsignedPD failed|transport_config failed"
                r"|DspTransport call failed",
            ),
        ),
    ),
)


_ORT_NODE: Final = r"running QNN_\d+_\d+ node"

GRAPH_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "opencl-driver",
        "the GPU backend finds no OpenCL driver that it can use",
        "a GPU driver that the SDK supports, and its libOpenCL.so where the process may open it",
        "`qnn-harness doctor` says whether the device has one",
        ("microsoft/onnxruntime#25122",),
        (
            known(r"Invalid OpenCL driver path|Adreno .*is not supported"),
            possible(codes=(1006,), api=r"Qnn(?:Backend|Device)_create|CreateSession\w*"),
        ),
    ),
    Rule(
        "opencl-program",
        "the OpenCL driver could not build a program of the GPU backend",
        "another driver: it may lack half precision",
        "a graph of other ops, or of another precision, is prepared",
        (),
        (known(r"OpenCL program build error"), likely(r"(?i)opencl: kernel compile error")),
        unrelated=False,
    ),
    Rule(
        "gpu-offline",
        "the GPU backend only prepares here: there is no GPU behind it, and it executes nothing",
        "execute on a device with a GPU",
        "the line says so; a driver's failure names an OpenCL error instead",
        ("microsoft/onnxruntime#24004",),
        (known(r"Cannot enqueue Gpu kernel in offline mode"),),
    ),
    Rule(
        "gpu-memory",
        "the GPU backend could not get memory, or not share a buffer with the GPU",
        "less memory in use at a time; plain buffers in place of shared ones",
        "with plain buffers it works if sharing was the reason",
        (),
        (known(r"GPU_ERROR_BAD_MEM_ALLOC|CL_MEM_OBJECT_ALLOCATION_FAILURE|Dmabuf not supported"),),
    ),
    Rule(
        "opencl-call",
        "a call of the GPU backend to the OpenCL driver failed",
        "the lines before it name the call; the device's logs have the driver's own words; another "
        "driver, or another QNN",
        "a minimal OpenCL program on the same device tells the driver from the backend",
        ("microsoft/onnxruntime#24004",),
        (likely(r"GPU_ERROR_OPENCL\(10014\)"),),
    ),
    Rule(
        "vtcm-overflow",
        "a single op needs more of the fast memory (VTCM) than there is",
        "split the op, or make its tensors smaller",
        "the line names the op and the bytes",
        ("pytorch/executorch#1430",),
        (known(r"[Rr]equires 0x[0-9a-f]+ bytes of TCM"),),
        unrelated=False,
    ),
    Rule(
        "arch-not-set",
        "the compiler was given no arch, since the SoC is not in the framework's table: it refuses "
        "every op, and no op is at fault",
        "add the SoC to the table, or name one of the same arch; a newer version may know it",
        "the value is 0; a real arch there (68, 73) tells of an op that needs a newer one",
        ("pytorch/executorch#16535",),
        (known(r"has incorrect Value 0, expected >= \d+"),),
        unrelated=False,
    ),
    Rule(
        "float-unsupported",
        "the model (or a part of it) is in floating point or 16 bits wide, which this backend or "
        "this part does not take: fp16 and 16-bit weights need HTP v73 or newer",
        "quantise it to 8 bits, turn fp16 precision on where the part has it, or choose a part "
        "that has it",
        "the quantised model runs on the same device",
        (
            "microsoft/onnxruntime#18351",
            "microsoft/onnxruntime#21848",
            "onnxruntime/onnxruntime-qnn#708",
        ),
        (
            known(r"Non-QDQ \w+ operators are not supported"),
            known(r"(?i)\b(?:fp16|float16|half[- ]precision)\b.{0,60}(?:not |un)support"),
            known(
                r"(?i)does(?: not|n't) (?:support|have) (?!type )[^,;]{0,30}"
                r"(?:fp16|float16|half|float)"
            ),
            likely(r"com\.ms\.internal\.nhwc"),
            possible(r"Could not find an implementation for (?!EPContext)\w+\(\d+\) node"),
        ),
        unrelated=False,
    ),
    Rule(
        "op-unsupported",
        "an op, or its data type or quantisation, is not supported here",
        "another data type, another arch, or the op left to the CPU, as `--fallback allow` does",
        "the line names the op; if all ops are refused, arch or SoC were not told",
        ("pytorch/executorch#12747", "pytorch/executorch#18280", "microsoft/onnxruntime#22821"),
        (
            known(r"No translation registered for op type"),
            known(r"op [^\n]{1,300}\) is not supported here: "),
            known(r"Unsupported nodes in QNN EP: \{ name:"),
            known(r"has incorrect Value (?!0,)\d+, expected (?:>=|\w)"),
            likely(r"validateOpConfig(?:\(\))? failed|Failed to validate op|op validation failed"),
            likely(r"OpBuilder::\w+ .{0,80}(?:doesn't|does not|only) support"),
            possible(r"Validation FAILED for nodes"),
            possible(codes=(3110,)),
        ),
        unrelated=False,
    ),
    Rule(
        "graph-prepare-failed",
        "the library could not prepare an op that it had accepted: its precision does not fit (a "
        "float model prepared as a quantised one), or this SDK has a fault",
        "the right precision (HTP_PRECISION_FLOAT16 for a float model); else another SDK version; "
        "the line with `could not create op` names the op",
        "the simulator of another version prepares the same graph, or fails the same way",
        ("microsoft/onnxruntime#21221", "qualcomm/ai-hub-apps#59"),
        (
            likely(r"could not create op|graph prepare failed"),
            possible(r"Failed to finalize QNN graph"),
        ),
        unrelated=False,
    ),
    Rule(
        "cpu-fallback",
        "nodes ran elsewhere than on what was asked for, mostly on the CPU, and no error was said: "
        "by ONNX Runtime's CPU provider, or by XNNPACK, which LiteRT takes where no delegate of "
        "the NPU came up",
        "set session.disable_cpu_ep_fallback to 1, and look which nodes are refused; in an app "
        "pack QNN's libraries and LiteRT's dispatch library",
        "ONNX Runtime's log at level VERBOSE says of each node why; LiteRT's names the delegates",
        ("microsoft/onnxruntime#31353", "google-ai-edge/LiteRT#7858"),
        (
            known(
                r"\d+ of \d+ nodes are not on |(?i:qnn\w* delegate): 0 nodes delegated out of [1-9]"
            ),
            possible(
                r"Replacing \d+ out of \d+ node.{0,20}TfLiteXNNPackDelegate",
                evidence=r"(?i)qnn|qualcomm|htp\b|hexagon|dispatch_?(?:delegate|api|op\b)"
                r"|(?:us(?:e|ing)|try(?:ing)?|backend|accelerator)\W{1,6}npu\b",
                absent=r"with delegate \((?!TfLiteXNNPackDelegate)",
            ),
        ),
        unrelated=False,
    ),
    Rule(
        "fallback-wanted",
        "ONNX Runtime's QNN provider takes QNN's CPU backend only if nodes may go to ORT's own CPU "
        "provider, too, even where none has to",
        "leave session.disable_cpu_ep_fallback at 0, and look afterwards where the nodes went",
        "the same model on HTP makes a session with that option",
        (),
        (known(r"Qnn CPU backend is loaded while CPU fallback is disabled"),),
        unrelated=False,
    ),
    Rule(
        "wrong-outputs",
        "the call succeeded, and its outputs are not what is expected",
        "outputs must be equal unless you say how close is close enough, and HTP calculates floats "
        "in 16 bits: `tolerance=` in a test, `--tolerance`, `--max-error` or `--min-cosine` of "
        "`qnn-harness run`; look whether the expected outputs are of this model and these inputs "
        "(made up if you give none); then compare with another version and with the CPU backend; "
        "damage can look like this, too",
        "`qnn-harness bisect` names the version from which on they differ",
        (),
        (known(r"output \d+ has \d+ of \d+ elements"),),
        unrelated=False,
    ),
    Rule(
        "outputs-too-far",
        "the calls succeeded, and outputs are further from what is expected than was asked",
        "far off (a cosine below 0.9): are the expected outputs of this model and these inputs "
        "(made up if you give none)? else: HTP calculates floats in 16 bits, so ask for less",
        "`qnn-harness contexts diverge` names the first op of an .onnx that goes wrong",
        (),
        (
            known(r"(?:max_error|cosine|sqnr_db|max_abs)\[[^\]]{0,200}\]: [^;]{1,200} is asked"),
            known(r"nan\[[^\]]{0,200}\]: \d{1,20} of \d{1,20} elements are NaN on one side only"),
        ),
        unrelated=False,
    ),
    Rule(
        "op-not-executable",
        "the graph was accepted and cannot be executed: it holds an op that the provider takes and "
        "QNN cannot run (DynamicQuantizeLinear is one)",
        "replace the op (static quantisation), or leave it to the CPU",
        "making a context binary of the model offline names the op; if that works, and runs, it "
        "was the preparation on the device",
        ("microsoft/onnxruntime#25334",),
        (possible(_ORT_NODE, codes=(6031,)),),
        unrelated=False,
    ),
    Rule(
        "prepared-on-device",
        "a graph that was prepared on the device cannot be executed there, though a context binary "
        "of the same model mostly can",
        "make a context binary offline and load that; else another SDK version",
        "`qnn-harness run` of the context binary; if it fails the same way, an op is at fault",
        ("microsoft/onnxruntime#22645", "microsoft/onnxruntime#25335"),
        (possible(_ORT_NODE, codes=(1100, 6001)),),
        unrelated=False,
    ),
    Rule(
        "executorch-version",
        "ExecuTorch lays out the device's configuration as another QNN reads it",
        "take the QNN version that this ExecuTorch is for (2.49.40 for 1.5.1), or a build of "
        "ExecuTorch for the version at hand",
        "the same contexts load without ExecuTorch, whose configuration is not asked for then",
        (),
        (known(foreseen="executorch-device", codes=(14001,)),),
    ),
    Rule(
        "litert-version",
        "LiteRT's plug-in for Qualcomm takes no QNN as old as this one, and compiles nothing",
        "compile with the QNN that its log asks for, or a newer one (--compiler; 2.50 for LiteRT "
        "2.3.0)",
        "the system library's version in that line is not QNN's: QNN 2.49 has 1.13",
        ("google-ai-edge/LiteRT-LM#2226", "google-ai-edge/LiteRT-LM#773"),
        (
            known(r"LiteRT \S+ with QNN \S+ did not compile .+ library version \S+ is mismatched"),
            known(r"QAIRT SDK v\S+ is not supported; please upgrade"),
        ),
    ),
    Rule(
        "invalid-config",
        "the device was not set up, and nothing says why: mostly stub, skel or the way to the DSP "
        "failed underneath; or the configuration names a SoC or arch that this device is not",
        "look at the first links of the chain and at the device's logs; try without configuration",
        "`qnn-harness doctor` tries the way to the DSP without any configuration",
        ("qualcomm/ai-hub-apps#158",),
        (possible(r"Failed to create transport|Failed to load skel"), possible(codes=(14001,))),
        unrelated=False,
    ),
    Rule(
        "stale-handle",
        "the handle of a graph or of its memory is not valid (any more)",
        "with ONNX Runtime, load a context binary in place of preparing on the device",
        "a restart of the DSP, or a context freed too early, stands before it in the log",
        ("microsoft/onnxruntime#25422",),
        (possible(codes=(6001, 8001)),),
        unrelated=False,
    ),
    Rule(
        "tensor-mismatch",
        "a tensor given to the graph is not the one it has: id, shape or buffer",
        "take ids and shapes from the metadata of this very binary",
        "`qnn-harness contexts inspect` lists them",
        (),
        (possible(codes=(6004,)),),
        unrelated=False,
    ),
    Rule(
        "tensor-refused",
        "the program describes a tensor as QNN does not take it: its name is taken, or id, shape, "
        "data type, quantisation or buffer are not allowed there",
        "mend the program that builds the graph (a framework: take another version); a tensor "
        "that the application fills has no client buffer when it is made",
        "the line before the code says what of the tensor is wrong",
        ("alibaba/MNN#4663",),
        (
            known(r"client buffer should be nullptr at tensor creation"),
            possible(codes=(7001, 7002, 7003, 7004, 7005, 7006, 7007)),
        ),
        unrelated=False,
    ),
    Rule(
        "failed-without-cause",
        "a node failed when it was executed, and the library named no cause; GPU drivers and "
        "certain versions are known for that: ONNX Runtime 1.20.1 with QNN 2.28.2 failed so, 1.21 "
        "with 2.32 did not",
        "`qnn-harness bisect --good qnn=2.32,ort=1.21 --bad qnn=2.28.2,ort=1.20.1` tells which of "
        "the two versions it was; if none, the driver",
        "the log at level VERBOSE has the driver's failure where there was one",
        ("microsoft/onnxruntime#24004",),
        (possible(codes=(6999,), api=r"QnnGraph_execute\w*|Run"),),
    ),
    Rule(
        "nodes-not-taken",
        "the QNN provider did not take all nodes of the model, or did not come up at all, and "
        "without fallback to the CPU that makes no session",
        "look in the lines before it for the first refusal; with the log at level VERBOSE the "
        "provider says of each node why it is refused",
        "where the provider did not come up, lines of QNN before it say so; else ops are named",
        ("microsoft/onnxruntime#31353",),
        (
            possible(
                r"fallback to CPU EP has been explicitly disabled|Some ops are not accelerated"
            ),
        ),
        unrelated=False,
    ),
    Rule(
        "genie-config",
        "Genie does not take its configuration: a key or value that this version does not know",
        "compare the file with the examples of this very version of Genie",
        "the line names the part of the configuration; no context was loaded yet",
        (),
        (
            known(r"Invalid (?:dialog|engine|backend|QnnHtp) config\b|(?i:htp.config not found)"),
            likely(r"map::at: +key not found", evidence=r"(?i)genie|create the dialog"),
        ),
    ),
    Rule(
        "prompt-too-long",
        "the prompt and what was generated are longer than the model's context",
        "a shorter prompt, or a model that was compiled for a longer context",
        "the numbers in the line; a short prompt works",
        (),
        (known(r"Context (?:limit|Size was) exceeded|context of the model\."),),
        unrelated=False,
    ),
    Rule(
        "undefined-code",
        "{note}: no meaning is assigned to the number",
        "look at the logs of the step; runs over several versions tell which one changed it",
        "other lines of the same step",
        ("microsoft/onnxruntime#24004",),
        (possible(codes=RANGE_ENDS),),
    ),
)


RULES: Final[tuple[Rule, ...]] = (*REACH_RULES, *SESSION_RULES, *CONTEXT_RULES, *GRAPH_RULES)
"""The harness's own rules."""


@pluggy.HookimplMarker("pytest")
def qnn_diagnosis_rules() -> Iterable[Rule]:
    """Return the harness's own rules."""
    return RULES


def all_rules() -> tuple[Rule, ...]:
    """Return the rules of plug-ins, in the order in which these were loaded, then the harness's.

    Raises ConfigError, which names the plug-in, for what is no rule, cannot match, or has an id
    that exists.
    """
    hooks.add(sys.modules[__name__], __name__)
    return _merged(tuple(hooks.hooks().qnn_diagnosis_rules.get_hookimpls()))


@lru_cache(4)
def _merged(_: tuple[pluggy.HookImpl, ...]) -> tuple[Rule, ...]:
    by_plugin = dict(hooks.results("qnn_diagnosis_rules"))
    own = tuple(by_plugin.pop(__name__, ()))
    known = {rule.id: rule for rule in own}
    for plugin, rules in by_plugin.items():
        try:
            for rule in rules or ():
                _require_valid(rule, known)
                known[rule.id] = rule
        except Exception as error:
            text = hooks.failure_text(plugin, "qnn_diagnosis_rules", error)
            raise ConfigError(text) from error
    return (*[*known.values()][len(own) :], *own)


def _require_valid(rule: Rule, known: Mapping[str, Rule]) -> None:
    """Raise TypeError or ValueError for what is no rule, cannot match, or has a known id."""
    if not isinstance(rule, Rule):
        raise TypeError(f"{rule!r:.80} is no Rule of harness.diagnosis.rule")
    if rule.id in known:
        raise ValueError(f"a rule {rule.id} exists already; choose another id")
    for sign in rule.signs:
        if sign.confidence not in CONFIDENCES:
            words = f"{', '.join(CONFIDENCES[:-1])} or {CONFIDENCES[-1]}"
            raise ValueError(f"rule {rule.id}: confidence {sign.confidence!r} is not {words}")
        for pattern in (sign.text, sign.evidence, sign.absent, sign.api, sign.foreseen):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"rule {rule.id}: pattern {pattern!r}: {error}") from error
