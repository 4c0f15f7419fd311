"""Causes in the session with the DSP: its domain, permission, the skel (data)."""

from __future__ import annotations

from typing import Final

from harness.ground.facts.codes import dsp_error
from harness.verdict.failure.rule import Rule, known, likely, possible
from harness.verdict.failure.rules_reach import LOAD, NO_SESSION, NO_WAY

_OPENED: Final = r"open_hal_session: opened|[Cc]reated user PD|Successfully opened handle"
"""The DSP was reached after all: an app whose direct way is denied is let in by a service."""
_DENIED: Final = r"avc: +denied (?!.*permissive=1).*(?:adsprpc|fastrpc|[qx]dsp_device|cdsp)"

_DSP: Final = r"(?:[ac]dsp|turing)"
_UP: Final = (
    r"remote processor (?:\S*cdsp\S*|[0-9a-f]+\.remoteproc) is now up|cdsp: Brought out of reset"
)
"""It came up after all: firmware is looked for in several folders, and before they are there."""
_QUALCOMM: Final = r"qcom_q6v5|qcom/|remoteproc.*[acg]p?dsp\d?\b|\.mbn\b|\d\.remoteproc\b"
"""Other makers' chips have remote processors, too: a PRU, a Cortex-M."""

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
            # a warning, behind which the library goes on
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
                says="on a Linux board the user's group must be the one that udev lets open "
                "/dev/dma_heap/system and /dev/fastrpc-* (qualcomm/fastrpc 1.0.6: fastrpc)",
            ),
            likely(r"packet queue support likely not present on DSP"),
            # a warning, behind which FastRPC asks its own driver for memory
            possible(r"Warning 13: Unable to open \S*dma_heap"),
            likely(
                r"dma_heap/\S{0,20}.{0,60}(?:No such file|ENOENT)",
                evidence=r"(?i)rpcmem|fastrpc|[acs]dsprpc|qnn|htp\b|hexagon",
                says="the kernel has no heap of the system (CONFIG_DMABUF_HEAPS_SYSTEM)",
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
                says="only root may open its node in /dev",
            ),
            likely(r"ERROR 0x0*72: Unable to create \w* ?session"),
            likely(r"fastRPC device is not accessible"),
            likely(r"qnn_open.*\b0xffffffff\b"),
            # also where the driver has no session left, or gives no domain without a signature
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
                says=r"the DSP's firmware \1 is not there, or cannot be read",
            ),
            known(
                rf"error -?\d+ (?:initializing|reading|setting up|loading) (?:firmware )?\S*{_DSP}"
                rf"|request_firmware failed for \S*{_DSP}"
                rf"|(?:failed|unable) to load \S*{_DSP}\S*\.[bm]"
                r"|remoteproc.*(?:invalid firmware metadata|failed to authenticate"
                r"|segment outside memory range|segment \d+ would be truncated|no hash segment)",
                absent=_UP,
                says="the DSP's firmware is refused: another device's signature, or a damaged file",
            ),
            known(
                r"can't (?:start|prepare|attach to) rproc \S*cdsp\S*: (-?\d+)",
                absent=_UP,
                says=r"the DSP does not start (\1)",
            ),
            known(
                r"can't (?:start|prepare|attach to) rproc \S*(gpdsp\S*): -?\d"
                r"|(?:firmware load for|initializing (?:firmware)?) \S*(gpdsp\d?)\.",
                absent=r"remote processor \S*gpdsp\S* is now up",
                says=r"\1\2 does not start: its firmware is missing, or refused",
            ),
            known(
                r"cdsp_load\w*: CDSP image loading failed",
                absent=_UP,
                says="the DSP's firmware was not loaded",
            ),
            likely(
                r"remoteproc.*(?:start timed out|Boot failed: |request_firmware failed: "
                r"|Failed to load program segments|Image is (?:corrupted|too small)|truncated fw: "
                r"|no memory-region specified|unable to (?:resolve|map) memory.region)",
                evidence=_QUALCOMM,
                absent=_UP,
                says="a processor beside the CPU does not start",
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
                says=r"\1\2 is not there (on a board hexagon-dsp-binaries has it)",
            ),
            known(
                NO_SESSION,
                evidence=r"(?:^|\s)cdsp\S* is (?:offline|crashed|suspended|invalid)\b",
                says="the remote processor does not run",
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
            # of the folders that are tried, one that has it is enough
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
            # SNPE's validator asks the DSP to add numbers; also where no signature fits
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
