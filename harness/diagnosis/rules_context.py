"""Causes in loading contexts: versions, sizes, memory, files (data)."""

from __future__ import annotations

from typing import Final

from harness.core.codes import dsp_error
from harness.diagnosis.rule import Rule, Sign, known, likely, possible
from harness.diagnosis.rules_reach import LOAD, OURS, PAGES, RAN

_PROGRAMS: Final = r"(?i:qnn|snpe|genie|llama|lite_?rt|benchmark_mod|\w*executor|mnn|onnx)"
_PROGRAM_LINES: Final = (
    r"(?i)\bqnn-|QnnDsp|QNNExecutionProvider|Qnn ExecuTorch|ggml-hex|snpe-|genie-"
)
_LOAD_OR_SESSION: Final = rf"{LOAD}|CreateSession\w*"

CONTEXT_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "newer-context",
        "the context binary was made by a newer QNN than the runtime",
        "use a runtime (and a program built with one) at least as new as the compiler, or compile "
        "with an older one",
        "`qnn-harness contexts inspect` says which QNN made it",
        ("qualcomm/ai-hub-apps#148", "google-ai-edge/LiteRT#6889"),
        (
            known(r"Using newer context binary on old SDK"),
            known(r"Can't read future blob|[Uu]nsupported context binary version"),
            known(foreseen="context-newer", codes=(5000,)),
            likely(
                r"Unknown QNN .{0,20}[Ii]nfo version|nsupported (?:context binary|graph) info ver"
            ),
            likely(r"Context binary isn't compatible with the current SDK"),
            possible(codes=(5004,), api=_LOAD_OR_SESSION),
        ),
    ),
    Rule(
        "other-vtcm-size",
        "the context binary was made for more fast memory (VTCM) than the SoC has",
        "compile for this SoC, or with a smaller vtcm_mb",
        "`qnn-harness contexts inspect` says how much each graph wants",
        ("pytorch/executorch#9084", "qualcomm/ai-hub-models#289"),
        (
            known(r"Request feature vtcm size with value \d+ unsupported"),
            known(foreseen="context-vtcm", codes=(5005,)),
        ),
    ),
    Rule(
        "not-mapped",
        "a buffer could not be mapped for the DSP",
        "split the model so that each piece of weights is smaller; after many rounds of loading "
        "and freeing, a new process or a reboot; on Windows disable_file_mapped_weights",
        "a smaller piece of weights loads; in a full domain even small contexts fail",
        ("pytorch/executorch#6728", "qualcomm/qai-appbuilder#97", "microsoft/foundry-local#1124"),
        (
            known(
                r"fastrpc memory map .*failed with error|Failed to map weights buffer"
                r"|mapping weight buffer failed"
            ),
            known(r"failed to Map Buffer to SMMU"),
            likely(r"remote_mmap64_internal failed"),
            likely(
                r"ggml-hex: .*(?:buffer mapping failed|fastrpc_mmap failed)"
                r"|qcom,fastrpc.*(?:mmap error|failed to map buffer, fd)"
            ),
            likely(
                codes=(1002,),
                evidence=r"fastrpc memory map .*failed with error|remote_mmap64_internal failed",
            ),
            possible(codes=(8003,)),
        ),
    ),
    Rule(
        "pd-exhausted",
        "the protection domain has no room left: its address space holds weights, I/O and "
        "spill-fill of everything resident",
        "fewer and larger partitions, shared spill-fill, or contexts freed in between; more "
        "shards if a single one is too large; of a binary with many graphs only those needed",
        "`qnn-harness contexts fit` says how full the domain gets; one context alone loads",
        ("pytorch/executorch#14985", "qualcomm/qai-appbuilder#235", "pytorch/executorch#15954"),
        (
            known(r"Failed to find available PD"),
            known(r"requires estimated allocation of \d+ KB, limit is \d+ KB"),
            known(foreseen="context-memory", codes=(1002,)),
        ),
    ),
    Rule(
        "no-dma-handles",
        "the process has no DMA handle left (a process has 256)",
        "register fewer buffers, or larger ones",
        "the number of buffers decides, not their size",
        ("qualcomm/fastrpc",),
        (possible(codes=(dsp_error(0x2D),)),),
    ),
    Rule(
        "dsp-memory",
        "the DSP's side had no memory for it",
        "fewer or smaller contexts at a time; end what else runs on the DSP, or reboot",
        "after a reboot, alone, it works",
        (),
        (possible(codes=tuple(map(dsp_error, (0x2, 0x1E, 0x67, 0x68)))),),
    ),
    Rule(
        "registered-twice",
        "a buffer was registered with QNN a second time, while its first handle is still in use",
        "register each buffer once and keep its handle, or end that by QnnMem_deRegister before; "
        "with ExecuTorch take a newer one, or load the program once in a process",
        "the first registration in a process works; the line names the handle that has the buffer",
        (),
        (possible(codes=(8002,)),),
    ),
    Rule(
        "spill-fill-too-small",
        "the spill-fill buffer that a group of contexts shares is too small for this one",
        "load the context with the largest spill-fill first, or name the group's largest size for "
        "all (max_size of an EPContext node); binaries made without it must be made anew",
        "`qnn-harness contexts inspect` has the spill-fill of each context; alone it loads",
        ("microsoft/onnxruntime#22853",),
        (known(r"Shared spill buffer length \d+ is not enough"),),
        unrelated=False,
    ),
    Rule(
        "second-load",
        "ExecuTorch could not register its shared buffers a second time in one process: a fault of "
        "its older versions",
        "a newer ExecuTorch; until then load the program once in a process",
        "the first load in a process works",
        ("pytorch/executorch#15732",),
        (known(r"PreRegisterMem failed to get file descriptor"),),
    ),
    Rule(
        "skel-refused-context",
        "the DSP's side could not take the context in, mostly for want of memory",
        "fewer contexts at a time, or smaller ones",
        "the same context loads alone in a new process",
        ("alibaba/MNN#4048",),
        (likely(r"Skel failed to process context binary"),),
        unrelated=False,
    ),
    Rule(
        "epcontext-incomplete",
        "the EPContext model is not whole: a node names a file that is not there, or holds no "
        "context at all",
        "deploy the .bin files beside the .onnx; where nothing stands behind the colon, generate "
        "it anew with ep.context_embed_mode=0",
        "`qnn-harness contexts inspect` lists nodes and files",
        ("microsoft/onnxruntime#31977",),
        (
            known(
                r"Context binary (?:file )?does not exist|EPContext node with main_context=1"
                r"|file path in ep_cache_context|not found from shared EP contexts"
            ),
        ),
    ),
    Rule(
        "model-for-cpu",
        "the model file holds nothing for the NPU: it is the variant for CPU and GPU",
        "take the variant that was compiled for this SoC (its name mostly has the SoC in it)",
        "the same file runs on CPU or GPU",
        ("google-ai-edge/LiteRT-LM#774",),
        (known(r"TF_LITE_AUX not found"),),
    ),
    Rule(
        "dlc-fallback",
        "the program holds a DLC and no context binary, which ExecuTorch tries first (30010 is no "
        "failure here); a crash that follows is its event tracer's",
        "build it without the event tracer, or export a context binary",
        "a damaged binary is not composed from a DLC afterwards",
        ("pytorch/executorch#21804",),
        (likely(r"graph has already been composed from Dlc"),),
    ),
    Rule(
        "damaged-binary",
        "the context binary is damaged or cut short, or it is none at all",
        "compare its hash with what the compiler wrote, and deploy it again",
        "`qnn-harness contexts inspect` reads it or says why not",
        ("pytorch/executorch#6820",),
        (
            known(r"Flatbuffer validation failed|Invalid flatbuffer version"),
            likely(r"deserializ(?:er\.cc|ation failed)|Exception during Deserialize"),
            known(r"Metadata blob not found"),
            likely(r"Failed to interpret QNN context binary", absent=RAN),
            possible(codes=(30001, 30010), absent=RAN),
            possible(outcome="failed", api=r"QnnSystemContext_get(?:BinaryInfo|Meta[dD]ata)"),
        ),
    ),
    Rule(
        "unreadable-context",
        "the context binary could not be read, and nothing says why: it was made by a newer QNN "
        "than the runtime, for another device, or is damaged",
        "compare its version with the runtime's; compare its hash with what the compiler wrote",
        "`qnn-harness contexts inspect` says which QNN made it, and for which SoC",
        ("qualcomm/ai-hub-apps#148",),
        (possible(codes=(5000,), api=_LOAD_OR_SESSION),),
        unrelated=False,
    ),
    Rule(
        "context-refused",
        "the device did not take the context in, and nothing says why: it was made for more fast "
        "memory (VTCM) than the device gives, for another SoC or arch, or memory ran out",
        "compile for this very SoC with a smaller vtcm_mb; on Windows update the NPU driver, or "
        "reboot to end what else holds the NPU",
        "`qnn-harness contexts inspect` says what it was made for; a tiny context of the same "
        "compiler shows whether size or kind decides",
        ("qualcomm/ai-hub-models#289", "qualcomm/ai-hub-apps#15", "alibaba/MNN#4048"),
        (
            possible(codes=(5005,), api=_LOAD_OR_SESSION),
            possible(r"LoadCachedQnnContext\w+ Failed to create context from binary\.?(?:,|$)"),
        ),
        unrelated=False,
    ),
    Rule(
        "no-such-graph",
        "the context holds no graph of this name",
        "ask its metadata for the names; another name than the compiler's tells of damage",
        "`qnn-harness contexts inspect` lists the graphs",
        (),
        (known(r"Failed to find graph .* in the context"),),
        unrelated=False,
    ),
    Rule(
        "page-size",
        "a library is laid out for smaller memory pages than the system has, as of 4 KB where an "
        "Android of 16 KB pages runs",
        "take a build linked with -z max-page-size=16384 (NDK r28 does so by itself), or boot with "
        "4 KB pages (a developer option of Android 15)",
        "`adb shell getconf PAGE_SIZE` tells the system's pages, the column Align of `readelf -lW` "
        "the library's",
        ("qualcomm/GenieX#886", "numpy/numpy#16677"),
        (known(PAGES), known(api=r"dlopen", foreseen="page-size")),
    ),
    Rule(
        "library-not-loaded",
        "a library could not be opened",
        "the message names the file: put it there, or one that fits the device; preflight says "
        "which libraries do not fit together",
        "the message is the linker's own",
        (),
        (
            Sign("known", api=r"dlopen", outcome="failed"),
            known(r"Unable to load (?:model|shared buffer)\W{1,3}dlerror"),
            known(
                rf"({OURS}\S*): (?:cannot open shared object|wrong ELF class|invalid ELF header)",
                note=r"it is \1",
            ),
            known(
                r"\b(?:qnn|snpe|genie|llama)-\S+: error while loading shared libraries: ([^\s:]+)",
                note=r"it is \1",
            ),
            known(
                r'library "([^"]+)" not found: needed by \S*/lib(?:Qnn|Snpe|Genie)',
                note=r"it is \1",
            ),
            known(
                rf"^(?=.*(?:{OURS}|\b(?:qnn|snpe|genie)-|_runner\b))"
                r'.*library "([^"]+)" not found: needed by main exec',
                note=r"it is \1",
            ),
            # Windows prints no message if no window can be shown
            likely(r"-1073741515\b|\b0xC0000135\b", evidence=rf"{OURS}|qnn-|Genie|genie-"),
            known(
                rf"^(?=.*(?:{OURS}|\b(?:qnn|snpe|genie)-))"
                r".*(?:version \W{0,2}\S{3,40} not found \(req"
                r"|is for \S+ .{0,8}instead of |is \d\d-bit instead of \d\d-bit|has bad ELF magic"
                r"|has unexpected e_machine|file too short|invalid \w+ offset/size|too small to be"
                r"|no loadable segments|file offset for .* >= file size|only ET_DYN and ET_EXEC can"
                r"|ELF file OS ABI invalid|failed to map segment|cannot enable executable stack"
                r"|ISA level is lower than required|in static TLS block|TLS segment is underaligned"
                r"|has text relocations|load segments are not allowed)"
            ),
            known(
                rf"^(?=.*(?:{OURS}|QNN)).*(?:[Cc]ould not find module|[Ee]rror (?:12[67]|193|1114)"
                r"\b|dll was not found|is not a valid Win32 application|DLL load failed"
                r"|side-by-side configuration is incorrect|initialization routine failed)"
            ),
            known(
                r"Unable to load (?:DLL|shared library) '(\w*(?:onnxruntime|Qnn|Genie)[\w.-]*)'",
                note=r"it is \1",
            ),
            # Python names the library in another line
            likely(
                r"\[WinError (?:12[67]|193|1114)\](?!.*\.(?:dll|pyd))",
                evidence=rf"{OURS}|qai_appbuilder|import (?:onnxruntime|qai)|\bQnnHtp|qnn-",
            ),
            known(
                r"\.so\b|ELF|[Ss]ymbol",
                foreseen="elf-damaged|wrong-(?:machine|libc)|glibc-too-old|android-api"
                "|needed-missing",
            ),
        ),
    ),
    Rule(
        "sdk-python",
        "Python does not find the modules of the QAIRT SDK: its environment is not set up, or it "
        "is for another version of Python",
        "`source bin/envsetup.sh` of the SDK in this shell (on Windows envsetup.ps1), with the "
        "version of Python that its release names (3.10), for this processor",
        "the line names a module of the SDK (qti, libPyIrGraph); no device is at fault",
        (),
        (
            known(
                r"No module named '(?:qti|qairt|snpe|libPy\w+)\b"
                r"|\blibPy(?:Ir|Quant)\w*\.\w+: cannot|cannot import name 'libPy"
            ),
        ),
    ),
    Rule(
        "killed-for-memory",
        "the system ended the process because memory ran out",
        "fewer contexts at a time, or a device with more memory",
        "the low-memory killer's line names the process",
        (),
        (
            likely(
                r"was ended by SIGKILL",
                outcome="crashed",
                evidence=r"lowmemorykiller|lmkd.*[Kk]ill|[Oo]ut of memory: Kill",
            ),
            # an app that is visible or audible; others are ended regularly
            likely(
                r"(?:lowmemorykiller|lmkd).{0,8}: Kill '([^']{1,100})'.*oom_score_adj "
                r"(?:-?\d{1,2}|1\d\d|200)\b",
                note=r"it was \1",
            ),
            likely(rf"Kill\w* process \d+ \(({_PROGRAMS}[^)]*)\)", note=r"it was \1"),
            likely(r"OOMKilled", evidence=_PROGRAM_LINES),
            # also a process ended by a user, or by a time limit
            possible(
                r"(?i)exit(?:ed)?(?: with)?(?: code| status)?:? 137\b"
                r"|\bKilled +(?:\./)?(?:qnn|snpe|genie)-",
                evidence=_PROGRAM_LINES,
            ),
        ),
    ),
    Rule(
        "no-memory",
        "the library could not get memory, and said nothing else; at a load that is mostly a full "
        "protection domain",
        "load fewer contexts to see whether their number or their size decides",
        "`qnn-harness contexts fit`; the lines before it in the log name buffer or domain",
        ("pytorch/executorch#4517",),
        (possible(codes=(1002,), api=_LOAD_OR_SESSION),),
        unrelated=False,
    ),
)
