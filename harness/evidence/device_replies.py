"""Parsers of a device's answers about a case: facts for a summary, texts for files (pure).

Nothing here raises: logs come from a device, and any program may write to them.
"""

from __future__ import annotations

import contextlib
import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from harness.evidence.redaction import EvidenceFile, clean, whole_lines
from harness.transport.device_queries import Section, shell_text
from harness.transport.shell_protocol import TOKEN_VARIABLE

_NPU_TAGS: Final = re.compile(
    r"adsprpc|qnn ?dsp|fastrpc|\Adebug\Z|\Alibc\Z|qnn executorch|\Aexecutorch|onnxruntime"
)
"""The tags, in lower case, of Qualcomm's DSP transport and runtime (executorch#4973,
onnxruntime#19462), of frameworks, and of bionic, whose `DEBUG` and `libc` report crashes."""

DSP_PATTERN: Final = re.compile(
    r"SSR Detected|CONN Reset|remoteproc|fastrpc|adsprpc|subsys|\bssr\b|cdsp|adsp|glink",
    re.IGNORECASE,
)
AVC_PATTERN: Final = re.compile(r"avc: +(?:denied|granted)")

_LINE: Final = re.compile(
    r"""[ ]{0,20}+(?P<time>[0-9]{2}-[0-9]{2}[ ][0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3})
    [ ]{1,8}[0-9]{1,10}[ ]{1,8}[0-9]{1,10}
    [ ][VDIWEFAS][ ](?P<tag>[^:]{0,128}?)[ ]*+:(?:[ ].*)?\Z""",
    re.VERBOSE | re.DOTALL,
)
# [12.345678], [12.345678][T123], <6>[12.345678], as `dmesg` prints them
_KERNEL: Final = re.compile(r"(?:<[0-9]{1,3}>)?\[ {0,12}([0-9]{1,10}\.[0-9]{1,9})\]")
_HALF_A_YEAR: Final = timedelta(days=180)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of logcat in the format `threadtime`; `moment` is in 1904, a leap year."""

    moment: datetime
    tag: str


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """The readings of a device's clocks at one moment.

    `local` is as its log prints it, `kernel_s` the clock of its kernel log, None if unknown.
    """

    local: datetime
    kernel_s: float | None = None


def parse_log_line(line: str) -> LogEntry | None:
    """Parse a log line; None for other lines (a continuation, `--------- beginning of main`)."""
    match = _LINE.match(line)
    with contextlib.suppress(ValueError):
        if match is not None:
            moment = datetime.strptime(f"1904-{match['time']}", "%Y-%m-%d %H:%M:%S.%f")
            return LogEntry(moment, match["tag"])
    return None


def age_s(entry: LogEntry, now: DeviceClock) -> float:
    """Return the age of an entry in seconds before `now`; negative if it is newer."""
    # a line of December may be read in January, and one written meanwhile the other way round
    ages = []
    for year in (now.local.year - 1, now.local.year, now.local.year + 1):
        with contextlib.suppress(ValueError):  # the 29th of February, or no year at all
            ages.append((now.local - entry.moment.replace(year=year)).total_seconds())
    return min((age for age in ages if age > -_HALF_A_YEAR.total_seconds()), default=-1.0)


def window(text: str, now: DeviceClock, last_s: float) -> tuple[str, int]:
    """Return the lines of a log that are at most `last_s` seconds old, and the number of others.

    A line without a time belongs to the one before it.
    """

    def young(line: str) -> bool | None:
        entry = parse_log_line(line)
        return None if entry is None else age_s(entry, now) <= last_s

    return _part(text, young)


def kernel_window(text: str, since_s: float | None) -> tuple[str, int]:
    """Return the lines of a kernel log since a time of its own clock, and the number of others."""
    if since_s is None:
        return text, 0

    def late(line: str) -> bool | None:
        match = _KERNEL.match(line)
        return None if match is None else float(match[1]) >= since_s

    return _part(text, late)


def _part(text: str, is_inside: Callable[[str], bool | None]) -> tuple[str, int]:
    """Return the lines that are inside, and the number of others; None: as the line before."""
    selected: list[str] = []
    inside = True
    lines = text.split("\n")
    for line in lines:
        verdict = is_inside(line)
        inside = inside if verdict is None else verdict
        if inside:
            selected.append(line)
    return "\n".join(selected), len(lines) - len(selected)


def npu_lines(text: str) -> str:
    """Return the lines of a log that are of the NPU's runtime, or about a crash."""
    selected, inside = [], False
    for line in text.split("\n"):
        if (entry := parse_log_line(line)) is not None:
            inside = _NPU_TAGS.search(entry.tag.lower()) is not None
        if inside and line:
            selected.append(f"{line}\n")
    return "".join(selected)


def matching(texts: Mapping[str, str], pattern: re.Pattern[str]) -> str:
    """Return the lines that match a pattern, each with the name of its text."""
    lines = [
        f"{name}: {line}\n"
        for name, text in texts.items()
        for line in text.split("\n")
        if pattern.search(line)
    ]
    return "".join(lines)


def table(text: str) -> dict[str, str]:
    """Parse lines of `name=value`; the last one of a name wins."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value.strip() for name, _, value in pairs}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Describe the differences between two tables."""
    return [
        f"{name}: {before.get(name, 'not there')} -> {after.get(name, 'not there')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


DEVICE_READ_BYTES: Final = 16 << 20
"""The end of a log in which the device searches for the last part."""

MAX_LINES: Final = 20_000
NO_STACK: Final = "no-native-stack"
"""The end of the section `stack` if no debugger printed one."""

JUMP_S: Final = 5
"""A device's clock that changed by this many seconds has jumped."""

_COARSE: Final = "adsprpc|qnn|fastrpc|DEBUG|libc|executorch|onnxruntime|SSR|CONN Reset|avc: "


def state_script(token: str) -> str:
    """Return the script that asks for the clocks and the state of the DSPs."""
    return _script("state", k=token)


def collect_script(
    token: str, *, last_s: int, boot_epoch_s: int | None, file_bytes: int, tombstones: int
) -> str:
    """Return the script that asks for the logs and dumps of the last `last_s` seconds.

    `boot_epoch_s` is the time of the device's boot by its own clock, from an earlier answer. If it
    has changed, times in logs are useless, and their last part is taken instead.
    """
    return _script(
        "collect",
        k=token,
        last_s=last_s,
        boot_s="" if boot_epoch_s is None else boot_epoch_s,
        jump_s=JUMP_S,
        max_lines=MAX_LINES,
        read_bytes=DEVICE_READ_BYTES,
        most=file_bytes + 1,  # so that a cut is detected
        coarse=_COARSE,
        dumps=tombstones,
    )


def look_script(token: str, pid: int, *, file_bytes: int, seconds: float) -> str:
    """Return the script that inspects a hung process, with its native stack if there is a debugger,
    and ends it.

    Only a process that was started by the harness is inspected, since pids are reused.
    """
    return _script(
        "look",
        k=token,
        p=pid,
        seconds=max(1, int(seconds)),
        variable=TOKEN_VARIABLE,
        most=file_bytes + 1,
        no_stack=NO_STACK,
    )


def _script(name: str, **variables: str | int) -> str:
    assignments = "".join(f"{key}={shlex.quote(str(value))};" for key, value in variables.items())
    texts = (shell_text("evidence", f"device/{part}") for part in ("prelude", name))
    text = re.sub(r" # .*|\\\n", "", "".join(texts))
    return assignments + re.sub(r"(\{|\bdo)?\n", lambda end: f"{end[1]} " if end[1] else ";", text)


MARGIN_S: Final = 2
"""The seconds by which a case's window begins early: some clocks count whole seconds."""

_TAILS: Final = ("logcat", "tags", "dmesg")


@dataclass(frozen=True)
class Baseline:
    """The state of a device before anything went wrong.

    `boot_epoch_s` is its clock minus its uptime, `dsps` the state of its remote processors.
    """

    boot_id: str
    boot_epoch_s: int
    dsps: Mapping[str, str]


class Report:
    """Facts and files made of the sections of a device's answers.

    `last_s` is the length of the case's window in seconds; a section longer than `file_bytes` was
    cut on the device. `note` is called for each missing part, with the reason.
    """

    def __init__(
        self, note: Callable[[str], None], baseline: Baseline | None, last_s: int, file_bytes: int
    ) -> None:
        self.facts: dict[str, object] = {"window_s": last_s}
        self._note = note
        self._baseline = baseline
        self._last_s = last_s
        self._file_bytes = file_bytes
        self._texts: dict[str, str] = {}
        self._cut: set[str] = set()
        self._process: dict[str, str] = {}

    def read(self, sections: Mapping[str, Section]) -> None:
        """Read the answer to `collect_script`."""
        texts = self._texts
        for name, section in sections.items():
            if not section.whole:
                self._note(f"{name}: the answer is incomplete")
            content = section.content
            if name in _TAILS and len(content) > self._file_bytes:
                self._cut.add(name)
                content = whole_lines(content)
            texts[name] = clean(content)
        values = table(texts.get("clock", ""))
        clock = _clock(values)
        jumped = clock is None or "jump_s" in values
        if jumped:
            self._note(
                "the device's clock is unknown or jumped; logs may include lines from other cases"
            )
        self.facts |= {"device_clock": values.get("epoch_s"), "clock_jump_s": values.get("jump_s")}
        self._compare(sections, values)
        self._check_tools()
        for name in ("logcat", "tags"):
            if clock is not None and not jumped and name in texts:
                texts[name], left_out = window(texts[name], clock, self._last_s)
                if left_out:  # then the window is complete
                    self._cut.discard(name)
        if "dmesg" in texts:
            texts["dmesg"] = self._dmesg(texts["dmesg"], clock)
        if "denied" in texts.get("tombstones", ""):
            self._note(f"no tombstones: {texts['tombstones'].strip().splitlines()[0]}")

    def read_process(self, pid: int, sections: Mapping[str, Section]) -> None:
        """Read the answer to `look_script`; without sections, there was none."""
        self._process = {name: clean(section.content) for name, section in sections.items()}
        self.facts["hung_process"] = pid
        stack = self._process.get("stack", "").strip()
        refused = stack.removesuffix(NO_STACK).strip()
        if sections and not refused:
            self._note("no native stack: no debugger on the device, or it took too long")
        elif refused != stack:
            self._note(f"no native stack: {refused.splitlines()[0]}")
        self._process["stack"] = refused and f"{refused}\n"

    def files(self) -> list[EvidenceFile]:
        """Return the files to keep, the most useful first: the last ones are cut first."""
        texts, process = self._texts, self._process
        dumps = {name: text for name, text in texts.items() if name.startswith("tombstone_")}
        logs = {"dmesg": texts.get("dmesg", ""), "logcat": texts.get("tags", "")}
        # a daemon that logs its commands logs the harness's own scripts
        logs = {
            name: "\n".join(line for line in text.split("\n") if TOKEN_VARIABLE not in line)
            for name, text in logs.items()
        }
        return [
            EvidenceFile("process-stack.txt", process.get("stack", "")),
            EvidenceFile("process-threads.txt", process.get("threads", "")),
            *(EvidenceFile(f"{name}.txt", text) for name, text in dumps.items()),
            self._log("logcat-npu", npu_lines(texts.get("tags", "")), "tags"),
            self._log("dsp", matching(logs, DSP_PATTERN), "tags", "dmesg"),
            self._log("avc", matching(logs, AVC_PATTERN), "tags", "dmesg"),
            self._log("dmesg", texts.get("dmesg", ""), "dmesg"),
            self._log("logcat", texts.get("logcat", ""), "logcat"),
            EvidenceFile("meminfo.txt", texts.get("meminfo", "")),
            EvidenceFile("process.txt", f"{process.get('status', '')}\n{process.get('files', '')}"),
            EvidenceFile("process-maps.txt", process.get("maps", "")),
        ]

    def _log(self, name: str, text: str, *sources: str) -> EvidenceFile:
        cut = not self._cut.isdisjoint(sources)
        return EvidenceFile(f"{name}.txt", text, keep_end=True, cut=cut)

    def _check_tools(self) -> None:
        if "tools" not in self._texts:
            return
        tools = table(self._texts["tools"])
        missing = [tool for tool in ("logcat", "dmesg", "timeout") if tool not in tools]
        if missing:
            self._note(f"not on the device: {', '.join(missing)}")
        for tool, text in (("logcat", "logcat"), ("logcat", "tags"), ("dmesg", "dmesg")):
            if tool not in tools:
                self._texts.pop(text, None)

    def _dmesg(self, text: str, clock: DeviceClock | None) -> str:
        refused = next((line for line in text.split("\n")[:3] if line.startswith("dmesg:")), None)
        if refused is not None:
            self._note(f"no kernel log: {refused}")
            return ""
        since = None if clock is None or clock.kernel_s is None else clock.kernel_s - self._last_s
        selected, left_out = kernel_window(text, since)
        if left_out:
            self._cut.discard("dmesg")
        return selected

    def _compare(self, sections: Mapping[str, Section], clock: Mapping[str, str]) -> None:
        if "dsps" in self._texts:
            self.facts["dsps"] = dsps = table(self._texts["dsps"])
            if not dsps:
                self._note("no state of remote processors: /sys does not report it")
        with contextlib.suppress(KeyError, ValueError):
            up_s = float(clock["uptime_s"])
            self.facts["uptime_s"] = up_s if math.isfinite(up_s) else None
            self.facts["rebooted"] = up_s < self._last_s - MARGIN_S
        now = baseline_of(sections)
        if self._baseline is not None and now is not None:
            rebooted = now.boot_id != self._baseline.boot_id
            self.facts["rebooted"] = bool(self.facts.get("rebooted")) or rebooted
            self.facts["dsps_changed"] = changed(self._baseline.dsps, now.dsps)
        if self.facts.get("rebooted"):
            self._note("the device booted during the case; earlier logs are lost")


def baseline_of(sections: Mapping[str, Section]) -> Baseline | None:
    """Return the baseline in an answer, None if the device did not report its clock."""
    if "clock" not in sections:
        return None
    clock = table(clean(sections["clock"].content))
    dsps = table(clean(sections["dsps"].content)) if "dsps" in sections else {}
    try:
        boot_epoch_s = int(clock["epoch_s"]) - int(float(clock["uptime_s"]))
        return Baseline(clock.get("boot_id", ""), boot_epoch_s, dsps)
    except (KeyError, ValueError, OverflowError):
        return None


def _clock(values: Mapping[str, str]) -> DeviceClock | None:
    try:
        is_known = math.isfinite(float(values["epoch_s"]))
        local = datetime.fromisoformat(values["local"])
    except (KeyError, ValueError):
        return None
    if not is_known or local.tzinfo is not None:
        return None
    kernel_s = None
    for name, scale in (("uptime_s", 1.0), ("se.exec_start", 1e-3)):
        text = next((value for key, value in values.items() if key.strip() == name), "")
        with contextlib.suppress(ValueError):
            seconds = float(text) * scale
            kernel_s = seconds if math.isfinite(seconds) else kernel_s
    return DeviceClock(local, kernel_s)
