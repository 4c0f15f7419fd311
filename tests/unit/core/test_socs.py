"""The table of SoCs is consistent in itself."""

from __future__ import annotations

from harness.core.socs import HTP_ARCHS, KERNEL_SOC_IDS, SOCS


def test_known_figures() -> None:
    soc = SOCS["QCS8550"]
    assert (soc.htp_arch, soc.soc_model, soc.vtcm_mb, soc.adreno) == (73, 43, 8, "740")
    assert SOCS["QCS610"].htp_arch is None
    assert SOCS["SM8650"].soc_model == 57


def test_archs_are_those_of_the_table() -> None:
    assert HTP_ARCHS == (68, 69, 73, 75, 79, 81)


def test_the_kernels_numbers_are_of_socs_that_are_known() -> None:
    assert set(KERNEL_SOC_IDS) <= set(SOCS)
    assert KERNEL_SOC_IDS["SM8650"] == 557
    assert len(set(KERNEL_SOC_IDS.values())) == len(KERNEL_SOC_IDS)


def test_names_are_the_keys() -> None:
    assert all(name == soc.name for name, soc in SOCS.items())
    assert len(SOCS) == 22
