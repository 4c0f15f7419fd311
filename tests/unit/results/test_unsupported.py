"""When "cannot" is the truth about a target, and when it is a failure."""

from __future__ import annotations

import pytest

from harness.lab.coprocessors import Coprocessors
from harness.results.record import ErrorRecord
from harness.results.unsupported import UNSUPPORTED, is_unsupported

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
MEM = ("QnnMem_register", 1000, "QnnMem API is not supported")


@pytest.mark.parametrize(
    ("answer", "shown", "expected"),
    [
        (NO_SOC, NOTHING, True),
        (NO_SOC, ONLY_GPU, True),
        (NO_SOC, ONLY_DSP, False),
        (NO_SOC, PHONE, False),
        (NO_SOC, None, False),
        (SKEL, NOTHING, True),
        (SKEL_LATER, NOTHING, True),
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
        (("QnnBackend_create", 1006, "something else"), NOTHING, False),
        (MEM, PHONE, True),
        (MEM, None, True),
    ],
)
def test_words_count_by_what_the_device_shows(
    answer: tuple[str, int, str], shown: Coprocessors | None, expected: bool
) -> None:
    api, code, message = answer
    error = ErrorRecord.of(api=api, code=code, message=message)
    assert is_unsupported(error, shown) is expected


def test_every_rule_says_who_saw_it() -> None:
    assert all(rule.source and rule.code for rule in UNSUPPORTED)
