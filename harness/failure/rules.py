"""The kinds of failures that are known, as an ordered table: the first that fits decides (pure).

In front stand the signs that say most: a line of a log that names the cause. A code alone comes
last, since one code has many causes (1002 is a full protection domain, weights that cannot be
mapped, and a damaged binary). Lines are as seen in the threads, or from the libraries themselves.
What no rule recognises stays unknown: better no diagnosis than a guess, since everything that was
said stands in the record anyway.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harness.failure.chain import is_benign
from harness.failure.error import Diagnosis
from harness.qnn.codes import RANGE_ENDS, dsp_error, same_code

_MAX_LINE_CHARS: Final = 500
_EXECUTORCH: Final = "https://github.com/pytorch/executorch/issues"
_ORT: Final = "https://github.com/microsoft/onnxruntime/issues"
_AI_HUB: Final = "https://github.com/qualcomm/ai-hub-apps/issues"
_APPBUILDER: Final = "https://github.com/qualcomm/qai-appbuilder/issues"
_LOAD: Final = r"QnnContext_createFromBinary\w*"
_LOAD_OR_SESSION: Final = rf"{_LOAD}|CreateSession\w*"


@dataclass(frozen=True)
class Symptoms:
    """What is known of one failure.

    `codes` are the call's own and those that its chain names; `said` the lines of the library and
    the probe; `evidence` lines of the device's logs of that time, which may be another process's.
    """

    outcome: str
    api: str | None = None
    codes: tuple[int, ...] = ()
    said: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sign:
    """What a failure must look like; everything given must hold.

    `codes`: one of them was named. `text` and `evidence`: found in a line of what was said, or of
    the device's logs. `api` matches the whole name of the call, `outcome` is the case's.
    """

    codes: tuple[int, ...] = ()
    text: str = ""
    evidence: str = ""
    api: str = ""
    outcome: str = ""

    def fits(self, symptoms: Symptoms) -> bool:
        """Whether a failure looks like this. A sign without any condition fits nothing."""
        conditions = (
            not self.codes or any(same_code(a, b) for a in self.codes for b in symptoms.codes),
            not self.text or _found(self.text, symptoms.said),
            not self.evidence or _found(self.evidence, symptoms.evidence),
            not self.api or re.fullmatch(self.api, symptoms.api or "") is not None,
            not self.outcome or self.outcome == symptoms.outcome,
        )
        return self != Sign() and all(conditions)


@dataclass(frozen=True)
class Rule:
    """One kind of failure; it has one if any of the signs fits.

    `unrelated`: it says nothing of what was asked, since any request would have met it: the DSP,
    its process, its memory or the libraries failed. So it never counts as a refusal.
    """

    diagnosis: Diagnosis
    signs: tuple[Sign, ...]
    unrelated: bool

    def fits(self, symptoms: Symptoms) -> bool:
        """Whether a failure is of this kind."""
        return any(sign.fits(symptoms) for sign in self.signs)


def _rule(
    id_: str,
    words: str,
    fix: str | None,
    thread: str | None,
    *signs: Sign,
    unrelated: bool = True,
) -> Rule:
    """A row of the table; that a failure may be a refusal must be said of it."""
    return Rule(Diagnosis(id=id_, words=words, fix=fix, thread=thread), signs, unrelated)


RULES: Final[tuple[Rule, ...]] = (
    _rule(
        "dsp-restarted",
        "the DSP restarted, and everything on it is gone",
        "make contexts, graphs and memory handles anew; the device's logs may say why",
        None,
        Sign(codes=(1007,)),
        Sign(text=r"SSR [Dd]etected"),
        Sign(evidence=r"SSR [Dd]etected|remoteproc.*cdsp.*(?:crash|fatal error)"),
    ),
    _rule(
        "pd-died",
        "the process's domain on the DSP died before this call",
        "go on in a new process, and look for what ended the domain",
        f"{_APPBUILDER}/97",
        Sign(text=r"qnn_open.*\b0x68\b"),
        Sign(evidence=r"CONN Reset"),
    ),
    _rule(
        "newer-context",
        "the context binary was made by a newer QNN than the runtime",
        "use a runtime at least as new as the compiler, or compile with an older one",
        f"{_AI_HUB}/148",
        Sign(text=r"Using newer context binary on old SDK"),
    ),
    _rule(
        "mixed-libraries",
        "libraries of two QNN builds are mixed: backend, stub and skel must be of one",
        "take all of them from one SDK, and look which of them the device's own folders hide",
        f"{_EXECUTORCH}/8762",
        Sign(codes=(1008,)),
        Sign(text=r"(?:Stub|Skel) lib id mismatch"),
    ),
    _rule(
        "two-copies",
        "two copies of the backend library are in one process",
        "load it once, by one path",
        None,
        Sign(codes=(1009,)),
    ),
    _rule(
        "other-htp-arch",
        "the context binary was made for another HTP architecture",
        "compile for this SoC",
        f"{_EXECUTORCH}/11100",
        Sign(text=r"Request feature arch with value \d+ unsupported"),
    ),
    _rule(
        "other-vtcm-size",
        "the context binary was made for more fast memory (VTCM) than the SoC has",
        "compile for this SoC, or with a smaller vtcm_mb",
        f"{_EXECUTORCH}/9084",
        Sign(text=r"Request feature vtcm size with value \d+ unsupported"),
    ),
    _rule(
        "not-mapped",
        "a buffer could not be mapped for the DSP",
        "split the model so that each piece of weights is smaller; after many rounds of loading "
        "and freeing, a new process or a reboot",
        f"{_EXECUTORCH}/6728",
        Sign(text=r"fastrpc memory map .*failed with error|Failed to map weights buffer"),
        Sign(text=r"failed to Map Buffer to SMMU"),
        Sign(
            codes=(1002,),
            evidence=r"fastrpc memory map .*failed with error|remote_mmap64_internal failed",
        ),
    ),
    _rule(
        "pd-exhausted",
        "the protection domain has no room left: its address space holds weights, I/O and "
        "spill-fill of everything resident",
        "fewer and larger partitions, shared spill-fill, or contexts freed in between; more "
        "shards if a single one is too large",
        f"{_EXECUTORCH}/14985",
        Sign(text=r"Failed to find available PD"),
        Sign(text=r"requires estimated allocation of \d+ KB, limit is \d+ KB"),
    ),
    _rule(
        "no-further-pd",
        "the device gives this process no further protection domain",
        "fewer sessions in one process",
        "https://github.com/pytorch/executorch/pull/4030",
        Sign(text=r"createUnsignedPD.*not supported"),
    ),
    _rule(
        "no-dma-handles",
        "the process has no DMA handle left (a process has 256)",
        "register fewer buffers, or larger ones",
        "https://github.com/qualcomm/fastrpc",
        Sign(codes=(dsp_error(0x2D),)),
    ),
    _rule(
        "skel-refused-context",
        "the DSP's side could not take the context in, mostly for want of memory",
        "fewer contexts at a time, or smaller ones",
        "https://github.com/alibaba/MNN/issues/4048",
        Sign(text=r"Skel failed to process context binary"),
        unrelated=False,
    ),
    _rule(
        "fastrpc-denied",
        "the process may not talk to the DSP",
        "look at the permissions of the fastrpc device nodes and at SELinux",
        "https://github.com/UbiquitousLearning/mllm/issues/272",
        Sign(text=r"qnn_open.*\b0x(?:ffffffff|72)\b"),
        Sign(codes=(1003, 4000, 14001), evidence=r"avc: +denied .*(?:adsprpc|fastrpc|cdsp)"),
    ),
    _rule(
        "unknown-soc",
        "the libraries do not know this SoC, or see none of Qualcomm's",
        "a newer SDK; or a device with an HTP",
        f"{_EXECUTORCH}/16465",
        Sign(text=r"No Snapdragon SOC detected"),
    ),
    _rule(
        "no-fastrpc",
        "FastRPC's library could not be opened, without which no DSP is reached",
        "look for libcdsprpc.so in the vendor's folder (/vendor/lib64) and put that on the library "
        "path; on a Linux board install qualcomm/fastrpc",
        f"{_EXECUTORCH}/5120",
        Sign(text=r"libcdsprpc\.so.*(?:cannot open|not found|not accessible)"),
    ),
    _rule(
        "skel-not-found",
        "the DSP's library (skel) could not be loaded",
        "put the skel of this SoC and this SDK into a folder of ADSP_LIBRARY_PATH, whose folders "
        "are divided by semicolons",
        f"{_AI_HUB}/158",
        Sign(codes=(dsp_error(0x6), dsp_error(0x200))),
        Sign(text=r"Failed to load skel"),
        Sign(text=r"Failed to create transport"),
    ),
    _rule(
        "opencl-driver",
        "the GPU backend finds no OpenCL driver that it can use",
        "a GPU driver that the SDK supports, and its libOpenCL.so where the process may open it",
        f"{_ORT}/25122",
        Sign(codes=(1006,), api=r"Qnn(?:Backend|Device)_create|CreateSession\w*"),
        Sign(text=r"Invalid OpenCL driver path|Adreno .*is not supported"),
    ),
    _rule(
        "opencl-program",
        "the OpenCL driver could not build a program of the GPU backend",
        "another driver: it may lack half precision",
        None,
        Sign(text=r"OpenCL program build error"),
        unrelated=False,
    ),
    _rule(
        "gpu-offline",
        "the GPU backend only prepares here: there is no GPU behind it, and it executes nothing",
        "execute on a device with a GPU",
        f"{_ORT}/24004",
        Sign(text=r"Cannot enqueue Gpu kernel in offline mode"),
    ),
    _rule(
        "gpu-memory",
        "the GPU backend could not get memory, or not share a buffer with the GPU",
        "less memory in use at a time; plain buffers in place of shared ones",
        None,
        Sign(text=r"GPU_ERROR_BAD_MEM_ALLOC|CL_MEM_OBJECT_ALLOCATION_FAILURE|Dmabuf not supported"),
    ),
    _rule(
        "opencl-call",
        "a call of the GPU backend to the OpenCL driver failed",
        "the lines before it name the call; the device's logs have the driver's own words; another "
        "driver, or another QNN",
        f"{_ORT}/24004",
        Sign(text=r"GPU_ERROR_OPENCL\(10014\)"),
    ),
    _rule(
        "vtcm-overflow",
        "a single op needs more of the fast memory (VTCM) than there is",
        "split the op, or make its tensors smaller",
        f"{_EXECUTORCH}/1430",
        Sign(text=r"[Rr]equires 0x[0-9a-f]+ bytes of TCM"),
        unrelated=False,
    ),
    _rule(
        "graph-prepare-failed",
        "the library could not prepare an op that it had accepted",
        "another SDK version; the line with `could not create op` names the op",
        f"{_ORT}/21221",
        Sign(text=r"could not create op|graph prepare failed"),
        unrelated=False,
    ),
    _rule(
        "op-unsupported",
        "an op, or its data type or quantisation, is not supported here",
        "another data type, another arch, or the op left to the CPU",
        f"{_EXECUTORCH}/12747",
        Sign(codes=(3110,)),
        unrelated=False,
    ),
    _rule(
        "cpu-fallback",
        "ONNX Runtime ran nodes elsewhere than on the provider that was asked for",
        "set session.disable_cpu_ep_fallback to 1, and look which nodes are refused",
        f"{_ORT}/31353",
        Sign(text=r"\d+ of \d+ nodes are not on "),
        unrelated=False,
    ),
    _rule(
        "damaged-binary",
        "the context binary is damaged, cut short, or none",
        "compare its hash with what the compiler wrote, and deploy it again",
        f"{_EXECUTORCH}/6820",
        Sign(codes=(30001, 30010)),
        Sign(text=r"Flatbuffer validation failed|Invalid flatbuffer version"),
        Sign(text=r"deserializ(?:er\.cc|ation failed)|Exception during Deserialize"),
        Sign(text=r"Metadata blob not found"),
        Sign(outcome="failed", api=r"QnnSystemContext_get(?:BinaryInfo|Meta[dD]ata)"),
    ),
    _rule(
        "unreadable-context",
        "the context binary could not be read, and nothing says why: it is damaged, or made by a "
        "newer QNN",
        "compare its hash with what the compiler wrote; compare its version with the runtime's",
        f"{_AI_HUB}/148",
        Sign(codes=(5000,), api=_LOAD_OR_SESSION),
        unrelated=False,
    ),
    _rule(
        "no-such-graph",
        "the context holds no graph of this name",
        "ask its metadata for the names; another name than the compiler's tells of damage",
        None,
        Sign(text=r"Failed to find graph .* in the context"),
        unrelated=False,
    ),
    _rule(
        "library-not-loaded",
        "a library could not be opened",
        "the message names the file: put it there, or one that fits the device; preflight says "
        "which libraries do not fit together",
        None,
        Sign(api=r"dlopen", outcome="failed"),
    ),
    _rule(
        "wrong-outputs",
        "the call succeeded and its outputs are wrong",
        "compare with the CPU backend and with another version; damage can look like this, too",
        None,
        Sign(text=r"output \d+ has \d+ of \d+ elements beyond"),
        unrelated=False,
    ),
    _rule(
        "killed-for-memory",
        "the system ended the process because memory ran out",
        "fewer contexts at a time, or a device with more memory",
        None,
        Sign(
            outcome="crashed",
            text=r"was ended by SIGKILL",
            evidence=r"lowmemorykiller|lmkd.*[Kk]ill|Out of memory: Kill",
        ),
    ),
    _rule(
        "no-memory",
        "memory could not be had, and nothing else was said; at a load this mostly is a full "
        "protection domain",
        "load fewer contexts to see whether their number or their size decides",
        f"{_EXECUTORCH}/4517",
        Sign(codes=(1002,), api=_LOAD_OR_SESSION),
        unrelated=False,
    ),
    _rule(
        "invalid-config",
        "the configuration was refused; often the DSP's library failed underneath",
        "look at the first links of the chain and at the device's logs",
        f"{_AI_HUB}/158",
        Sign(codes=(14001,)),
        unrelated=False,
    ),
    _rule(
        "stale-handle",
        "the graph's handle is not valid (any more)",
        "with ONNX Runtime, load a context binary in place of preparing on the device",
        f"{_ORT}/25422",
        Sign(codes=(6001,)),
        unrelated=False,
    ),
    _rule(
        "tensor-mismatch",
        "a tensor given to the graph is not the one it has: id, shape or buffer",
        "take ids and shapes from the metadata of this very binary",
        None,
        Sign(codes=(6004,)),
        unrelated=False,
    ),
    _rule(
        "failed-without-cause",
        "a node failed as it was executed, and the library named no cause; known of GPU drivers "
        "and of versions: ONNX Runtime 1.20.1 with QNN 2.28.2 failed so, 1.21 with 2.32 did not",
        "`qnn-harness bisect --axis ort,qnn` tells which of the two versions it was; if none, the "
        "driver",
        f"{_ORT}/24004",
        Sign(codes=(6999,), api=r"QnnGraph_execute\w*|Run"),
    ),
    _rule(
        "undefined-code",
        "{note}: no meaning is assigned to the number",
        "look at the logs of the step; runs over several versions tell which one changed it",
        f"{_ORT}/24004",
        Sign(codes=RANGE_ENDS),
    ),
)


def _found(pattern: str, lines: Sequence[str]) -> bool:
    searched = (line[:_MAX_LINE_CHARS] for line in lines if not is_benign(line))
    return any(re.search(pattern, line) for line in searched)
