"""Fits of contexts, runtimes and releases that no real file here has."""

from dataclasses import replace

import pytest

from harness.models.runtime_fit import FileFit, RuntimesFit, file_fit, fit_lines
from harness.runtimes.catalog import CatalogEntry
from harness.runtimes.preflight import ContextFacts, TargetFacts

CONTEXT = ContextFacts("#0", "2.49.40.260810104044", 73, 8 << 20, 1000, memory_limit_mb=2048)
PHONE = CatalogEntry("sdk:2.49.0", "sdk", "2.49.0", "android-arm64", False)
BOARD = replace(PHONE, qnn="2.50.0.260828", target="linux-arm64")
HOST = replace(BOARD, target="linux-x64")


def fit(*contexts: ContextFacts, device: TargetFacts | None = None) -> FileFit:
    return file_fit("m.pte", "pte", contexts, dict.fromkeys((PHONE, BOARD, HOST)), (), device)


def loads(*contexts: ContextFacts, soc: str | None = None) -> list[str]:
    device = TargetFacts("android-arm64", soc) if soc else None
    return [runtime.loads for runtime in fit(*contexts, device=device).runtimes]


@pytest.mark.parametrize(
    ("contexts", "expected"),
    [
        ([CONTEXT], ["refused", "loads", "loads"]),
        ([replace(CONTEXT, compiler="2.50.0.260828093000")], ["refused", "loads", "loads"]),
        ([replace(CONTEXT, compiler=None)], ["unknown"] * 3),
        ([replace(CONTEXT, htp_arch=None, compiler="2.22.0")], ["unknown", "unknown", "loads"]),
        ([replace(CONTEXT, htp_arch=None, compiler="2.22.0", backend="gpu")], ["loads"] * 3),
        # a device has one HTP
        (
            [replace(CONTEXT, compiler="2.22.0"), ContextFacts("#1", "2.22.0", 75)],
            ["unknown", "unknown", "loads"],
        ),
    ],
)
def test_runtimes_that_are_not_cached(contexts: list[ContextFacts], expected: list[str]) -> None:
    assert loads(*contexts) == expected


@pytest.mark.parametrize(
    ("soc", "expected"),
    [("SM8550", "loads"), ("SSG2115P", "refused"), ("SM8650", "unknown"), ("SM8450", "refused")],
)
def test_a_device(soc: str, expected: str) -> None:
    # its VTCM is too small; an older HTP's context may be refused; a newer one's is
    assert loads(replace(CONTEXT, compiler="2.40.0"), soc=soc) == [expected] * 3


def test_the_text() -> None:
    text = "\n".join(fit_lines(RuntimesFit(device=None, files=(fit(CONTEXT),))))
    assert "needs QNN 2.49.40.260810104044 or newer" in text
    assert "SM8550, QCS8550, SA8255, QCS9100\n" in text
    assert "2048 MiB" in text
    uncached = "refused  QNN sdk:2.49.0 (not cached: judged by version) for android-arm64: #0 was"
    assert uncached in text
    assert "unknown  the VTCM of SC8380XP" in text
    assert fit(CONTEXT, ContextFacts("#1")).least_qnn is None
    assert {each.verdict for each in fit(ContextFacts("#0")).engines} == {"unknown"}
