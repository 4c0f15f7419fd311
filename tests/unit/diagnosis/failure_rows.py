"""Failures as devices show them, each with the diagnosis that it must get, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.diagnosis.diagnosis import Foreseen, diagnosed
from harness.diagnosis.error import ErrorRecord, Outcome
from harness.diagnosis.rule import Rule
from harness.diagnosis.rules import own_rules
from harness.diagnosis.verdict import judge
from harness.probe.plan_runner import ProbeRun
from harness.runtimes.findings import CODES, Finding
from tests.unit.diagnosis.probe_runs import DONE, LOAD, START, begin, end, log, run

RULES = own_rules()

DEVICE = "QnnDevice_create"
EXECUTE = "QnnGraph_execute"
FINALIZE = "QnnGraph_finalize"
BACKEND = "QnnBackend_create"
METADATA = "QnnSystemContext_getMetadata"
SESSION = "CreateSession"
NO_PD = "Failed to find available PD for contextId 56 on deviceId 0 coreId 0"
SKEL = ("Failed to load skel, error: 4000", "Transport layer setup failed: 14001")
BENIGN = "QnnContextCustomProtocol expected magic number: 0x5678abcd but get: 0x2000000"
OWN_SKEL_PATH = (
    "Using existing ADSP_LIBRARY_PATH setting of /data/x/sets/qnn-2.51.0;/vendor/dsp/cdsp;/dsp, "
    "which may cause the HTP backend to fail"
)
NO_PLATFORM_INFO = (
    "Unable to get platform info: Only support getting platform info for HTP backend."
)
NO_OPTIMIZATIONS = (
    "Error 0x8000043e: fastrpc_enable_kernel_optimizations failed for domain 3 (Success)"
)
NO_ALLOC2 = "[Qnn ExecuTorch]:  <W> This META does not have Alloc2 Support"
OLD_DAEMON = (
    "cdsprpcd: fastrpc_apps_user.c:1214: Error 0x80000414: remote_handle64_invoke failed for "
    "handle 0xbf7328d0, method 4 on domain 3 (sc 0x4010100) (errno Success)"
)
NO_LOG_SKEL = "Error 45: fopen failed for libadspmsgd_adsp_skel.so. (No such file or directory)"
NO_NOTIFICATIONS = (
    "Error 0x80000414: remote_handle64_invoke failed for module libdspqueue_rpc_skel.so, handle 0x1"
)
OFFLINE = "Cannot enqueue Gpu kernel in offline mode"
OPENCL = "GPU ERROR: GPU_ERROR_OPENCL(10014) - OpenCL error enqueueing kernel"
LITERT_WITH_OLD_QNN = (
    "LiteRT 2.3.0 with QNN 2.49.40 did not compile face.tflite: "
    "Qnn System library version 1.13.0 is mismatched. The minimum supported version is 1.14.0. "
    "Please make sure you have the correct library version."
)
OTHER = "something that nobody has seen yet"
RESTARTED = "remoteproc remoteproc1: crash detected in 3300000.remoteproc-cdsp: type fatal error"
AVC = 'avc:  denied  { read } for name="adsprpc-smd" scontext=u:r:shell:s0 tclass=chr_file'

_VERBS = {
    SESSION: "ort-session",
    "Run": "ort-run",
    "Session_GetEpGraphAssignmentInfo": "ort-placement",
}


@dataclass(frozen=True)
class Row:
    """A step that returned `code`, with the errors logged in it and what the device's log held.

    `expected`: the id of its diagnosis and the confidence, None if there is none.

    `ending`: how the process ended; None if it carried out its plan. `message` is the probe's own,
    with `error` the kind of its own refusal, `status` the text of a call of ONNX Runtime's.
    `foreseen` are the codes of findings of preflight.
    """

    expected: str | None
    api: str
    code: int | None
    lines: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    error: str | None = None
    message: str | None = None
    ending: dict[str, Any] | None = None
    status: str | None = None
    foreseen: tuple[str, ...] = ()

    @property
    def preflight(self) -> Foreseen:
        """The findings of preflight, in the words of the table of codes."""
        findings = (
            Finding(code, "error", (), CODES[code].meaning, "", None) for code in self.foreseen
        )
        return Foreseen(tuple(findings))

    def probe_run(self) -> ProbeRun:
        """The process that shows it."""
        verb = _VERBS.get(self.api, "context-load")
        events = [START, begin(api=self.api, verb=verb), *map(log, self.lines)]
        if self.ending is not None:
            return run(*events, **self.ending)
        code = {"code": self.code, "error": self.error, "message": self.message}
        ended = {key: value for key, value in code.items() if value is not None}
        data = {} if self.status is None else {"data": {"status_text": self.status}}
        return run(*events, end(**ended, **data), DONE, exit_code=1)

    @cached_property
    def undiagnosed(self) -> tuple[Outcome, ErrorRecord]:
        """The outcome and the error record of the process's events, without a diagnosis."""
        verdict = judge(self.probe_run())
        assert verdict.error is not None
        return verdict.outcome, verdict.error.model_copy(update={"diagnosis": None})

    def diagnosis(self, rules: tuple[Rule, ...] = RULES) -> str | None:
        """Return the diagnosis by these rules."""
        diagnosis = diagnosed(*self.undiagnosed, self.evidence, rules, self.preflight).diagnosis
        return f"{diagnosis.id} {diagnosis.confidence}" if diagnosis else None


KILLED = {"signal": 9, "exit_code": None}
CRASHED = {"signal": 11, "exit_code": None}
LATE = {"timed_out": True, "exit_code": None}

NO_FALLBACK = (
    "This session contains graph nodes that are assigned to the default CPU EP, but fallback to "
    "CPU EP has been explicitly disabled by the user."
)
LIBRARY = "libQnnHtp.so: unsupported version 0 of Verneed record"
REGISTER = "RegisterExecutionProviderLibrary"

# What preflight had said, and it failed so: by codes that alone mean little.
FORESEEN = (
    *(
        Row(expected, DEVICE, code, foreseen=(found,))
        for code in (4000, 14001, 0x80000406)
        for found, expected in (
            ("stub-missing", "stub-missing known"),
            ("skel-missing", "skel-not-found known"),
            ("soc-arch", "skel-not-found likely"),
            ("sdk-mix", "mixed-libraries likely"),
            ("no-htp", "unknown-soc known"),
            ("soc-unknown", "unknown-soc likely"),
        )
    ),
    Row("mixed-libraries known", DEVICE, 1008, foreseen=("sdk-mix",)),
    Row("two-copies known", BACKEND, 1009, foreseen=("library-twice",)),
    Row("executorch-version known", DEVICE, 14001, foreseen=("executorch-device",)),
    Row("newer-context known", LOAD, 5000, foreseen=("context-newer",)),
    Row("other-htp-arch known", LOAD, 5005, foreseen=("context-arch",)),
    Row("other-htp-arch likely", LOAD, 5005, foreseen=("context-soc",)),
    Row("other-vtcm-size known", LOAD, 5005, foreseen=("context-vtcm",)),
    Row("pd-exhausted known", LOAD, 1002, foreseen=("context-memory",)),
    Row("mixed-frameworks known", REGISTER, None, ending=CRASHED, foreseen=("ort-too-old",)),
    Row("mixed-frameworks known", SESSION, 1, foreseen=("ort-too-new",)),
    *(
        Row("backend-not-loaded known", BACKEND, 1, ("libQnnHtp.so: no such",), foreseen=(code,))
        for code in ("backend-missing", "system-missing")
    ),
    *(
        Row("library-not-loaded known", REGISTER, 1, (LIBRARY,), foreseen=(code,))
        for code in (
            *("elf-damaged", "wrong-machine", "wrong-libc", "glibc-too-old", "android-api"),
            "needed-missing",
        )
    ),
    Row(
        "page-size known",
        "dlopen",
        None,
        error="dlopen",
        message="libQnnHtp.so: it does not load",
        foreseen=("page-size",),
    ),
    Row(
        "library-not-loaded known",
        "dlopen",
        None,
        error="dlopen",
        message=LIBRARY,
        foreseen=("glibc-too-old",),
    ),
    # another failure than what was foreseen
    Row("tensor-mismatch possible", EXECUTE, 6004, foreseen=tuple(CODES)),
    Row("pd-exhausted known", LOAD, 1002, (NO_PD,), foreseen=("context-newer",)),
)

ROWS = (
    *FORESEEN,
    Row("dsp-restarted possible", EXECUTE, 1007),
    Row("dsp-restarted known", EXECUTE, 6031, ("SSR Detected, closing session",)),
    Row("dsp-restarted known", EXECUTE, None, ("SSR detected",), ending=LATE),
    Row("dsp-restarted likely", EXECUTE, 6031, evidence=("x", RESTARTED)),
    Row("dsp-restarted likely", EXECUTE, 6999, evidence=("adsprpc: SSR Detected for domain 3",)),
    Row(
        "pd-died likely", LOAD, 1002, ("DspTransport.openSession qnn_open failed, 0x68, prio 100",)
    ),
    Row("pd-died likely", EXECUTE, 1100, evidence=("adsprpc : CONN Reset",)),
    Row("newer-context known", LOAD, 5000, ("Using newer context binary on old SDK",)),
    Row(
        "newer-context known",
        SESSION,
        1,
        ("Using newer context binary on old SDK",),
        status="Failed to create context from binary. Error code: 5000",
    ),
    Row(
        "mixed-libraries known",
        DEVICE,
        14001,
        ("Stub lib id mismatch: expected (v2.28.2.241116), detected (v2.25.17.241017)",),
    ),
    Row("mixed-libraries possible", DEVICE, 1008),
    Row(
        "mixed-libraries likely",
        DEVICE,
        4000,
        ("Unable to load Remote symbols, error: 1008", *SKEL),
    ),
    Row("two-copies possible", BACKEND, 1009),
    Row("other-htp-arch known", LOAD, 5005, ("Request feature arch with value 75 unsupported",)),
    Row(
        "other-vtcm-size known",
        LOAD,
        5005,
        (
            "Request feature vtcm size with value 8388608 unsupported",
            "Failed to register context to device and backend",
        ),
    ),
    Row(
        "not-mapped known",
        LOAD,
        1002,
        ("fastrpc memory map for fd: 58 with length: 440401920 failed with error: 0x1",),
    ),
    Row("not-mapped known", LOAD, 1002, ("Failed to map weights buffer to device!",)),
    Row("not-mapped known", LOAD, 1002, ("SharedMemoryMod failed to Map Buffer to SMMU",)),
    Row(
        "not-mapped likely",
        LOAD,
        1002,
        evidence=("fastrpc_mem.c:700: Error 0x58: remote_mmap64_internal failed for fd 0xff",),
    ),
    # another process's buffers have nothing to do with a failure that is not about memory
    Row(None, EXECUTE, 6022, evidence=("Error 0x58: remote_mmap64_internal failed for fd 0xff",)),
    Row("pd-exhausted known", LOAD, 1002, (NO_PD,)),
    Row("litert-version known", LOAD, 1, (LITERT_WITH_OLD_QNN,)),
    Row(
        "pd-exhausted known",
        LOAD,
        1002,
        ("requires estimated allocation of 2315388 KB, limit is 2097152 KB",),
    ),
    Row(
        "pd-exhausted known",
        SESSION,
        1,
        (NO_PD,),
        status="Failed to create context from binary. Error code: 1002",
    ),
    Row(
        "no-unsigned-pd likely",
        DEVICE,
        1100,
        ("DspTransport.createUnsignedPD failed, 0x00000003",),
    ),
    # a context is created in a session that there is already
    Row(
        "no-further-pd likely",
        LOAD,
        1002,
        ("DspTransport.createUnsignedPD failed, 0x00000003",),
    ),
    Row("no-dma-handles possible", "QnnMem_register", 8000, ("mmap failed with 0x8000042d",)),
    Row("skel-refused-context likely", LOAD, 5005, ("Skel failed to process context binary.",)),
    Row(
        "fastrpc-denied likely",
        DEVICE,
        14001,
        ("DspTransport.openSession qnn_open failed, 0xffffffff, prio 100", *SKEL),
    ),
    Row("fastrpc-denied possible", DEVICE, 4000, ("qnn_open failed, 0x72",)),
    Row("fastrpc-denied likely", DEVICE, 14001, SKEL, evidence=(AVC,)),
    Row("fastrpc-denied likely", DEVICE, 1003, evidence=(AVC,)),
    Row("fastrpc-denied likely", DEVICE, 14001, evidence=(AVC,)),
    # a denial of something else, and a failure that no denial explains
    Row(
        "stub-not-loaded likely", DEVICE, 14001, SKEL, evidence=("avc:  denied  { read } for kgsl",)
    ),
    Row("op-unsupported possible", "QnnBackend_validateOpConfig", 3110, evidence=(AVC,)),
    Row(
        "unknown-soc likely",
        "QnnLog_create",
        4000,
        ("No Snapdragon SOC detected", "Failed to init"),
    ),
    Row(
        "skel-not-found likely",
        DEVICE,
        1003,
        ("DspTransport.openSession qnn_open failed, 0x80000406",),
    ),
    Row("skel-not-found possible", DEVICE, 1003, ("qnn_open failed, error: 0x80000600",)),
    Row("stub-not-loaded likely", DEVICE, 14001, SKEL),
    Row(
        "stub-not-loaded likely",
        BACKEND,
        4000,
        ("Failed to create transport for device, error: 4000",),
    ),
    Row("opencl-driver possible", BACKEND, 1006),
    Row("opencl-driver known", BACKEND, 4000, ("Adreno  is not supported",)),
    Row("opencl-driver known", DEVICE, 1100, ("GPU ERROR: (10006) - Invalid OpenCL driver path",)),
    Row(None, "QnnProperty_hasCapability", 1006),
    Row("opencl-program known", FINALIZE, 6022, ("OpenCL program build error",)),
    Row("gpu-offline known", EXECUTE, 6999, (OFFLINE, OPENCL)),
    Row(
        "gpu-offline known",
        "Run",
        11,
        (OFFLINE, OPENCL, "Non-zero status code returned while running QNN_1 node."),
        status="QNN graph execute error. QNN error handle: 6999, Code: 6999",
    ),
    Row("gpu-memory known", EXECUTE, 6999, ("GPU ERROR: GPU_ERROR_BAD_MEM_ALLOC(10001)",)),
    Row("gpu-memory known", "QnnMem_register", 8005, ("Dmabuf not supported",)),
    Row("opencl-call likely", EXECUTE, 6999, (OPENCL,)),
    Row(
        "vtcm-overflow known",
        FINALIZE,
        1002,
        (
            'A single op, "q::x" (Op ID: 1165), requires 0x2400000 bytes of TCM, which is greater',
            "RouterHexagon graph prepare failed 13",
        ),
    ),
    Row("graph-prepare-failed likely", FINALIZE, 1002, ("could not create op: q::flat_from_vtcm",)),
    Row("graph-prepare-failed likely", FINALIZE, 1002, ("RouterX86 graph prepare failed 12",)),
    Row("op-unsupported possible", "QnnBackend_validateOpConfig", 3110),
    # accepted by an older library of the device, since the one that was pushed was not found
    Row(
        "skel-not-found likely",
        "QnnBackend_validateOpConfig",
        3110,
        ("qnn_open failed, 0x80000406",),
    ),
    Row(
        "cpu-fallback known",
        "Session_GetEpGraphAssignmentInfo",
        None,
        error="placement",
        message="3 of 3 nodes are not on QNNExecutionProvider but on CPUExecutionProvider",
    ),
    Row("damaged-binary possible", LOAD, 30010, ("Serializer failed to get context blob.",)),
    Row("damaged-binary possible", LOAD, 30001),
    Row("damaged-binary known", LOAD, 5005, ("Flatbuffer validation failed",)),
    Row("damaged-binary known", LOAD, 1002, ("Invalid flatbuffer version",)),
    Row(
        "damaged-binary likely",
        LOAD,
        5005,
        ("deserializer.cc:892::ERROR:Co deserialization failed: op [x] not found",),
    ),
    Row(
        "damaged-binary likely",
        LOAD,
        5005,
        ("graph.cc:311::ERROR:Exception during Deserialize Graph with vector",),
    ),
    Row("damaged-binary known", LOAD, 5000, ("Metadata blob not found in buffer",)),
    Row("unreadable-context possible", LOAD, 5000),
    Row("unreadable-context possible", LOAD, 5000, (OTHER,)),
    # the low 16 bits are the code
    Row("dsp-restarted possible", EXECUTE, 0x100003EF),
    Row("failed-without-cause possible", EXECUTE, 0x20001B57),
    Row("damaged-binary possible", METADATA, None, error="metadata", message="16385 graphs"),
    # what an interrupted call was reading need not be the reason
    Row(None, METADATA, None, ending=CRASHED),
    Row(None, "QnnGraph_setConfig", 5000),
    Row(None, "QnnGraph_setConfig", 5004),
    Row(None, "QnnGraph_setConfig", 5005),
    Row(
        "no-such-graph known", "QnnGraph_retrieve", 6003, ("Failed to find graph g in the context",)
    ),
    Row(
        "no-fastrpc known",
        DEVICE,
        4000,
        ("Failed in loading stub: libcdsprpc.so: cannot open shared object file",),
    ),
    # a library that crashes as it is loaded was found
    Row(None, "dlopen", None, ending=CRASHED),
    Row(
        "library-not-loaded known",
        "dlopen",
        None,
        error="dlopen",
        message="libQnnX.so: cannot open",
    ),
    Row(
        "wrong-outputs known",
        EXECUTE,
        0,
        error="mismatch",
        message="run 1: output 0 has 1 of 16 elements more than 0.01 from what is expected, "
        "the first at 13",
    ),
    Row(
        "killed-for-memory likely",
        LOAD,
        None,
        ending=KILLED,
        evidence=("lowmemorykiller: Kill 'x' (7)",),
    ),
    Row(
        "killed-for-memory likely",
        LOAD,
        None,
        ending=KILLED,
        evidence=("Out of memory: Killed process 7",),
    ),
    Row(None, LOAD, None, ending=KILLED),
    Row(None, LOAD, None, ending=CRASHED, evidence=("lowmemorykiller: Kill 'x' (7)",)),
    # the words of a signal that somebody else logs
    Row(None, LOAD, 6031, ("it was ended by SIGKILL",), evidence=("lmkd: Kill 'x' (7)",)),
    Row(
        "fallback-wanted known",
        SESSION,
        1,
        ("Qnn CPU backend is loaded while CPU fallback is disabled.", NO_FALLBACK),
    ),
    Row("nodes-not-taken possible", SESSION, 1, (NO_FALLBACK,)),
    Row("no-memory possible", LOAD, 1002),
    Row("no-memory possible", LOAD, 1002, (OTHER,)),
    Row(None, EXECUTE, 1002),
    Row("invalid-config possible", DEVICE, 14001, ("unknown custom config socModel 0",)),
    Row("stale-handle possible", EXECUTE, 6001),
    Row("stale-handle possible", "QnnMem_deRegister", 8001),
    Row("registered-twice possible", "QnnMem_register", 8002),
    Row("not-mapped possible", "QnnMem_register", 8003),
    Row("tensor-mismatch possible", EXECUTE, 6004),
    Row("failed-without-cause possible", EXECUTE, 6999),
    Row("failed-without-cause possible", EXECUTE, 6999, (OTHER,)),
    Row(None, EXECUTE, 6998),
    Row("undefined-code possible", FINALIZE, 6999),
    Row("undefined-code possible", LOAD, 5999),
    # unknown ones stay unknown
    Row(None, EXECUTE, 6031),
    Row(None, EXECUTE, 6123, (OTHER,)),
    Row(None, EXECUTE, None, ending=CRASHED),
    Row(None, EXECUTE, None, ending=LATE),
    Row(None, LOAD, 1100, (BENIGN,), evidence=(BENIGN, OTHER)),
    Row("pd-exhausted known", LOAD, 1002, (BENIGN, NO_PD)),
    # two causes show: which one decides
    Row("dsp-restarted known", EXECUTE, 6999, ("SSR detected",)),
    Row("gpu-offline known", EXECUTE, 6999, (OFFLINE,)),
    Row("gpu-memory known", EXECUTE, 6999, ("Dmabuf not supported",)),
    Row("pd-died likely", DEVICE, 14001, ("qnn_open failed, 0x68", *SKEL)),
    Row("pd-died likely", LOAD, 1002, ("qnn_open failed, 0x68",)),
    Row("pd-died likely", DEVICE, 14001, ("qnn_open failed, 0x68",)),
    Row("mixed-libraries known", DEVICE, 14001, ("Stub lib id mismatch",)),
    Row("fastrpc-denied likely", DEVICE, 14001, ("qnn_open failed, 0xffffffff",)),
    Row("unknown-soc likely", DEVICE, 14001, ("No Snapdragon SOC detected",)),
    Row("mixed-libraries known", DEVICE, 14001, ("Stub lib id mismatch", *SKEL)),
    Row("not-mapped known", LOAD, 1002, ("Failed to map weights buffer to device!", NO_PD)),
    Row(
        "skel-refused-context likely",
        LOAD,
        5005,
        ("Skel failed to process context binary.", "deserialization failed"),
    ),
    Row("fastrpc-denied likely", DEVICE, 14001, ("qnn_open failed, 0xffffffff", *SKEL)),
    Row("unknown-soc likely", DEVICE, 14001, ("No Snapdragon SOC detected", *SKEL)),
    Row("no-fastrpc known", DEVICE, 4000, ('library "libcdsprpc.so" not found', *SKEL)),
    Row("no-fastrpc known", DEVICE, 14001, ("libcdsprpc.so: cannot open shared object file",)),
    Row("skel-not-found possible", "QnnBackend_validateOpConfig", 3110, ("error 0x80000406",)),
    Row(
        "vtcm-overflow known",
        FINALIZE,
        1002,
        ("requires 0x2400000 bytes of TCM", "RouterHexagon graph prepare failed 13"),
    ),
    Row(
        "graph-prepare-failed likely",
        SESSION,
        1,
        ("could not create op: q::x",),
        status="Failed to finalize QNN graph. Error code: 1002",
    ),
)
