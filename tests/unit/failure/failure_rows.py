"""Failures as devices show them, each with the diagnosis that it must get."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from harness.failure.diagnosis import diagnosed
from harness.failure.error import ErrorRecord, Outcome
from harness.failure.rules import RULES, Rule
from harness.failure.verdict import judge
from harness.probe.run import ProbeRun
from tests.unit.failure.probe_runs import DONE, LOAD, START, begin, end, log, run

DEVICE = "QnnDevice_create"
EXECUTE = "QnnGraph_execute"
FINALIZE = "QnnGraph_finalize"
BACKEND = "QnnBackend_create"
METADATA = "QnnSystemContext_getMetadata"
SESSION = "CreateSession"
NO_PD = "Failed to find available PD for contextId 56 on deviceId 0 coreId 0"
SKEL = ("Failed to load skel, error: 4000", "Transport layer setup failed: 14001")
BENIGN = "QnnContextCustomProtocol expected magic number: 0x5678abcd but get: 0x2000000"
NO_PLATFORM_INFO = (
    "Unable to get platform info: Only support getting platform info for HTP backend."
)
OFFLINE = "Cannot enqueue Gpu kernel in offline mode"
OPENCL = "GPU ERROR: GPU_ERROR_OPENCL(10014) - OpenCL error enqueueing kernel"
OTHER = "something that nobody has seen yet"
RESTARTED = "remoteproc remoteproc1: crash detected in 3300000.remoteproc-cdsp: type fatal error"
AVC = 'avc:  denied  { read } for name="adsprpc-smd" scontext=u:r:shell:s0 tclass=chr_file'


@dataclass(frozen=True)
class Row:
    """A step that returned `code`, with the errors logged in it and what the device's log held.

    `how`: how the process ended; None if it carried out its plan. `said` is the probe's own words,
    with `error` the kind of its own refusal.
    """

    expected: str | None
    api: str
    code: int | None
    lines: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    error: str | None = None
    said: str | None = None
    verb: str = "context-load"
    how: dict[str, Any] | None = None
    data: dict[str, Any] = field(default_factory=dict)

    def probe_run(self) -> ProbeRun:
        """The process that shows it."""
        events = [START, begin(api=self.api, verb=self.verb), *map(log, self.lines)]
        if self.how is not None:
            return run(*events, **self.how)
        code = {"code": self.code, "error": self.error, "message": self.said}
        ended = {key: value for key, value in code.items() if value is not None}
        return run(*events, end(**ended, **self.data), DONE, exit_code=1)

    @cached_property
    def undiagnosed(self) -> tuple[Outcome, ErrorRecord]:
        """What comes of it, from the process's events to the record, but for a diagnosis."""
        verdict = judge(self.probe_run())
        assert verdict.error is not None
        return verdict.outcome, verdict.error.model_copy(update={"diagnosis": None})

    def diagnosis(self, rules: tuple[Rule, ...] = RULES) -> str | None:
        """The id of what is diagnosed with these rules."""
        made = diagnosed(*self.undiagnosed, self.evidence, rules)
        return made.diagnosis.id if made.diagnosis else None


KILLED = {"signal": 9, "exit_code": None}
CRASHED = {"signal": 11, "exit_code": None}
LATE = {"timed_out": True, "exit_code": None}

ROWS = (
    Row("dsp-restarted", EXECUTE, 1007),
    Row("dsp-restarted", EXECUTE, 6031, ("SSR Detected, closing session",)),
    Row("dsp-restarted", EXECUTE, None, ("SSR detected",), how=LATE),
    Row("dsp-restarted", EXECUTE, 6031, evidence=("x", RESTARTED)),
    Row("dsp-restarted", EXECUTE, 6999, evidence=("adsprpc: SSR Detected for domain 3",)),
    Row("pd-died", LOAD, 1002, ("DspTransport.openSession qnn_open failed, 0x68, prio 100",)),
    Row("pd-died", EXECUTE, 1100, evidence=("adsprpc : CONN Reset",)),
    Row("newer-context", LOAD, 5000, ("Using newer context binary on old SDK",)),
    Row(
        "newer-context",
        SESSION,
        1,
        ("Using newer context binary on old SDK",),
        verb="ort-session",
        data={"status_text": "Failed to create context from binary. Error code: 5000"},
    ),
    Row(
        "mixed-libraries",
        DEVICE,
        14001,
        ("Stub lib id mismatch: expected (v2.28.2.241116), detected (v2.25.17.241017)",),
    ),
    Row("mixed-libraries", DEVICE, 1008),
    Row("mixed-libraries", DEVICE, 4000, ("Unable to load Remote symbols, error: 1008", *SKEL)),
    Row("two-copies", BACKEND, 1009),
    Row("other-htp-arch", LOAD, 5005, ("Request feature arch with value 75 unsupported",)),
    Row(
        "other-vtcm-size",
        LOAD,
        5005,
        (
            "Request feature vtcm size with value 8388608 unsupported",
            "Failed to register context to device and backend",
        ),
    ),
    Row(
        "not-mapped",
        LOAD,
        1002,
        ("fastrpc memory map for fd: 58 with length: 440401920 failed with error: 0x1",),
    ),
    Row("not-mapped", LOAD, 1002, ("Failed to map weights buffer to device!",)),
    Row("not-mapped", LOAD, 1002, ("SharedMemoryMod failed to Map Buffer to SMMU",)),
    Row(
        "not-mapped",
        LOAD,
        1002,
        evidence=("fastrpc_mem.c:700: Error 0x58: remote_mmap64_internal failed for fd 0xff",),
    ),
    # another process's buffers have nothing to do with a failure that is not about memory
    Row(None, EXECUTE, 6022, evidence=("Error 0x58: remote_mmap64_internal failed for fd 0xff",)),
    Row("pd-exhausted", LOAD, 1002, (NO_PD,)),
    Row(
        "pd-exhausted",
        LOAD,
        1002,
        ("requires estimated allocation of 2315388 KB, limit is 2097152 KB",),
    ),
    Row(
        "pd-exhausted",
        SESSION,
        1,
        (NO_PD,),
        verb="ort-session",
        data={"status_text": "Failed to create context from binary. Error code: 1002"},
    ),
    Row("no-further-pd", DEVICE, 1100, ("createUnsignedPD unsigned PD or session not supported",)),
    Row("no-dma-handles", "QnnMem_register", 8000, ("mmap failed with 0x8000042d",)),
    Row("skel-refused-context", LOAD, 5005, ("Skel failed to process context binary.",)),
    Row(
        "fastrpc-denied",
        DEVICE,
        14001,
        ("DspTransport.openSession qnn_open failed, 0xffffffff, prio 100", *SKEL),
    ),
    Row("fastrpc-denied", DEVICE, 4000, ("qnn_open failed, 0x72",)),
    Row("fastrpc-denied", DEVICE, 14001, SKEL, evidence=(AVC,)),
    # a denial of something else, and a failure that no denial explains
    Row("skel-not-found", DEVICE, 14001, SKEL, evidence=("avc:  denied  { read } for kgsl",)),
    Row("op-unsupported", "QnnBackend_validateOpConfig", 3110, evidence=(AVC,)),
    Row("unknown-soc", "QnnLog_create", 4000, ("No Snapdragon SOC detected", "Failed to init")),
    Row("skel-not-found", DEVICE, 1003, ("DspTransport.openSession qnn_open failed, 0x80000406",)),
    Row("skel-not-found", DEVICE, 1003, ("qnn_open failed, error: 0x80000600",)),
    Row("skel-not-found", DEVICE, 14001, SKEL),
    Row("skel-not-found", BACKEND, 4000, ("Failed to create transport for device, error: 4000",)),
    Row("opencl-driver", BACKEND, 1006),
    Row("opencl-driver", BACKEND, 4000, ("Adreno  is not supported",)),
    Row("opencl-driver", DEVICE, 1100, ("GPU ERROR: (10006) - Invalid OpenCL driver path",)),
    Row(None, "QnnProperty_hasCapability", 1006),
    Row("opencl-program", FINALIZE, 6022, ("OpenCL program build error",)),
    Row("gpu-offline", EXECUTE, 6999, (OFFLINE, OPENCL)),
    Row(
        "gpu-offline",
        "Run",
        11,
        (OFFLINE, OPENCL, "Non-zero status code returned while running QNN_1 node."),
        verb="ort-run",
        data={"status_text": "QNN graph execute error. QNN error handle: 6999, Code: 6999"},
    ),
    Row("gpu-memory", EXECUTE, 6999, ("GPU ERROR: GPU_ERROR_BAD_MEM_ALLOC(10001)",)),
    Row("gpu-memory", "QnnMem_register", 8005, ("Dmabuf not supported",)),
    Row("opencl-call", EXECUTE, 6999, (OPENCL,)),
    Row(
        "vtcm-overflow",
        FINALIZE,
        1002,
        (
            'A single op, "q::x" (Op ID: 1165), requires 0x2400000 bytes of TCM, which is greater',
            "RouterHexagon graph prepare failed 13",
        ),
    ),
    Row("graph-prepare-failed", FINALIZE, 1002, ("could not create op: q::flat_from_vtcm",)),
    Row("graph-prepare-failed", FINALIZE, 1002, ("RouterX86 graph prepare failed 12",)),
    Row("op-unsupported", "QnnBackend_validateOpConfig", 3110),
    # accepted by an older library of the device, since the one that was pushed was not found
    Row("skel-not-found", "QnnBackend_validateOpConfig", 3110, ("qnn_open failed, 0x80000406",)),
    Row(
        "cpu-fallback",
        "Session_GetEpGraphAssignmentInfo",
        None,
        error="placement",
        said="3 of 3 nodes are not on QNNExecutionProvider but on CPUExecutionProvider",
        verb="ort-placement",
    ),
    Row("damaged-binary", LOAD, 30010, ("Serializer failed to get context blob.",)),
    Row("damaged-binary", LOAD, 30001),
    Row("damaged-binary", LOAD, 5005, ("Flatbuffer validation failed",)),
    Row("damaged-binary", LOAD, 1002, ("Invalid flatbuffer version",)),
    Row(
        "damaged-binary",
        LOAD,
        5005,
        ("deserializer.cc:892::ERROR:Co deserialization failed: op [x] not found",),
    ),
    Row(
        "damaged-binary",
        LOAD,
        5005,
        ("graph.cc:311::ERROR:Exception during Deserialize Graph with vector",),
    ),
    Row("damaged-binary", LOAD, 5000, ("Metadata blob not found in buffer",)),
    Row("unreadable-context", LOAD, 5000),
    Row("unreadable-context", LOAD, 5000, (OTHER,)),
    # the low 16 bits are the code
    Row("dsp-restarted", EXECUTE, 0x100003EF),
    Row("failed-without-cause", EXECUTE, 0x20001B57),
    Row("damaged-binary", METADATA, None, error="metadata", said="16385 graphs"),
    # what an interrupted call was reading need not be the reason
    Row(None, METADATA, None, how=CRASHED),
    Row(None, "QnnGraph_setConfig", 5000),
    Row("no-such-graph", "QnnGraph_retrieve", 6003, ("Failed to find graph g in the context",)),
    Row(
        "no-fastrpc",
        DEVICE,
        4000,
        ("Failed in loading stub: libcdsprpc.so: cannot open shared object file",),
    ),
    # a library that crashes as it is loaded was found
    Row(None, "dlopen", None, how=CRASHED),
    Row("library-not-loaded", "dlopen", None, error="dlopen", said="libQnnX.so: cannot open"),
    Row(
        "wrong-outputs",
        EXECUTE,
        0,
        error="mismatch",
        said="run 1: output 0 has 1 of 16 elements beyond 0.01, the first at 13",
    ),
    Row("killed-for-memory", LOAD, None, how=KILLED, evidence=("lowmemorykiller: Kill 'x' (7)",)),
    Row("killed-for-memory", LOAD, None, how=KILLED, evidence=("Out of memory: Killed process 7",)),
    Row(None, LOAD, None, how=KILLED),
    Row(None, LOAD, None, how=CRASHED, evidence=("lowmemorykiller: Kill 'x' (7)",)),
    # the words of a signal that somebody else logs
    Row(None, LOAD, 6031, ("it was ended by SIGKILL",), evidence=("lmkd: Kill 'x' (7)",)),
    Row("no-memory", LOAD, 1002),
    Row("no-memory", LOAD, 1002, (OTHER,)),
    Row(None, EXECUTE, 1002),
    Row("invalid-config", DEVICE, 14001, ("unknown custom config socModel 0",)),
    Row("stale-handle", EXECUTE, 6001),
    Row("tensor-mismatch", EXECUTE, 6004),
    Row("failed-without-cause", EXECUTE, 6999),
    Row("failed-without-cause", EXECUTE, 6999, (OTHER,)),
    Row(None, EXECUTE, 6998),
    Row("undefined-code", FINALIZE, 6999),
    Row("undefined-code", LOAD, 5999),
    # unknown ones stay unknown
    Row(None, EXECUTE, 6031),
    Row(None, EXECUTE, 6123, (OTHER,)),
    Row(None, EXECUTE, None, how=CRASHED),
    Row(None, EXECUTE, None, how=LATE),
    Row(None, LOAD, 1100, (BENIGN,), evidence=(BENIGN, OTHER)),
    Row("pd-exhausted", LOAD, 1002, (BENIGN, NO_PD)),
)

PRECEDENCE = (
    # what stands in front, what stands behind, a failure that shows both
    ("dsp-restarted", "undefined-code", Row("dsp-restarted", EXECUTE, 6999, ("SSR detected",))),
    (
        "dsp-restarted",
        "failed-without-cause",
        Row("dsp-restarted", EXECUTE, 6999, ("SSR detected",)),
    ),
    ("gpu-offline", "opencl-call", Row("gpu-offline", EXECUTE, 6999, (OFFLINE, OPENCL))),
    ("gpu-offline", "failed-without-cause", Row("gpu-offline", EXECUTE, 6999, (OFFLINE,))),
    ("gpu-offline", "undefined-code", Row("gpu-offline", EXECUTE, 6999, (OFFLINE,))),
    (
        "gpu-memory",
        "failed-without-cause",
        Row("gpu-memory", EXECUTE, 6999, ("Dmabuf not supported",)),
    ),
    ("gpu-memory", "undefined-code", Row("gpu-memory", EXECUTE, 6999, ("Dmabuf not supported",))),
    ("opencl-call", "failed-without-cause", Row("opencl-call", EXECUTE, 6999, (OPENCL,))),
    ("opencl-call", "undefined-code", Row("opencl-call", EXECUTE, 6999, (OPENCL,))),
    ("failed-without-cause", "undefined-code", Row("failed-without-cause", EXECUTE, 6999)),
    ("dsp-restarted", "pd-died", Row("dsp-restarted", LOAD, 1007, ("qnn_open failed, 0x68",))),
    ("pd-died", "skel-not-found", Row("pd-died", DEVICE, 14001, ("qnn_open failed, 0x68", *SKEL))),
    ("pd-died", "no-memory", Row("pd-died", LOAD, 1002, ("qnn_open failed, 0x68",))),
    ("pd-died", "invalid-config", Row("pd-died", DEVICE, 14001, ("qnn_open failed, 0x68",))),
    (
        "mixed-libraries",
        "invalid-config",
        Row("mixed-libraries", DEVICE, 14001, ("Stub lib id mismatch",)),
    ),
    (
        "not-mapped",
        "no-memory",
        Row("not-mapped", LOAD, 1002, ("Failed to map weights buffer to device!",)),
    ),
    (
        "fastrpc-denied",
        "invalid-config",
        Row("fastrpc-denied", DEVICE, 14001, ("qnn_open failed, 0xffffffff",)),
    ),
    (
        "unknown-soc",
        "invalid-config",
        Row("unknown-soc", DEVICE, 14001, ("No Snapdragon SOC detected",)),
    ),
    (
        "newer-context",
        "unreadable-context",
        Row("newer-context", LOAD, 5000, ("Using newer context binary on old SDK",)),
    ),
    (
        "damaged-binary",
        "unreadable-context",
        Row("damaged-binary", LOAD, 5000, ("Metadata blob not found in buffer",)),
    ),
    (
        "mixed-libraries",
        "skel-not-found",
        Row("mixed-libraries", DEVICE, 14001, ("Stub lib id mismatch", *SKEL)),
    ),
    (
        "not-mapped",
        "pd-exhausted",
        Row("not-mapped", LOAD, 1002, ("Failed to map weights buffer to device!", NO_PD)),
    ),
    ("pd-exhausted", "no-memory", Row("pd-exhausted", LOAD, 1002, (NO_PD,))),
    (
        "skel-refused-context",
        "damaged-binary",
        Row(
            "skel-refused-context",
            LOAD,
            5005,
            ("Skel failed to process context binary.", "deserialization failed"),
        ),
    ),
    (
        "fastrpc-denied",
        "skel-not-found",
        Row("fastrpc-denied", DEVICE, 14001, ("qnn_open failed, 0xffffffff", *SKEL)),
    ),
    (
        "unknown-soc",
        "skel-not-found",
        Row("unknown-soc", DEVICE, 14001, ("No Snapdragon SOC detected", *SKEL)),
    ),
    (
        "no-fastrpc",
        "skel-not-found",
        Row("no-fastrpc", DEVICE, 4000, ('library "libcdsprpc.so" not found', *SKEL)),
    ),
    (
        "no-fastrpc",
        "invalid-config",
        Row("no-fastrpc", DEVICE, 14001, ("libcdsprpc.so: cannot open shared object file",)),
    ),
    ("skel-not-found", "invalid-config", Row("skel-not-found", DEVICE, 14001, SKEL)),
    (
        "skel-not-found",
        "op-unsupported",
        Row("skel-not-found", "QnnBackend_validateOpConfig", 3110, ("error 0x80000406",)),
    ),
    (
        "vtcm-overflow",
        "graph-prepare-failed",
        Row(
            "vtcm-overflow",
            FINALIZE,
            1002,
            ("requires 0x2400000 bytes of TCM", "RouterHexagon graph prepare failed 13"),
        ),
    ),
    (
        "graph-prepare-failed",
        "no-memory",
        Row("graph-prepare-failed", SESSION, 1002, ("could not create op: q::x",)),
    ),
    (
        "damaged-binary",
        "no-memory",
        Row("damaged-binary", LOAD, 1002, ("Invalid flatbuffer version",)),
    ),
)
