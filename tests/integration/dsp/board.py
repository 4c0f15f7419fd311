"""The real arm64 libraries under qemu over our libcdsprpc.so, and the real skel behind it."""

import contextlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.core.state_folders import BOARDS, cache_root
from harness.dsp.emulator import FASTRPC, build_fastrpc
from harness.dsp.replies import DspReply, read_replies
from harness.dsp.simulated_dsp import DspLimits, DspPrograms, dsp_environment, lay_out_dsp
from harness.models.session_plan import Context, Libraries, within_session
from harness.probe.build import ProbeBuilder
from harness.probe.ort_plan import io_bind, io_release, io_run
from harness.probe.plan import Plan, Settings, Step, context_free, context_load
from harness.probe.plan_runner import ProbeRun
from harness.simulator.board import find_tools, soc_files
from tests.stand_in.events import parse_transcript

TIMEOUT_S: Final = 300


@dataclass(frozen=True)
class Outcome:
    """The outcome of one process of the probe, and the replies of our DSP to it."""

    run: ProbeRun
    said: tuple[DspReply, ...]

    def codes(self, verb: str) -> list[int | None]:
        """The codes of all steps of a verb."""
        return [step.code for step in self.run.transcript.steps if step.verb == verb]

    def logs(self) -> str:
        """The lines that the libraries logged at error or warn."""
        return "\n".join(
            line.text
            for step in self.run.transcript.steps
            for line in step.logs
            if line.level in ("error", "warn")
        )


class DspBoard:
    """A board, a QCS8550 (v73) unless told, with real libraries and a DSP of these limits.

    Without programs it has no DSP: FastRPC answers by a script alone.
    """

    def __init__(
        self,
        libraries: Iterable[Path],
        folder: Path,
        programs: DspPrograms | None,
        limits: DspLimits | None = None,
        soc: tuple[str, int] = ("QCS8550", 603),
    ) -> None:
        """Lays it out in an empty folder; `soc` is its name and the kernel's number for it."""
        tools = find_tools()
        self.qemu, self.root, self.libs = tools.qemu, folder / "root", folder / "libs"
        self.dsp = folder / "dsp"
        self.libs.mkdir(parents=True)
        for library in libraries:
            (self.libs / library.name).symlink_to(library)
        (self.libs / FASTRPC).symlink_to(build_fastrpc(tools.cross, cache_root() / BOARDS))
        for path, text in soc_files(*soc).items():
            shown = self.root / path.lstrip("/")
            shown.parent.mkdir(parents=True, exist_ok=True)
            shown.write_text(text)
        (self.root / "lib").symlink_to(tools.libraries)
        if programs is not None:
            lay_out_dsp(self.dsp, programs, limits or DspLimits())
        self.probe = ProbeBuilder(cache_root() / "probe").build("linux-arm64")

    def start(self, plan: Plan, script: str = "") -> subprocess.Popen[bytes]:
        """The probe, which reads the plan from its stdin."""
        command = [self.qemu, "-L", self.root, "-E", f"LD_LIBRARY_PATH={self.libs}", self.probe]
        environment = {"QNN_SCRIPTED_RPC": script} if script else {}
        if self.dsp.exists():
            environment |= dsp_environment(self.dsp) | {"ADSP_LIBRARY_PATH": str(self.libs)}
        return subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | environment,
        )

    def plan(
        self,
        steps: Sequence[Step] = (),
        frees: Sequence[Step] = (),
        settings: Settings = Settings(),  # noqa: B008 - it is frozen
    ) -> Plan:
        libraries = Libraries(
            backend=str(self.libs / "libQnnHtp.so"), system=str(self.libs / "libQnnSystem.so")
        )
        return within_session(libraries, steps, frees, settings)

    def run(
        self,
        steps: Sequence[Step] = (),
        frees: Sequence[Step] = (),
        script: str = "",
        timeout_s: float = TIMEOUT_S,
        settings: Settings = Settings(),  # noqa: B008 - it is frozen
    ) -> Outcome:
        """Run the probe; return its outcome, also where it had to be ended."""
        plan = self.plan(steps, frees, settings)
        process, late = self.start(plan, script), False
        try:
            output, errors = process.communicate(plan.text().encode(), timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            late = True
            output, errors = process.communicate()
        finally:
            process.kill()
            process.wait()
        code = process.returncode
        run = ProbeRun(
            plan=plan,
            transcript=parse_transcript(output),
            exit_code=None if code < 0 else code,
            signal=-code if code < 0 else None,
            timed_out=late,
            truncated=False,
            raw_events=output,
            stderr=errors,
            duration_s=0.0,
        )
        return Outcome(run, read_replies(self.dsp))


def loads(contexts: Sequence[Context]) -> list[Step]:
    return [context_load(index, str(context.path)) for index, context in enumerate(contexts)]


def frees(count: int) -> list[Step]:
    return [context_free(number) for number in range(count)]


def executes(number: int, context: Context, memory: str) -> list[Step]:
    """Executes a context that is loaded, and compares."""
    files = {"inputs": map(str, context.inputs), "expected": map(str, context.expected)}
    return [
        io_bind(number, memory, **files),  # type: ignore[arg-type]
        io_run(number, tolerance=context.tolerance),
        io_release(number),
    ]


def processes_of(folder: Path) -> Iterator[int]:
    """Ids of processes that name the folder, or have a file of it open."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            named = str(folder).encode() in (entry / "cmdline").read_bytes()
            files = [os.readlink(item) for item in (entry / "fd").iterdir()]
            if named or any(file.startswith(str(folder)) for file in files):
                yield int(entry.name)
