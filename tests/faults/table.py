"""The faults that the harness must survive, each injected for real, and what must come of it.

Every row is run on the simulated device and on the real adbd, in front of Debian and of Android,
unless `daemons` says otherwise. For each one nothing may hang beyond `deadline_s`, stay behind,
tear the journal or keep the next case from running.
"""

from dataclasses import dataclass

SIMULATED, REAL, ANDROID, SSH = "simulated", "real", "android", "ssh"
BOTH = (SIMULATED, REAL)
ALL = (*BOTH, ANDROID)
ANDROID_TAKES = 3
"""How many times as long it may take there, where arm64 programs run under qemu."""


@dataclass(frozen=True)
class Fault:
    """One row: its name, and the outcome and cause that must result.

    `said` is a regular expression found in what the user is told.
    """

    name: str
    outcome: str
    cause: str | None
    deadline_s: float
    said: str = ""
    daemons: tuple[str, ...] = ALL

    def __str__(self) -> str:
        return self.name


_LATE = "not done within|no answer in time"


def _transport() -> tuple[Fault, ...]:
    """A link that closes after 1 MB, stops carrying, or carries 50 KB/s of far more."""
    rows = []
    for operation in ("push", "pull", "shell", "stat"):
        rows += [
            Fault(f"{operation}_cut", "error", "infra", 5),
            Fault(f"{operation}_stalled", "error", "infra", 0.8, _LATE),
        ]
        if operation == "stat":
            rows.append(Fault("stat_slow", "passed", None, 5))
        else:
            rows.append(Fault(f"{operation}_slow", "error", "infra", 0.8, _LATE))
    return tuple(rows)


TRANSPORT = _transport()


CASES = (
    Fault("probe_sigsegv", "crashed", "target", 10, "SIGSEGV"),
    Fault("probe_killed", "crashed", "target", 10, "SIGKILL.*low-memory"),
    Fault("probe_endless_wait", "hung", "target", 6, "did not end"),
    Fault("probe_endless_loop", "hung", "target", 8, "did not end"),
    Fault("probe_stopped", "hung", "target", 8, "did not end"),
    Fault("probe_endless_output", "hung", "target", 120, "too much output"),
    Fault("probe_endless_stderr", "hung", "target", 120, "too much output"),
    Fault("probe_not_json", "error", "infra", 5, "did not start.*Hello"),
    Fault("probe_truncated_json", "error", "infra", 5, "exited in the middle of an event"),
    Fault("probe_noise_between_events", "passed", None, 5),
    Fault("answer_lost_in_attempt", "error", "infra", 5, "could not write its results"),
    Fault("probe_not_executable", "error", "infra", 5, "ermission denied"),
    Fault("probe_wrong_architecture", "error", "infra", 5, "did not start"),
    Fault("library_wrong_architecture", "failed", "target", 5, "stand_in_library"),
    Fault("storage_full_at_run", "error", "infra", 10, "No space left"),
    # a preloaded library makes it jump by a day; under qemu it would be preloaded into qemu itself
    Fault("clock_jump", "passed", None, 10, daemons=BOTH),
    Fault("link_slow", "passed", None, 20),
    Fault("link_stalled", "error", "infra", 20, "may still run"),
    Fault("device_gone_before", "error", "infra", 5),
    Fault("device_gone_during", "error", "infra", 5),
    Fault("device_gone_after", "passed", None, 5),
    Fault("reboot", "error", "infra", 5),
    # paths on a simulated device are paths of the host
    Fault("other_device", "error", "infra", 10, daemons=(REAL, ANDROID)),
    Fault("server_killed", "error", "infra", 5),
    # Debian's 29 in place of ours while the probe waits
    Fault("server_of_another_version", "error", "infra", 5),
    Fault("work_folder_removed", "error", "infra", 5, "did not start"),
    Fault("storage_full_at_push", "error", "infra", 10, "No space left on device.*needs"),
    Fault(
        "storage_read_only",
        "error",
        "infra",
        10,
        "cannot be written|cannot make folders|[Rr]ead-only",
    ),
)
"""How each is injected: `INJECT` of cases_under_fault.py."""

UNREACHABLE = (
    Fault("mute", "error", "infra", 60, "did not become ready"),
    Fault("gone", "error", "infra", 60, "did not become ready"),
    Fault("offline", "error", "infra", 30, "is offline"),
    Fault("unauthorized", "error", "infra", 30, "accept"),
    Fault("unplugged", "error", "infra", 30, "attached"),
    Fault("no_server", "error", "infra", 30, "no adb server"),
    Fault("key_refused", "error", "infra", 30, "unauthorized"),
    Fault("other_serial", "error", "infra", 30, "another device answers"),
)
"""How each is made: unreachable.py."""
