"""Errors that mean "unsupported", and the same errors as failures."""

from dataclasses import replace
from typing import Any

import pytest

from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.verdict import (
    UNSUPPORTED,
    UnsupportedRule,
    Verdict,
    is_unsupported,
    lacking_processor,
)
from harness.lab.facts import Coprocessors

NOTHING = Coprocessors()
PHONE = Coprocessors(
    ("/dev/adsprpc-smd", "/vendor/lib64/libcdsprpc.so"), ("/dev/kgsl-3d0", "/vendor/lib64/x")
)
ONLY_GPU = Coprocessors(gpu=("/dev/kgsl-3d0",))
ONLY_DSP = Coprocessors(dsp=("/vendor/lib64/libcdsprpc.so",))

NO_SOC = ("QnnLog_create", 4000, "No Snapdragon SOC detected\nFailed to init router")
SKEL = ("QnnDevice_create", 14001, "Failed to load skel, error: 4000\nsetup failed: 14001")
SKEL_LATER = ("QnnContext_createFromBinary", *SKEL[1:])
OPENCL = ("QnnBackend_create", 1006, "GPU ERROR: (10006) - Invalid OpenCL driver path")
OPENCL_ORT = ("CreateSession", *OPENCL[1:])
NO_NPU = ("GetEpDevices", None, "the plug-in offers no device of QNNExecutionProvider")
MEM = ("QnnMem_register", 1000, "QnnMem API is not supported")


GROUP = (
    "QnnContext_createFromBinary",
    5010,
    "HTP Config option: 2 not supported\nSetting config Failed with err 0x1392",
)
LIST = ("QnnContext_createFromBinaryListAsync", 1000, "Backend does not support it")
ORT_LIST = ("CreateSession", 1000, "Backend does not support QnnContext_createFromBinaryListAsync")
HINT = ("QnnContext_createFromBinary", 1000, "Memory Limit Hint is not supported\nUnable to set")
UDMA = ("CreateSession", 6007, "extended UDMA which is only available for DSP architectures >= 81")
PROPERTY = ("QnnContext_getProperty", 1000, "")
TUNING = "TuningMode must be enabled on x86_64-linux-clang platforms"

ROWS = [
    (NO_SOC, NOTHING, True),
    (NO_SOC, ONLY_GPU, True),
    (NO_SOC, ONLY_DSP, False),
    (NO_SOC, PHONE, False),
    (NO_SOC, None, False),
    (SKEL, NOTHING, True),
    (SKEL_LATER, NOTHING, True),
    (("CreateSession", *SKEL[1:]), NOTHING, True),
    (("CreateSession", *SKEL[1:]), PHONE, False),
    (("CreateSession", *NO_SOC[1:]), NOTHING, True),
    (SKEL, PHONE, False),
    (SKEL, ONLY_DSP, False),
    (SKEL, None, False),
    # another 14001 is a configuration that is wrong, DSP or not
    (("QnnDevice_create", 14001, "unknown custom config socModel 0"), NOTHING, False),
    (("QnnGraph_execute", 14001, SKEL[2]), NOTHING, False),
    (OPENCL, NOTHING, True),
    (OPENCL, ONLY_DSP, True),
    (OPENCL, ONLY_GPU, False),
    (OPENCL, PHONE, False),
    (OPENCL, None, False),
    (OPENCL_ORT, NOTHING, True),
    (("QnnBackend_create", 1006, "something else"), NOTHING, False),
    (NO_NPU, NOTHING, True),
    (NO_NPU, PHONE, False),
    (NO_NPU, None, False),
    (("GetEpDevices", None, "something else"), NOTHING, False),
    (("CreateSession", None, NO_NPU[2]), NOTHING, False),
    (MEM, PHONE, True),
    (MEM, None, True),
    (("QnnTensor_create", 1000, "QnnMem API is not supported"), PHONE, False),
    (PROPERTY, PHONE, True),
    (GROUP, PHONE, True),
    (("QnnContext_createFromBinary", 5010, "another option"), PHONE, False),
    (("CreateSession", *GROUP[1:]), PHONE, True),
    (("CreateSession", 5010, "HTP Config option: 17 not supported"), PHONE, True),
    (HINT, PHONE, True),
    (("CreateSession", *HINT[1:]), PHONE, True),
    (("QnnContext_createFromBinary", 1000, "the binary is not supported"), PHONE, False),
    (("QnnContext_create", *HINT[1:]), PHONE, False),
    (UDMA, PHONE, True),
    (("CreateSession", 6007, "something else"), PHONE, False),
    (("QnnGraph_finalize", *UDMA[1:]), PHONE, False),
    (("QnnContext_create", *GROUP[1:]), PHONE, False),
    (LIST, PHONE, True),
    (ORT_LIST, PHONE, True),
    (("CreateSession", 1000, "something else"), PHONE, False),
    (("QnnContext_create", *ORT_LIST[1:]), PHONE, False),
    (("QnnBackend_create", 4000, TUNING), PHONE, True),
    (("CreateSession", 4000, TUNING), PHONE, True),
    (("QnnBackend_create", 4000, "something else"), PHONE, False),
    (("QnnDevice_create", 4000, TUNING), PHONE, False),
    # the same words of a call that comes later are a failure of what had been set up
    (("QnnGraph_execute", 4000, NO_SOC[2]), NOTHING, False),
    (("QnnLog_create", 4000, "something else"), NOTHING, False),
    (("QnnGraph_execute", 1006, OPENCL[2]), NOTHING, False),
    # of a call that nobody named, nothing is known
    ((None, *MEM[1:]), PHONE, False),
]


@pytest.mark.parametrize(("answer", "shown", "expected"), ROWS)
def test_words_count_by_what_the_device_shows(
    answer: tuple[str | None, int | None, str], shown: Coprocessors | None, expected: bool
) -> None:
    api, code, message = answer
    error = ErrorRecord.of(api=api, code=code, message=message)
    assert is_unsupported(error, shown) is expected


@pytest.mark.parametrize(
    ("answer", "shown", "lacks"),
    [
        (NO_SOC, NOTHING, "dsp"),
        (SKEL, NOTHING, "dsp"),
        (NO_NPU, NOTHING, "dsp"),
        (OPENCL, ONLY_DSP, "gpu"),
        (OPENCL, PHONE, None),
        # another model, or options of its own, could end otherwise
        (SKEL_LATER, NOTHING, None),
        (OPENCL_ORT, NOTHING, None),
        (("QnnBackend_create", 4000, TUNING), NOTHING, None),
        (MEM, NOTHING, None),
    ],
)
def test_a_missing_processor_ends_all_cases_alike(
    answer: tuple[str | None, int | None, str], shown: Coprocessors, lacks: str | None
) -> None:
    api, code, message = answer
    error = ErrorRecord.of(api=api, code=code, message=message)
    assert lacking_processor(Verdict("unsupported", None, error), shown) == lacks
    assert lacking_processor(Verdict("failed", "target", error), shown) is None


def wrong_rows(rules: tuple[UnsupportedRule, ...]) -> int:
    """Count the rows that another table gets wrong."""
    return sum(
        is_unsupported(ErrorRecord.of(api=api, code=code, message=message), shown, rules)
        is not expected
        for (api, code, message), shown, expected in ROWS
    )


NAMES = [f"{rule.code}-{rule.api}" for rule in UNSUPPORTED]
LOOSE = {"api": ".*", "text": "", "lacks": None}
CONDITIONS = [
    (index, name)
    for index, rule in enumerate(UNSUPPORTED)
    for name, loose in LOOSE.items()
    if getattr(rule, name) != loose
]


@pytest.mark.parametrize("index", range(len(UNSUPPORTED)), ids=NAMES)
def test_without_a_rule_a_row_fails(index: int) -> None:
    assert wrong_rows(UNSUPPORTED[:index] + UNSUPPORTED[index + 1 :])


@pytest.mark.parametrize(("index", "name"), CONDITIONS)
def test_without_a_condition_a_row_fails(index: int, name: str) -> None:
    loose: dict[str, Any] = {name: LOOSE[name]}
    rule = replace(UNSUPPORTED[index], **loose)
    assert wrong_rows((*UNSUPPORTED[:index], rule, *UNSUPPORTED[index + 1 :]))
