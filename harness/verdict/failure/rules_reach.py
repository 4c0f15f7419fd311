"""Causes on the way to the processor: libraries, FastRPC, the session with the DSP (data)."""

from __future__ import annotations

from typing import Final

from harness.ground.facts.codes import dsp_error
from harness.verdict.failure.rule import Rule, known, likely, possible

LOAD: Final = r"QnnContext_createFromBinary\w*"
PAGES: Final = r"cannot be smaller than system page size|alignment not page-aligned"
_OPENED: Final = r"open_hal_session: opened|[Cc]reated user PD|Successfully opened handle"
"""The DSP was reached after all: an app whose direct way is denied is let in by a service."""
_DENIED: Final = r"avc: +denied (?!.*permissive=1).*(?:adsprpc|fastrpc|[qx]dsp_device|cdsp)"
_RPC_API: Final = r"[\"'` ](?:rpcmem|remote|dspqueue|fastrpc)_?\w*"

_NO_WAY: Final = (4000, 14001, dsp_error(0x6))
"""What calls answer where stub, skel and device do not come together."""

REACH_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "dsp-restarted",
        "the DSP restarted, or the process's domain on it died, and everything there is gone",
        "make contexts, graphs and memory handles anew; the device's logs may say why",
        "the kernel's log says `crash detected` of the remote processor; a process that died alone "
        "leaves no such line",
        ("pytorch/executorch#3528", "onnxruntime/onnxruntime-qnn#459"),
        (
            known(r"SSR [Dd]etected"),
            likely(
                evidence=r"SSR [Dd]etected|remoteproc.*cdsp.*(?:crash|fatal error|watchdog)"
                r"|remoteproc.*crash detected in \S*cdsp"
            ),
            possible(codes=(1007,)),
        ),
    ),
    Rule(
        "pd-died",
        "the process's domain on the DSP died, before this call or in it",
        "go on in a new process, and look for what ended the domain; a smaller model or fewer "
        "contexts tell whether memory did",
        "other processes still reach the DSP, and no restart of it is logged",
        ("qualcomm/qai-appbuilder#97", "ggml-org/llama.cpp#22208", "qualcomm/GenieX#1170"),
        (
            likely(r"(?:qnn_open|transport_config failed).*\b0x(?:0*(?:68|27)|8000040d)\b"),
            # what the transport makes of 0x8000040d (died in the call), and of 0x27 and 0x68
            likely(r"DspTransport call failed, error 0x0*(?:10|7)\b"),
            likely(r"dspqueue_read\w* failed: 0x0*(?:2e|68|72)\b"),
            likely(evidence=r"CONN Reset"),
        ),
    ),
    Rule(
        "stub-missing",
        "the stub (libQnnHtpV..Stub.so), the CPU's half of the way to the DSP, is not there",
        "put the stub of this SoC's arch beside libQnnHtp.so, in an app into its jniLibs; the skel "
        "is asked for only afterwards",
        "the linker names the stub's file; where the stub is found, lines about the skel follow",
        ("pytorch/executorch#8454",),
        (
            known(r"library \W{0,2}\S*Stub\.so\W{0,2} not found"),
            known(r"Stub\.so\W{0,3} {0,2}(?:cannot open|No such file)"),
            known(foreseen="stub-missing", codes=_NO_WAY),
        ),
    ),
    Rule(
        "linker-namespace",
        "the app may not open a library of the vendor: Android's linker keeps it out of the app's "
        "namespace",
        "declare it in the manifest with <uses-native-library android:name=... "
        'android:required="false"/>, within <application>',
        "the same program works from `adb shell`, which has no such namespace",
        ("qualcomm/ai-hub-apps#54", "argmaxinc/WhisperKitAndroid#55", "google-ai-edge/LiteRT#6889"),
        (
            known(r"lib(?:[ac]dsprpc|OpenCL|Qnn\w*|Snpe\w*)\.so.*not accessible for the namespace"),
            # a program of `adb shell` is in the namespace "(default)", which opens what is there
            known(
                r"lib(?:[ac]dsprpc|OpenCL)\.so\W{0,3} not found: needed by "
                r".* in namespace (?!\(default)"
            ),
        ),
    ),
    Rule(
        "no-fastrpc",
        "FastRPC's library could not be opened, without which no DSP is reached",
        "look for libcdsprpc.so in the vendor's folder (/vendor/lib64) and put that on the library "
        "path; on a Linux board install qualcomm/fastrpc",
        "`qnn-harness doctor` says whether the device has the file; if so, and only an app does "
        "not find it, it is the linker's namespace",
        ("pytorch/executorch#5120",),
        (known(r"libcdsprpc\.(?:so|dll)\b.{0,80}(?:cannot open|not found|not accessible)"),),
    ),
    Rule(
        "npu-driver",
        "the device's own FastRPC library, NPU driver or DSP firmware is too old for the program, "
        "or made for another SoC",
        "update the device's image, or on Windows the NPU driver (that of this very SoC); else an "
        "older version of the program",
        "an older version of the program works on this device, and this one on a newer device",
        ("ggml-org/llama.cpp#16911", "ggml-org/llama.cpp#22204", "qualcomm/GenieX#1390"),
        (
            known(rf"(?:cannot locate symbol|undefined symbol|failed to dlsym).{{0,4}}{_RPC_API}"),
            likely(r"failed to (?:get URI|reserve \w+|create \w+) for session.*error 0x0*14\b"),
            likely(r"(?:failed to open|open_?)\W?session.*(?:0x0*(?:14|72|43)|0x80000414)\b"),
            possible(r"dspqueue_write\w*.*0x0*0e\b"),
            possible(codes=(dsp_error(0x14), dsp_error(0x6C))),
        ),
    ),
    Rule(
        "older-libraries",
        "older QNN libraries were found than those that were deployed, mostly the device's own in "
        "/vendor",
        "put the folder of yours first in LD_LIBRARY_PATH (colons) and ADSP_LIBRARY_PATH "
        "(semicolons: with colons the whole list is one folder, which is not there)",
        "/proc/PID/maps names the files that were taken, and their folder",
        ("google-ai-edge/LiteRT-LM#773", "qualcomm/fastrpc#379", "qualcomm/ai-hub-apps#26"),
        (
            known(
                r"(?i)library version \S+ is mismatched.{0,4}The minimum supported version",
                absent=r"LiteRT \S+ with QNN \S+ did not compile ",
            ),
            # the probe says so of what its loader took
            known(r"lib(?:Qnn|onnxruntime)\S*\.so\b.{0,300} hides /"),
            known(r'"event":"library","name":"lib(?:Qnn|onnxruntime).*"hides":"'),
            likely(r"outside ELF segment"),
            # a program takes libraries of its own version or newer ones
            likely(r"Unable to find a valid interface(?! for (?!\S*[Qq]nn))"),
            possible(r"LD_LIBRARY_PATH=\S*/vendor/lib", evidence=r"failed to open session"),
        ),
    ),
    Rule(
        "other-htp-arch",
        "the context binary was made for another HTP architecture or SoC, or for features that "
        "this one has not",
        "compile for this SoC",
        "`qnn-harness contexts inspect` says what a binary was made for",
        ("pytorch/executorch#11100", "pytorch/executorch#1176", "qualcomm/ai-hub-apps#31"),
        (
            known(r"Request feature arch with value \d+ unsupported"),
            known(r"Unsupported HTP arch \d+ from device custom config"),
            known(foreseen="context-arch", codes=(5005,)),
            likely(foreseen="context-soc", codes=(5005,)),
            possible(codes=(1008,), api=LOAD, absent=r"[Ss]kel|[Ss]tub|transport|lib id"),
        ),
    ),
    Rule(
        "unknown-dsp-arch",
        "the configuration names a DSP arch (`dsp_arch`) or SoC that these libraries do not know",
        "name one that this SDK knows (v68, v69, v73, v75, v79, v81), or take a newer SDK",
        "without `dsp_arch` in the configuration the library finds out by itself",
        ("qualcomm/GenieX#1254", "qualcomm/ai-hub-apps#31"),
        (
            known(
                r"(?i)(?:unknown|invalid|unsupported|unrecogni[sz]ed)\W{1,3}(?:value \S+ )?"
                r"(?:for )?\W?(?:dsp|htp)_?arch|\b(?:dsp|htp)_arch\b.{0,40}"
                r"(?:unknown|invalid|not (?:supported|recogni[sz]ed|valid)|unsupported)"
            ),
            likely(r"\bdsp_arch\b", codes=(1008,)),
            possible(
                r"Failed to create device: 1008|QNN_DEVICE_ERROR_UNSUPPORTED_FEATURE",
                absent=r"[Ss]kel|[Ss]tub|transport|lib id",
            ),
        ),
    ),
    Rule(
        "mixed-libraries",
        "libraries of two QNN builds are mixed: backend, stub and skel must be of one",
        "take all of them from one SDK, and look which of them the device's own folders hide",
        "`qnn-harness runtimes show` names the build of each file; /proc/PID/maps which were taken",
        ("pytorch/executorch#8762", "qualcomm/qai-appbuilder#14", "microsoft/onnxruntime#26163"),
        (
            known(r"(?:Stub|Skel) lib id mismatch"),
            known(foreseen="sdk-mix", codes=(1008,)),
            likely(foreseen="sdk-mix", codes=_NO_WAY),
            likely(r"libraries are of incompatible versions|TRANSPORT_CONFIG crc32 failed"),
            # no such symbol: the stub asks for one that has its version in its name
            likely(r"qnn_open.*\b0x80000442\b"),
            likely(r"(?:load Remote symbols\W{1,3}(?:error: )?|loadRemoteSymbols .*err )1008\b"),
            # a warning, behind which ExecuTorch goes on
            possible(r"(?i)qnn api version \S+ is mismatched"),
            possible(codes=(1008, dsp_error(0x194))),
        ),
    ),
    Rule(
        "mixed-frameworks",
        "the framework and its QNN plug-in are of two versions: ONNX Runtime and its provider, or "
        "LiteRT and its dispatch library",
        "build both from one commit, or take both from one release",
        "QNN itself is never asked: no line of QnnDsp stands before it; where a line of the linker "
        "names libQnnHtp.so or libQnnSystem.so, that was not found",
        (
            "google-ai-edge/LiteRT#6059",
            "google-ai-edge/LiteRT#6657",
            "onnxruntime/onnxruntime-qnn#564",
        ),
        (
            known(
                r"ort_version_supported\W{0,3}0|(?:Dispatch|ORT) API.{0,40}(?i:unsupported version)"
            ),
            known(
                foreseen="ort-too-(?:old|new)",
                api=r"RegisterExecutionProviderLibrary|CreateSession\w*",
            ),
            # so it also ends where QNN's libraries are not found
            possible(r"Failed to initialize Dispatch API"),
        ),
    ),
    Rule(
        "dispatch-missing",
        "LiteRT's dispatch library (libLiteRtDispatch_Qualcomm.so) is not where it is looked for, "
        "or another vendor's was found first",
        "pack it into the app's jniLibs and have libraries unpacked at installation "
        "(useLegacyPackaging = true), and give LiteRT that folder",
        "where it is found, `Loading shared library` names it",
        ("google-ai-edge/LiteRT#5592", "google-ai-edge/LiteRT-LM#2079"),
        (
            known(r"No dispatch library found"),
            likely(r"Loading shared library: \S*libLiteRtDispatch_(?!Qualcomm)\w+\.so"),
            possible(r"No usable Dispatch runtime found"),
        ),
    ),
    Rule(
        "two-copies",
        "two copies of the backend library are in one process, or a library it loads by itself is "
        "missing",
        "load it once, by one path; put stub and skel beside it",
        "/proc/PID/maps of the process shows libQnnHtp.so once or twice",
        ("qualcomm/ai-hub-models#101",),
        (known(foreseen="library-twice", codes=(1009,)), possible(codes=(1009,))),
    ),
    Rule(
        "backend-not-loaded",
        "the backend library itself could not be opened: the path is wrong, it is for another "
        "processor (an x64 build on ARM), or a library that it needs is missing",
        "give its full path; take the build for this processor; `ldd` names what is missing "
        "(libc++.so.1, libatomic.so.1)",
        "the linker's own words, mostly one line before, name the file",
        ("microsoft/onnxruntime#24508", "microsoft/onnxruntime#20206", "pytorch/executorch#10895"),
        (
            known(
                r"Cannot Open QNN library|Unable to load backend\W{1,3}dlerror"
                r"|library \W{0,2}libQnn(?:Htp|Gpu|Cpu|System)\.so\W{0,2} not found",
                absent=PAGES,
            ),
            known(r"\.so\b", foreseen="(?:backend|system)-missing"),
            likely(r"Unable to load backend, error|load library failed"),
        ),
    ),
    Rule(
        "no-qnn-provider",
        "this build of ONNX Runtime has no QNN provider, or it was not registered or did not come "
        "up",
        "install onnxruntime-qnn, or register the plug-in's library before the session is made; on "
        "Windows a newer NPU driver",
        "`onnxruntime.get_available_providers()` lists those that there are; lines before it tell "
        "of one that did not come up",
        ("microsoft/foundry-dev-tools#151",),
        (
            likely(r"Could not find an implementation for EPContext\(\d+\) node"),
            known(
                r"QNNExecutionProvider.{0,60}(?i:is not in available|not enabled in this build"
                r"|which is not)"
            ),
        ),
    ),
    Rule(
        "skel-refused",
        "the DSP found the skel and its loader refused it: its signature or checksum does not "
        "satisfy this device, mostly since no unsigned domain was asked for",
        "ask for an unsigned domain before the first call (QNN does), run as another user than "
        "root, or sign the skel for this device",
        "a skel that is not found leaves lines of `fopen` that name the folders; `Unsigned:N` in "
        "the log says that a signed domain was made",
        ("chraac/llama.cpp#41", "qualcomm/hexagon-mlir#87", "qualcomm/GenieX#1143"),
        (
            known(r"(?i)signature verif|test-?sig not found|CRC segment not found"),
            possible(r"dynamic loading failed for", absent=r"fopen|No such file|not found"),
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
            likely(r"createUnsignedPD (?:failed|unable)"),
            # a warning, behind which the library goes on
            possible(r"createUnsignedPD.*not supported"),
        ),
    ),
    Rule(
        "no-channel",
        "the memory or the queue through which CPU and DSP talk could not be made",
        "may the process open /dev/dma_heap/system (or /dev/ion)? Queues (dspqueue) want a FastRPC "
        "of the device and DSP firmware that have them",
        "the session itself opens: no line says that qnn_open failed",
        ("ggml-org/llama.cpp#21842", "qualcomm/fastrpc#167"),
        (likely(r"dspqueue_create failed|Unable to obtain file descriptor for rpc memory"),),
    ),
    Rule(
        "domain-refused",
        "the DSP refuses the domain that was asked for: known of programs run as root (su), and of "
        "systems whose unsigned domains are not allowed or whose shell files do not fit",
        "run it as the shell user, not under su; on a Linux board take the DSP's files "
        "(fastrpc_shell_unsigned_3) that belong to its firmware",
        "the same command as another user; `fastrpc_test -d 3 -U 1` on a Linux board",
        ("pytorch/executorch#7492", "qualcomm/fastrpc#401"),
        (likely(r"\b0x80000416\b|AEE_ERESOURCENOTFOUND"),),
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
        "no session with the DSP comes about, in any program: its firmware, its daemon (cdsprpcd), "
        "the kernel's driver or a setting of the board",
        "look whether the remote processor runs (`cat /sys/class/remoteproc/*/state`), whether "
        "cdsprpcd does, and whether the files in its dsp folder belong to its firmware",
        "`fastrpc_test -d 3` fails, too; where that works, it is the skel or its path",
        ("radxa-docs/docs#1303", "qualcomm/fastrpc#325", "qualcomm/fastrpc#400"),
        (
            likely(r"(?i)unable to create (?:\w+ )?session"),
            likely(r"(?:remote_init|domain_init)\b.{0,20}failed for domain"),
            likely(r"fopen\w* fail\w* .{0,20}fastrpc_shell", absent=_OPENED),
            possible(r"(?:apps_dev_init|open_dev \(-1\)) failed for domain"),
            possible(codes=(dsp_error(0x14F),)),
            possible(codes=(dsp_error(0x200),), absent=r"qnn_open"),
        ),
    ),
    Rule(
        "npu-busy",
        "another process, or another session of this one, holds the NPU or what it needs of it",
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
            known(foreseen="no-htp", codes=_NO_WAY),
            likely(foreseen="soc-unknown", codes=_NO_WAY),
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
        (known(r"dlerror\W.{0,40}cannot open (?!\S*[Ss]kel)\S*\.so\b"),),
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
                r"(?i)fopen\w* fail\w* .{0,20}skel\w*\.so"
                r"|skel\w*\.so\W.{0,60}(?:No such|not found)",
                absent=r"(?i)Successfully opened (?:file|handle) .*skel",
            ),
            known(foreseen="skel-missing|arch-label", codes=_NO_WAY),
            likely(foreseen="soc-arch", codes=_NO_WAY),
            likely(
                r"fopen_fd done for \S*[Ss]kel\.so\b.* error_code 0x2\b",
                absent=r"Successfully opened file \S*[Ss]kel\.so",
            ),
            likely(
                r"Unable to load Skel Library|dlerror\W{1,3}.{0,40}"
                r"(?:cannot open \S*[Ss]kel|not found)"
            ),
            likely(r"qnn_open.*\b0x80000406\b|Unable to load lib 0x80000406"),
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
