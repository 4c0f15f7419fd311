"""What lies between a program on a device and its DSP and GPU: one function for each (pure)."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from harness.doctor.device_script import UNSIGNED_SHELL
from harness.doctor.patient import Patient, listed
from harness.lab.checks import Check
from harness.qnn.backends import RPC_LIBRARY

_DSP_NODES: Final = ("adsprpc-smd", "fastrpc-cdsp")
_ONE_HTP_NODE: Final = "HTP needs /dev/adsprpc-smd or /dev/fastrpc-cdsp"


def dsp_nodes(patient: Patient) -> Check:
    """Whether the shell user may open what leads to the DSP."""
    if patient.no_dsp is not None:
        return patient.check("DSP nodes", "not-applicable", patient.no_dsp)
    nodes = {
        name: how for name, how in patient.answers.nodes.items() if name.startswith(_DSP_NODES)
    }
    shown = listed([f"{name} ({how or 'no access'})" for name, how in sorted(nodes.items())])
    if any("r" in how for how in nodes.values()):
        return patient.check("DSP nodes", "ok", shown)
    if nodes:
        owners = "; ".join(patient.answers.owners)
        return patient.check(
            "DSP nodes",
            "fail",
            f"no permission: {shown}" + (f" [{owners}]" if owners else ""),
            "let the shell user open them: `adb root`, its group, or a udev rule of the board",
        )
    others = listed(sorted(patient.answers.nodes)) or "no fastrpc node in /dev"
    advice = f"{_ONE_HTP_NODE}: a kernel with the fastrpc driver and its device tree node"
    return patient.check("DSP nodes", "fail", others, advice)


def dsp_processor(patient: Patient) -> Check:
    """Whether the processor that runs HTP code is up."""
    states = {n: s for n, s in patient.answers.vitals.remoteprocs.items() if "cdsp" in n}
    if patient.no_dsp is not None:
        return patient.check("DSP processor", "not-applicable", patient.no_dsp)
    if not states:
        return patient.check("DSP processor", "unknown", "the kernel does not show it to us")
    shown = listed([f"{name}: {state}" for name, state in states.items()])
    if "dsp-down" in patient.findings:
        advice = "reboot it; if it stays down, its firmware (cdsp.mbn) does not load: see dmesg"
        return patient.check("DSP processor", "fail", shown, advice)
    return patient.check("DSP processor", "ok", shown)


def rpc_library(patient: Patient) -> Check:
    """Where the library is that stubs reach the DSP with."""
    if patient.no_dsp is not None:
        return patient.check(RPC_LIBRARY, "not-applicable", patient.no_dsp)
    found = patient.answers.rpc_libraries
    readable = [path for path, how in found.items() if "r" in how]
    if readable:
        return patient.check(RPC_LIBRARY, "ok", listed(readable))
    if found:
        advice = "without it the stub cannot be loaded: make it readable for the shell user"
        return patient.check(RPC_LIBRARY, "fail", f"no permission: {listed(list(found))}", advice)
    where = ", ".join(patient.platform.library_folders)
    install = "" if patient.platform.libc == "bionic" else " (github.com/qualcomm/fastrpc has it)"
    advice = f"HTP cannot be reached without it: the vendor's image lacks it{install}"
    return patient.check(RPC_LIBRARY, "fail", f"not in {where}", advice)


def process_domain(patient: Patient) -> Check:
    """Whether the DSP takes code that is not signed.

    An unsigned process runs inside fastrpc_shell_unsigned_3, which the device's image brings; that
    it is there and can be read is as much as can be told without a process on the DSP.
    """
    name, answers = "unsigned PD", patient.answers
    if patient.no_dsp is not None:
        return patient.check(name, "not-applicable", patient.no_dsp)
    unsigned = {p: h for p, h in answers.shells.items() if p.endswith(UNSIGNED_SHELL)}
    readable = [path for path, how in unsigned.items() if "r" in how]
    if readable:
        return patient.check(name, "ok", f"can be started: {listed(readable)}")
    if unsigned:
        advice = "the smoke inference tells; SELinux or its mode keeps the shell from reading it"
        return patient.check(name, "unknown", f"no permission: {listed(list(unsigned))}", advice)
    if answers.shells:
        advice = "the DSP may take signed code only (testsig): see the QAIRT docs, signing"
        return patient.check(name, "warn", f"only {listed(list(answers.shells))}", advice)
    return patient.check(name, "unknown", f"no {UNSIGNED_SHELL} where the shell user may look")


def firmware_skels(patient: Patient) -> Check:
    """Skels of the device's image, which a wrong search order would take instead of ours."""
    if patient.no_dsp is not None:
        return patient.check("firmware's skels", "not-applicable", patient.no_dsp)
    skels = list(patient.answers.skels)
    if not skels:
        return patient.check("firmware's skels", "ok", "none: only deployed ones can be loaded")
    found = f"{listed(skels)}: deployed ones stand before them in ADSP_LIBRARY_PATH"
    return patient.check("firmware's skels", "ok", found)


def opencl(patient: Patient) -> Check:
    """The driver that the GPU backend opens."""
    if patient.no_dsp is not None:
        return patient.check("OpenCL driver", "not-applicable", patient.no_dsp)
    readable = [path for path, how in patient.answers.opencl.items() if "r" in how]
    drivers = [path for path in readable if ".so" in PurePosixPath(path).name]
    if drivers:
        return patient.check("OpenCL driver", "ok", listed(readable))
    found = listed(readable) or "none in the usual places"
    advice = "the GPU backend will end with 1006: install the vendor's Adreno OpenCL driver"
    return patient.check("OpenCL driver", "warn", found, advice)
