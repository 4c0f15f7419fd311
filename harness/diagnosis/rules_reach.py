"""Causes on the way to the processor: the DSP itself, libraries of the CPU (data)."""

from __future__ import annotations

from typing import Final

from harness.core.codes import dsp_error
from harness.diagnosis.rule import Rule, known, likely, possible

_OTHERS: Final = r"_providers_(?!qnn|shared)|-(?:cuda|vulkan|hip|musa|sycl|metal|blas|rpc|cann)"
"""The suffixes of plug-ins for other processors, such as CUDA."""
OURS: Final = (
    r"(?:lib(?:Qnn|qnn_|Snpe|SNPE|Genie|llama|LiteRt|tensorflowlite|executorch|MNN"
    rf"|(?:ggml|onnxruntime)(?!{_OTHERS}))|onnxruntime_pybind|appbuilder|Qnn[A-Z]\w*\.dll"
    rf"|Genie[\w-]*\.dll|(?:onnxruntime|ggml)(?!{_OTHERS})[\w-]*\.dll|llama-)"
)
"""Files of programs that use the NPU; linkers report others, too."""
RAN: Final = r"Model executed successfully"
"""The run succeeded, so an earlier line was only a warning: ExecuTorch has no fallback."""
LOAD: Final = r"QnnContext_createFromBinary\w*"
PAGES: Final = r"cannot be smaller than system page size|(?:alignment|offset) not page-aligned"
_RPC_API: Final = r"[\"'` ](?:rpcmem|remote|dspqueue|fastrpc)_?\w*"

NO_SESSION: Final = (
    r"No Snapdragon SOC|qnn_open failed|[Ss]kel\b.{0,20}(?:fail|error)|load (?:\w+ )?[Ss]kel"
    r"|[Tt]ransport\b.{0,40}(?:fail|error)|(?:fail|error).{0,40}[Tt]ransport|failed to open session"
    r"|(?:apps_dev_init|open_dev|remote_init|domain_init)\b.{0,20}failed|\b(?:4000|14001)\b"
)
"""Lines of a program that did not reach its DSP."""
NO_WAY: Final = (4000, 14001, dsp_error(0x6))
"""Return codes of calls if stub, skel and device do not fit."""

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
                evidence=r"SSR [Dd]etected|remoteproc.*(?:c|gp)dsp.*(?:crash|fatal error|watchdog)"
                r"|remoteproc.*(?:crash (?:detected|#\d+) in|recovering) \S*(?:c|gp)dsp"
                r"|\d\.remoteproc: (?:fatal error|watchdog) .*(?:frpck|fastrpc|[Cc][Dd][Ss][Pp])"
                r"|Restart sequence requested for cdsp"
            ),
            # a processor named by its address: that of audio, or of the modem, does not matter
            possible(
                evidence=r"\d\.remoteproc: (?:fatal error|watchdog) (?:received|without)"
                r"(?!.*(?i:modem|mpss|wpss|wlan|slpi|adsp|audio))"
                r"|crash detected in [0-9a-f]+\.remoteproc",
                absent=r"q6v5-mss \S+: (?:fatal error|watchdog)",
            ),
            possible(codes=(1007,)),
        ),
    ),
    Rule(
        "pd-died",
        "the process's domain on the DSP died, before this call or in it",
        "go on in a new process, and look for what ended the domain; a smaller model or fewer "
        "contexts show whether memory did",
        "other processes still reach the DSP, and no restart of it is logged; the DSP's own lines "
        "name the file in which it crashed",
        ("qualcomm/qai-appbuilder#97", "ggml-org/llama.cpp#22208", "qualcomm/GenieX#1170"),
        (
            known(r"Process on \w{0,8}DSP CRASHED"),
            known(r'Crashed Shared Object "(?:\./)?([^"]{1,200})"', note=r"it crashed in \1"),
            likely(r"(?:qnn_open|transport_config failed).*\b0x(?:0*(?:68|27)|8000040d)\b"),
            # the transport's codes for 0x8000040d (died in the call), and for 0x27 and 0x68
            likely(r"DspTransport call failed, error 0x0*(?:10|7)\b"),
            likely(r"dspqueue_read\w* failed: 0x0*(?:2e|68|72)\b"),
            likely(evidence=r"CONN Reset"),
        ),
    ),
    Rule(
        "stub-missing",
        "the stub (libQnnHtpV..Stub.so), the CPU's half of the way to the DSP, is not there",
        "put the stub for this SoC's arch beside libQnnHtp.so (in an app: into its jniLibs); the "
        "skel is looked for only after that",
        "the linker names the stub's file; where the stub is found, lines about the skel follow",
        ("pytorch/executorch#8454",),
        (
            known(r"library \W{0,2}\S*Stub\.so\W{0,2} not found"),
            known(r"Stub\.so\W{0,3} {0,2}(?:cannot open|No such file)"),
            known(foreseen="stub-missing", codes=NO_WAY),
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
        "FastRPC's library could not be opened, and without it no program reaches the DSP",
        "look for libcdsprpc.so in the vendor's folder (/vendor/lib64) and put that on the library "
        "path; on a Linux board install qualcomm/fastrpc",
        "`qnn-harness doctor` says whether the device has the file; if so, and only an app does "
        "not find it, it is the linker's namespace",
        ("pytorch/executorch#5120",),
        (
            known(
                r"libcdsprpc\.(?:so|dll)\b.{0,80}(?:cannot open|not found|not accessible)"
                # Windows' loader prints no message for it
                r"|ggml-hex: failed to load .{0,300}libcdsprpc\.dll"
            ),
        ),
    ),
    Rule(
        "npu-driver",
        "the device's own FastRPC library, NPU driver or DSP firmware is too old for the program, "
        "or made for another SoC",
        "update the device's image, or on Windows the NPU driver (the one for this very SoC); "
        "else take an older version of the program",
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
        "older QNN libraries were found in place of the deployed ones, mostly the device's own in "
        "/vendor",
        "put your folder first in LD_LIBRARY_PATH (colons) and ADSP_LIBRARY_PATH (semicolons: "
        "with colons the whole list is one folder, which is not there)",
        "/proc/PID/maps names the files that were taken, and their folder",
        ("google-ai-edge/LiteRT-LM#773", "qualcomm/fastrpc#379", "qualcomm/ai-hub-apps#26"),
        (
            known(
                r"(?i)(?:(?:library|qnn \w+) version \S+ is not supported"
                r"|version \S+ is mismatched).{0,4}The minimum ",
                absent=rf"LiteRT \S+ with QNN \S+ did not compile |{RAN}",
            ),
            # a message of the probe about the file that its loader took
            known(r"lib(?:Qnn|onnxruntime)\S*\.so\b.{0,300} hides /"),
            known(r'"event":"library","name":"lib(?:Qnn|onnxruntime).*"hides":"'),
            likely(r"Interface.{0,4} failed to get providers|Interface Num Providers is"),
            likely(r"outside ELF segment"),
            # from a process's maps
            likely(
                NO_SESSION,
                evidence=r":[0-9a-f]{2} \d+\s+/(?:vendor|system\w*|odm|product|usr/lib)/\S*"
                r"libQnn\w+\.so$",
            ),
            # a program accepts libraries of its own version or newer ones
            likely(r"Unable to find a valid interface(?! for (?!\S*[Qq]nn))"),
            possible(r"LD_LIBRARY_PATH=\S*/vendor/lib", evidence=r"failed to open session"),
        ),
    ),
    Rule(
        "other-htp-arch",
        "the context binary was made for another HTP architecture or SoC, or for features that "
        "this one lacks",
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
            known(r"(?:Stub|Skel) lib id mismatch|incompatible versions of lib(?:hex|Qnn)"),
            known(foreseen="sdk-mix", codes=(1008,)),
            likely(foreseen="sdk-mix", codes=NO_WAY),
            likely(r"libraries are of incompatible versions|TRANSPORT_CONFIG crc32 failed"),
            # no such symbol: the stub needs one with its version in its name
            likely(r"qnn_open.*\b0x80000442\b"),
            likely(r"(?:load Remote symbols\W{1,3}(?:error: )?|loadRemoteSymbols .*err )1008\b"),
            # a warning, after which ExecuTorch continues
            possible(r"(?i)qnn api version \S+ is mismatched"),
            possible(codes=(1008, dsp_error(0x194))),
        ),
    ),
    Rule(
        "symbol-missing",
        "a library lacks a function that another one was built with: two versions are mixed, "
        "mostly because LD_LIBRARY_PATH names the system's folder (/vendor/lib64) or an old "
        "package is left",
        "run it without LD_LIBRARY_PATH, or with your folder alone in it; update all packages "
        "together; take all libraries from one release",
        "the line names the function and the library that asks for it",
        ("JackZeng0208/llama.cpp-android-tutorial#6",),
        (
            known(
                rf"^(?=.*(?:{OURS}|\bQnn[A-Z]\w+_)).*(?:cannot locate symbol|undefined symbol:|"
                r"procedure entry point \S+ could not be located)"
                r"|undefined reference to \W?(?:Snpe_|Qnn[A-Z]\w+_|rpcmem_|remote_handle)"
            ),
        ),
    ),
    Rule(
        "mixed-frameworks",
        "the framework and its QNN plug-in are of two versions: ONNX Runtime and its provider, or "
        "LiteRT and its dispatch library",
        "build both from one commit, or take both from one release",
        "QNN itself is never asked: no line of QnnDsp stands before it; where a line of the linker "
        "names libQnnHtp.so or libQnnSystem.so, that file was not found",
        (
            "google-ai-edge/LiteRT#6059",
            "google-ai-edge/LiteRT#6657",
            "onnxruntime/onnxruntime-qnn#564",
        ),
        (
            known(
                r"ort_version_supported\W{0,3}0|(?:Dispatch|ORT) API.{0,40}(?i:unsupported version)"
                r"|Unsupported (?:dispatch runtime|compiler plugin) version"
            ),
            known(
                r"ImportError: cannot import name .{1,80} from '"
                r"(?:torch|executorch|onnxruntime|ai_edge)",
                evidence=r"(?i)qnn|qualcomm|executorch",
            ),
            known(
                foreseen="ort-too-(?:old|new)",
                api=r"RegisterExecutionProviderLibrary|CreateSession\w*",
            ),
            # it also ends like this if QNN's libraries are not found
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
            known(r"[Uu]nresolved custom op: DISPATCH_OP"),
            likely(r"[Dd]ispatch library directory (?:option )?(?:is )?(?:not set|empty)"),
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
        (
            known(foreseen="library-twice", codes=(1009,)),
            known(r"aborting due to \d+ instances of lib\w*dsprpc"),
            possible(codes=(1009,)),
        ),
    ),
    Rule(
        "backend-not-loaded",
        "the backend library itself could not be opened: the path is wrong, it is for another "
        "processor (an x64 build on ARM), or a library that it needs is missing",
        "give its full path; take the build for this processor; `ldd` names what is missing "
        "(libc++.so.1, libatomic.so.1); on Windows `dumpbin /dependents` does (mostly the Visual "
        "C++ runtime), and a DLL's folder must be on PATH or given to `os.add_dll_directory`",
        "the linker's own words, mostly one line before, name the file",
        ("microsoft/onnxruntime#24508", "microsoft/onnxruntime#20206", "pytorch/executorch#10895"),
        (
            known(
                r"Cannot Open QNN library|Unable to load backend\W{1,3}dlerror"
                r"|library \W{0,2}(?:[\w./-]*/)?libQnn(?:Htp|Gpu|Cpu|System)\.so\W{0,2} not found"
                r"|libQnn(?:Htp|Gpu|Cpu|System)\.so\W{0,3} ?(?:cannot open shared|No such file)"
                r"|Failed to load qnn shared library from"
                r"|(?i:^(?=.*qnn(?:htp|gpu|cpu|system)\.dll).*(?:could not find module|failed to "
                r"load|error 126\b|specified module could not be found|dll was not found))",
                absent=PAGES,
            ),
            known(r"\.so\b", foreseen="(?:backend|system)-missing"),
            likely(r"Unable to load backend, error|load library failed"),
        ),
    ),
    Rule(
        "compiler-plugin",
        "LiteRT's plug-in for Qualcomm could not set QNN up: it finds no libraries of the SDK, or "
        "was given no SoC, or a SoC that it does not know",
        "give it the SDK's libraries (in an app: libQnnHtp.so, libQnnSystem.so, stub, skel and "
        "prepare library beside it) and the SoC; or compile ahead of time",
        "the line before it names library, SoC or version (also one too old)",
        ("google-ai-edge/LiteRT-CLI#80",),
        (
            known(r"Unexpected SoC model: |QNN backend SoC mismatch: "),
            likely(r"Failed to (?:create|set up|obtain) QNN manager"),
        ),
    ),
    Rule(
        "no-qnn-provider",
        "this build of the framework has no QNN in it (ONNX Runtime its provider, ExecuTorch its "
        "backend), or it was not registered or did not come up",
        "install onnxruntime-qnn, or register the plug-in's library before the session is made; on "
        "Windows a newer NPU driver",
        "`onnxruntime.get_available_providers()` lists those that there are; lines before it tell "
        "of one that did not come up",
        ("microsoft/foundry-dev-tools#151",),
        (
            likely(r"Could not find an implementation for EPContext\(\d+\) node"),
            known(r"Backend QnnBackend is not (?:registered|available)"),
            known(
                r"QNNExecutionProvider.{0,60}(?i:is not in available|not enabled in this build"
                r"|which is not|download.{0,40}(?:fail|unsuccessful))"
                r"|[Uu]nknown (?:execution )?provider.{0,12}QNN"
                r"|(?i:fail\w* to (?:download|register)) .{0,40}QNNExecutionProvider"
            ),
        ),
    ),
)
