"""Reads what a device answered about a case: facts for a summary, texts for files (pure)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from harness.device.evidence.script import NO_STACK
from harness.device.evidence.text import EvidenceFile, clean, whole_lines
from harness.device.evidence.window import (
    AVC_PATTERN,
    DSP_PATTERN,
    DeviceClock,
    by_tag,
    changed,
    kernel_window,
    matching,
    table,
    total_dmabuf,
    window,
)
from harness.device.transport.questions import Section, integer
from harness.device.transport.shell_protocol import TOKEN_VARIABLE

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
