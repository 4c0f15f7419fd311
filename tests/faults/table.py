"""The faults that the harness must survive, each injected for real, and what must come of it.

Every row is run on the simulated device and on the real adbd, in front of Debian and of Android,
unless `daemons` says otherwise. For each one nothing may hang beyond `deadline_s`, stay behind,
tear the journal or keep the next case from running.
"""

from __future__ import annotations

from dataclasses import dataclass

SIMULATED, REAL, ANDROID, SSH = "simulated", "real", "android", "ssh"
BOTH = (SIMULATED, REAL)
ALL = (*BOTH, ANDROID)
ANDROID_TAKES = 3
"""How many times as long it may take there, where arm64 programs run under qemu."""


@dataclass(frozen=True)
class Fault:
    """One row: its name, how it is injected, where, and the outcome and cause that must result.

    `said` is a regular expression found in what the user is told.
    """

    name: str
    how: str
    where: str
    outcome: str
    cause: str | None
    deadline_s: float
    said: str = ""
    daemons: tuple[str, ...] = ALL

    def __str__(self) -> str:
        return self.name


_LATE = "not done within|no answer in time"


def _transport() -> tuple[Fault, ...]:
    cut = "a relay between adb server and daemon closes the connection after 1 MB, or while it runs"
    stalled = "the relay stops carrying after 1 MB, or while it runs, and keeps the connection up"
    slow = "the relay carries 50 KB/s, and far more is wanted than fits the deadline"
    rows = []
    for operation in ("push", "pull", "shell", "stat"):
        place = f"AdbDevice.{operation}"
        rows += [
            Fault(f"{operation}_cut", cut, place, "error", "infra", 5),
            Fault(f"{operation}_stalled", stalled, place, "error", "infra", 0.8, _LATE),
        ]
        if operation == "stat":
            rows.append(Fault("stat_slow", slow, place, "passed", None, 5))
        else:
            rows.append(Fault(f"{operation}_slow", slow, place, "error", "infra", 0.8, _LATE))
    return tuple(rows)


TRANSPORT = _transport()


CASES = (
    Fault("probe_sigsegv", "plan: crash signal=11", "probe", "crashed", "target", 10, "SIGSEGV"),
    Fault("probe_abort", "plan: crash signal=6", "probe", "crashed", "target", 10, "SIGABRT"),
    Fault(
        "probe_killed",
        "kill -9 from outside, as the low-memory killer does",
        "probe",
        "crashed",
        "target",
        10,
        "SIGKILL.*low-memory",
    ),
    Fault("probe_endless_wait", "plan: hang", "probe", "hung", "target", 6, "did not end"),
    Fault(
        "probe_endless_loop",
        "a stand-in that begins a step and spins, deaf to SIGTERM",
        "probe",
        "hung",
        "target",
        8,
        "did not end",
    ),
    Fault("probe_stopped", "SIGSTOP to the probe", "probe", "hung", "target", 8, "did not end"),
    Fault(
        "probe_endless_output",
        "a stand-in that begins a step and writes without end",
        "probe",
        "hung",
        "target",
        120,
        "wrote without end",
    ),
    Fault(
        "probe_endless_stderr",
        "plan: spew 10^12 bytes to stderr",
        "probe",
        "hung",
        "target",
        120,
        "wrote without end",
    ),
    Fault(
        "probe_not_json",
        "a stand-in that prints a greeting and ends well",
        "probe",
        "error",
        "infra",
        5,
        "did not start.*Hello",
    ),
    Fault(
        "probe_truncated_json",
        "a stand-in that ends in the middle of an event",
        "probe",
        "error",
        "infra",
        5,
        "ended by itself, and within an event",
    ),
    Fault(
        "probe_binary_garbage",
        "a stand-in that prints 1 MB from /dev/urandom",
        "probe",
        "error",
        "infra",
        5,
        "did not start",
    ),
    Fault(
        "probe_noise_between_events",
        "plan: spew binary noise into the events, which stay readable",
        "probe",
        "passed",
        None,
        5,
    ),
    Fault(
        "answer_lost_in_attempt",
        "a stand-in that cannot print its answer, which the test would take for the target's",
        "probe",
        "error",
        "infra",
        5,
        "could not write its results",
    ),
    Fault(
        "probe_not_executable",
        "a probe without permission to be executed",
        "device",
        "error",
        "infra",
        5,
        "ermission denied",
    ),
    Fault(
        "probe_wrong_architecture",
        "a probe whose ELF header names a CPU that this is not",
        "device",
        "error",
        "infra",
        5,
        "did not start",
    ),
    Fault(
        "library_wrong_architecture",
        "a backend library whose ELF header names a CPU that this is not",
        "device",
        "failed",
        "target",
        5,
        "stand_in_library",
    ),
    Fault(
        "library_missing",
        "a backend library that somebody removed",
        "device",
        "failed",
        "target",
        5,
        "No such file|not found",
    ),
    Fault(
        "storage_full_at_run",
        "a process fills the storage, then the probe saves an output",
        "device",
        "error",
        "infra",
        10,
        "No space left",
    ),
    Fault(
        "clock_jump",
        "a preloaded stand-in makes the clock jump by a day, there and back, at every look",
        "device",
        "passed",
        None,
        10,
        daemons=BOTH,  # under qemu it would be preloaded into qemu itself
    ),
    Fault(
        "leftover_holds_file",
        "a process of nobody's runs the probe of the store and sits in its folder",
        "device",
        "passed",
        None,
        10,
    ),
    Fault("link_slow", "the relay carries 50 KB/s", "link", "passed", None, 20),
    Fault(
        "link_stalled",
        "the relay stops carrying while the probe waits",
        "link",
        "error",
        "infra",
        20,
        "may still run",
    ),
    Fault(
        "device_gone_before",
        "the relay refuses, before the case begins",
        "link",
        "error",
        "infra",
        5,
    ),
    Fault(
        "device_gone_during",
        "the relay cuts and refuses while the probe waits",
        "link",
        "error",
        "infra",
        5,
    ),
    Fault(
        "device_gone_after",
        "the relay cuts and refuses in the case's teardown",
        "link",
        "passed",
        None,
        5,
    ),
    Fault(
        "reboot",
        "the daemon ends with all it runs while the probe waits, and comes back",
        "device",
        "error",
        "infra",
        5,
    ),
    Fault(
        "other_device",
        "another device answers at the address, one that was never prepared",
        "device",
        "error",
        "infra",
        10,
        daemons=(REAL, ANDROID),
    ),
    Fault(
        "other_device_alike",
        "another device answers at the address, prepared just like the right one",
        "device",
        "error",
        "infra",
        10,
        "another device answers",
    ),
    Fault(
        "server_killed",
        "SIGKILL to the adb server while the probe waits; its keeper starts it again",
        "adb server",
        "error",
        "infra",
        5,
    ),
    Fault(
        "server_of_another_version",
        "the adb server is replaced by Debian's 29 while the probe waits",
        "adb server",
        "error",
        "infra",
        5,
    ),
    Fault(
        "work_folder_removed",
        "rm -rf of the work folder between preparation and case",
        "device",
        "error",
        "infra",
        5,
        "did not start",
    ),
    Fault(
        "storage_full_at_push",
        "a device with 30 MB of storage",
        "device",
        "error",
        "infra",
        10,
        "No space left on device.*needs",
    ),
    Fault(
        "storage_read_only",
        "a device whose /data is mounted read-only",
        "device",
        "error",
        "infra",
        10,
        "cannot be written|cannot make folders|[Rr]ead-only",
    ),
)

UNREACHABLE = (
    Fault(
        "mute",
        "a mock daemon that takes the connection and never answers",
        "adb connect",
        "error",
        "infra",
        60,
        "did not become ready",
    ),
    Fault("gone", "nobody listens", "adb connect", "error", "infra", 60, "did not become ready"),
    Fault(
        "hangs_up",
        "a mock daemon that closes every connection",
        "adb connect",
        "error",
        "infra",
        60,
        "did not become ready",
    ),
    Fault("offline", "a mock server says so", "adb server", "error", "infra", 30, "is offline"),
    Fault("unauthorized", "a mock server says so", "adb server", "error", "infra", 30, "accept"),
    Fault("unplugged", "not on the server's list", "adb server", "error", "infra", 30, "attached"),
    Fault("no_server", "nobody listens", "adb server", "error", "infra", 30, "no adb server"),
    Fault(
        "key_refused",
        "a simulated device that knows another key",
        "adb connect",
        "error",
        "infra",
        30,
        "unauthorized",
    ),
    Fault(
        "other_serial",
        "a mock server leads to a simulated device that calls itself by another serial",
        "lab",
        "error",
        "infra",
        30,
        "another device answers",
    ),
)
