"""Causes in preparing and executing graphs, of ops and of the GPU (data)."""

from __future__ import annotations

from typing import Final

from harness.ground.facts.codes import RANGE_ENDS
from harness.verdict.failure.rule import Rule, known, likely, possible

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
