"""Reads what a device answered about a case: facts for a summary, texts for files (pure).

Nothing here raises: logs come from a device, and hold what any program wanted to write.
"""

from __future__ import annotations

import contextlib
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from harness.evidence.text import EvidenceFile, clean, whole_lines
from harness.transport.questions import Section, integer, shell_text
from harness.transport.shell_protocol import TOKEN_VARIABLE

TAGS: Final[Mapping[str, str]] = {
    "adsprpc": r"adsprpc",
    "QnnDsp": r"qnn ?dsp",
    "fastrpc": r"fastrpc",
    "DEBUG": r"\Adebug\Z",
    "libc": r"\Alibc\Z",
    "ExecuTorch": r"qnn executorch|\Aexecutorch",
    "onnxruntime": r"onnxruntime",
}
"""The names of the logs worth a file of their own, and what their tags look like in small letters.

They are those of Qualcomm's DSP transport and runtime (executorch#4973, onnxruntime#19462), of
ExecuTorch's delegate, and of bionic, whose `DEBUG` and `libc` report crashes.
"""

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
# [12.345678], [12.345678][T123], <6>[12.345678] as `dmesg` prints them
_KERNEL: Final = re.compile(r"(?:<[0-9]{1,3}>)?\[ {0,12}([0-9]{1,10}\.[0-9]{1,9})\]")
# a line of fdinfo, with the name of its file before it or without
_FDINFO: Final = re.compile(r"(?:\A|[:/])(pos|ino|size|exp_name):[ \t]*([0-9]{1,19}\b|[^0-9]|\Z)")
_HALF_A_YEAR: Final = timedelta(days=180)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of logcat in the format `threadtime`; `moment` is in 1904, a leap year."""

    moment: datetime
    tag: str


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """What a device's clocks said at one moment.

    `local` is as its log prints it, `kernel_s` the clock of its kernel log, None where that is not
    known.
    """

    local: datetime
    kernel_s: float | None = None


def parse_log_line(line: str) -> LogEntry | None:
    """The entry in a line, None if it is none (a continuation, `--------- beginning of main`)."""
    found = _LINE.match(line)
    with contextlib.suppress(ValueError):
        if found is not None:
            moment = datetime.strptime(f"1904-{found['time']}", "%Y-%m-%d %H:%M:%S.%f")
            return LogEntry(moment, found["tag"])
    return None


def age_s(entry: LogEntry, now: DeviceClock) -> float:
    """How many seconds before `now` an entry was written; negative if after it."""
    # a line of December can be read in January, and one written meanwhile the other way round
    ages = [
        (now.local - moment).total_seconds()
        for year in (now.local.year - 1, now.local.year, now.local.year + 1)
        if (moment := _in_year(entry.moment, year)) is not None
    ]
    return min((age for age in ages if age > -_HALF_A_YEAR.total_seconds()), default=-1.0)


def window(text: str, now: DeviceClock, last_s: float) -> tuple[str, int]:
    """The lines of a log that are at most `last_s` seconds old, and how many were left out.

    A line without a time belongs to the one before it.
    """

    def young(line: str) -> bool | None:
        entry = parse_log_line(line)
        return None if entry is None else age_s(entry, now) <= last_s

    return _part(text, young)


def kernel_window(text: str, since_s: float | None) -> tuple[str, int]:
    """The lines of a kernel log from a moment of its own clock on, and how many were left out."""
    if since_s is None:
        return text, 0

    def late(line: str) -> bool | None:
        found = _KERNEL.match(line)
        return None if found is None else float(found[1]) >= since_s

    return _part(text, late)


def _part(text: str, within: Callable[[str], bool | None]) -> tuple[str, int]:
    """The lines that are `within`, and how many are not. None: as the line before, else within."""
    kept: list[str] = []
    inside = True
    lines = text.split("\n")
    for line in lines:
        said = within(line)
        inside = inside if said is None else said
        if inside:
            kept.append(line)
    return "\n".join(kept), len(lines) - len(kept)


def by_tag(text: str) -> dict[str, str]:
    """The lines of a log that belong to each of TAGS, for those that have any."""
    patterns = {name: re.compile(pattern) for name, pattern in TAGS.items()}
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in text.split("\n"):
        entry = parse_log_line(line)
        if entry is not None:
            tag = entry.tag.lower()
            names = [name for name, pattern in patterns.items() if pattern.search(tag)]
        for name in names:
            if line:
                found.setdefault(name, []).append(line)
    return {name: "\n".join(lines) + "\n" for name, lines in found.items()}


def matching(texts: Mapping[str, str], pattern: re.Pattern[str]) -> str:
    """The lines that a pattern is found in, each with the name of the text it stands in."""
    lines = [
        f"{name}: {line}\n"
        for name, text in texts.items()
        for line in text.split("\n")
        if pattern.search(line)
    ]
    return "".join(lines)


def table(text: str) -> dict[str, str]:
    """Lines of `name=value`; of two with one name the last holds."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value.strip() for name, _, value in pairs}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What differs between two tables, in words."""
    return [
        f"{name}: {before.get(name, 'not there')} -> {after.get(name, 'not there')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def total_dmabuf(lines: Iterable[str]) -> tuple[int, int]:
    """(number, bytes) of the DMA buffers in the `fdinfo` of a process, each counted once.

    The kernel documents the fields (filesystems/proc: `ino`, `size`, `exp_name` of a DMA buffer).
    `lines` may be those of many descriptors, one behind the other.
    """
    sizes: dict[str, int] = {}
    inode = size = ""
    for number, line in enumerate(lines):
        found = _FDINFO.search(line)
        name, value = (found[1], found[2]) if found else ("", "")
        if name == "pos":
            inode = size = ""
        elif name == "ino":
            inode = value
        elif name == "size":
            size = value
        elif name == "exp_name" and size:
            sizes[inode or f"#{number}"] = int(size)
    return len(sizes), sum(sizes.values())


def _in_year(moment: datetime, year: int) -> datetime | None:
    try:
        return moment.replace(year=year)
    except ValueError:  # the 29th of February, or no year at all
        return None


DEVICE_READ_BYTES: Final = 16 << 20
"""How much of a log is looked through on the device for its last part."""

MAX_LINES: Final = 20_000
NO_STACK: Final = "no-native-stack"
"""Stands at the end of the section `stack` where no debugger gave one."""

JUMP_S: Final = 5
"""A device's clock that went so many seconds wrong has jumped."""

_COARSE: Final = "adsprpc|qnn|fastrpc|DEBUG|libc|executorch|onnxruntime|SSR|CONN Reset|avc: "


def state_script(token: str) -> str:
    """Asks for the clocks and what the DSPs are doing."""
    return _script("state", k=token)


def collect_script(
    token: str, *, last_s: int, boot_epoch_s: int | None, file_bytes: int, tombstones: int
) -> str:
    """Asks for the logs and dumps of the last `last_s` seconds.

    `boot_epoch_s` is what the device's clock said at its boot when it was asked before. If that has
    changed, times in logs mean nothing, and their last part is taken instead.
    """
    return _script(
        "collect",
        k=token,
        last_s=last_s,
        boot_s="" if boot_epoch_s is None else boot_epoch_s,
        jump_s=JUMP_S,
        max_lines=MAX_LINES,
        read_bytes=DEVICE_READ_BYTES,
        most=file_bytes + 1,  # so that a cut is seen
        coarse=_COARSE,
        dumps=tombstones,
    )


def look_script(token: str, pid: int, *, file_bytes: int, seconds: float) -> str:
    """Asks what a hung process does, with a native stack where a debugger is there, and ends it.

    Only a process that a call of the harness started is looked at, since numbers are used again.
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
    given = "".join(f"{key}={shlex.quote(str(value))};" for key, value in variables.items())
    texts = (shell_text("evidence", f"device/{one}") for one in ("prelude", name))
    text = re.sub(r" # .*|\\\n", "", "".join(texts))
    return given + re.sub(r"(\{|\bdo)?\n", lambda end: f"{end[1]} " if end[1] else ";", text)


MARGIN_S: Final = 2
"""A case's window begins so many seconds before the case: some clocks count whole seconds."""

_TAILS: Final = ("logcat", "tags", "dmesg")


@dataclass(frozen=True)
class Baseline:
    """What a device was like when nothing had gone wrong yet.

    `boot_epoch_s` is its clock minus its uptime, `dsps` the state of its remote processors.
    """

    boot_id: str
    boot_epoch_s: int
    dsps: Mapping[str, str]


class Report:
    """Takes the sections of a device's answers, and makes facts and files of them.

    `last_s` is the length of the case's window in seconds; a section longer than `file_bytes` was
    cut on the device. `note` is told what is missing, and why.
    """

    def __init__(
        self,
        note: Callable[[str], None],
        baseline: Baseline | None,
        last_s: int,
        file_bytes: int,
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
        """Takes the answer to `collect_script`."""
        texts = self._texts
        for name, section in sections.items():
            if not section.whole:
                self._note(f"{name}: the answer ended in the middle of it")
            content = section.content
            if name in _TAILS and len(content) > self._file_bytes:
                self._cut.add(name)
                content = whole_lines(content)
            texts[name] = clean(content)
        values = table(texts.get("clock", ""))
        clock = _clock(values)
        jumped = clock is None or "jump_s" in values
        if jumped:
            self._note("times are not known or have jumped: the logs are not cut to the case")
        self.facts |= {"device_clock": values.get("epoch_s"), "clock_jump_s": values.get("jump_s")}
        self._compare(sections, values)
        self._check_tools()
        for name in ("logcat", "tags"):
            if clock is not None and not jumped and name in texts:
                texts[name], left_out = window(texts[name], clock, self._last_s)
                if left_out:  # so all of the window is there
                    self._cut.discard(name)
        if "dmesg" in texts:
            texts["dmesg"] = self._dmesg(texts["dmesg"], clock)
        if "denied" in texts.get("tombstones", ""):
            self._note(f"no tombstones: {texts['tombstones'].strip().splitlines()[0]}")
        told = map(integer, texts.get("dmabuf", "").split())
        sizes = [size for size in told if size is not None]
        self.facts["dmabuf_bytes"] = sum(sizes) if sizes else None

    def read_process(self, pid: int, sections: Mapping[str, Section]) -> None:
        """Takes the answer to `look_script`; without sections, there was none."""
        self._process = {name: clean(section.content) for name, section in sections.items()}
        count, size = total_dmabuf(self._process.get("fdinfo", "").split("\n"))
        self.facts["hung_process"] = {"pid": pid, "dmabufs": count, "dmabuf_bytes": size}
        said = self._process.get("stack", "").strip()
        refused = said.removesuffix(NO_STACK).strip()
        if sections and not refused:
            self._note("no native stack: no debugger on the device, or it took too long")
        elif refused != said:
            self._note(f"no native stack: {refused.splitlines()[0]}")
        self._process["stack"] = refused and f"{refused}\n"

    def files(self) -> list[EvidenceFile]:
        """What is worth keeping, the most telling first: those behind are cut first."""
        texts, process = self._texts, self._process
        tagged = by_tag(texts.get("tags", ""))
        dumps = {name: text for name, text in texts.items() if name.startswith("tombstone_")}
        logs = {"dmesg": texts.get("dmesg", ""), "logcat": texts.get("tags", "")}
        # a daemon that logs its commands says our own words
        logs = {name: _without(text, TOKEN_VARIABLE) for name, text in logs.items()}
        return [
            EvidenceFile("process-stack.txt", process.get("stack", "")),
            EvidenceFile("process-threads.txt", process.get("threads", "")),
            *(EvidenceFile(f"{name}.txt", text) for name, text in dumps.items()),
            *(self._log(f"logcat-{tag}", text, "tags") for tag, text in tagged.items()),
            self._log("dsp", matching(logs, DSP_PATTERN), "tags", "dmesg"),
            self._log("avc", matching(logs, AVC_PATTERN), "tags", "dmesg"),
            self._log("dmesg", texts.get("dmesg", ""), "dmesg"),
            self._log("logcat", texts.get("logcat", ""), "logcat"),
            EvidenceFile("meminfo.txt", texts.get("meminfo", "")),
            EvidenceFile("process.txt", f"{process.get('status', '')}\n{process.get('files', '')}"),
            EvidenceFile("process-maps.txt", process.get("maps", "")),
            EvidenceFile("process-fdinfo.txt", process.get("fdinfo", "")),
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
        kept, left_out = kernel_window(text, since)
        if left_out:
            self._cut.discard("dmesg")
        return kept

    def _compare(self, sections: Mapping[str, Section], clock: Mapping[str, str]) -> None:
        if "dsps" in self._texts:
            self.facts["dsps"] = dsps = table(self._texts["dsps"])
            if not dsps:
                self._note("no state of remote processors: nothing in /sys tells it")
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
            self._note("the device booted during the case: logs of before are gone")


def baseline_of(sections: Mapping[str, Section]) -> Baseline | None:
    """The baseline in an answer, None if the device did not tell its clock."""
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


def _without(text: str, word: str) -> str:
    return "\n".join(line for line in text.split("\n") if word not in line)
