"""The chain of causes of a failed step, from the lines logged during it (pure).

The code that a call returns is often the last of several, and the least specific: 14001 (invalid
config) follows a DSP library that could not be opened.

`messages.tsv` has parts of messages as they are in the libraries and in their sources (`*` is any
short text), and their roles: `known` states a cause, `consequence` follows from one of several,
`benign` is no failure. A cause is a rule's id.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from importlib.resources import files
from typing import Final

from harness.core.error_codes import GPU_ERRORS, describe
from harness.core.json_record import clean_text
from harness.diagnosis.error_record import ChainLink
from harness.probe.transcript import StepResult

_GAP: Final = ".{0,80}?"
_ROLES: Final = ("known", "consequence", "benign")


def read_messages(text: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the patterns of a table by (role, cause); benign ones have no cause.

    Raises ValueError for a row without three columns or with an unknown role.
    """
    patterns_of: dict[tuple[str, str], list[str]] = defaultdict(list)
    for number, line in enumerate(text.splitlines()[1:], 2):
        columns = line.split("\t")
        if len(columns) != 3 or columns[1] not in _ROLES:
            raise ValueError(f"messages.tsv:{number}: no pattern with role and cause: {line!r}")
        patterns_of[columns[1], columns[2]].append(columns[0])
    return {key: tuple(patterns) for key, patterns in patterns_of.items()}


@cache
def message_table() -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the patterns of the project's table."""
    text = files("harness.diagnosis").joinpath("messages.tsv").read_text("utf-8")
    return read_messages(text)


@cache
def messages_of(role: str, cause: str = "") -> str:
    """Return a regular expression for all messages of a role and cause; empty if there are none."""
    patterns = message_table().get((role, cause), ())
    return "|".join(_GAP.join(map(re.escape, pattern.split("*"))) for pattern in patterns)


MAX_LINKS: Final = 40
MAX_LINE_CHARS: Final = 1000
"""The most characters of a line that are searched."""
_MAX_LINK_CHARS: Final = 500

ECHO: Final = (
    r"\bQNN_HARNESS_CALL=.*|\badbd *(?:[(\[] *\d+[)\]])?: .*"
    r"|^(?:\S{8,40} )?\++ (?-i:[a-z./~]|[A-Z_]+=).*"
)
"""An echoed command in a log, which is not a message even if it has the words of one."""

SHELL_TOOLS: Final = (
    r"(?:cat|ls|stat|file|find|head|tail|grep|od|xxd|hexdump|strings|dd|cp|mv|rm|chmod|chown|touch"
    r"|du|df|readlink|realpath|md5sum|sha256sum|lsof|toybox|busybox|sh|bash|dash|mksh)"
)
"""Programs for inspecting a device, which do not use the NPU."""

BENIGN: Final = (
    # a shell tool may not read device nodes, as no shell user may, or looked in one place of
    # several (lib/xwrap.c of toybox has the words)
    rf"^(?:[\w@.:~/ -]{{0,60}}[$#] )?(?:/\S{{0,40}}/)?{SHELL_TOOLS}: .*"
    r"(?:permission denied|operation not permitted|no such file)",
    # the same, as the kernel logs it (comm is the program,
    # https://source.android.com/docs/security/features/selinux)
    rf'avc: +denied .*\bcomm="{SHELL_TOOLS}"',
    # adbd logs each command that it runs, `set -x` each of a script (daemon/services.cpp of
    # Android's adb)
    ECHO,
    # ExecuTorch's parser says it of a blob that it has unwrapped already
    # (https://github.com/pytorch/executorch/issues/18862 shows it in a log of many loads)
    r"expected magic number: 0x5678abcd but get: 0x2000000\b",
    # a skel is the DSP's program, which the CPU cannot open and need not
    # (https://github.com/argmaxinc/WhisperKitAndroid/pull/57 shows it in an app that runs)
    r"Skel\.so\W{1,3}is 32-bit instead of 64-bit",
    # FastRPC goes on without them, here in a domain that came up
    # (https://github.com/chraac/llama.cpp/issues/41, and qualcomm/fastrpc#180)
    r"fastrpc_enable_kernel_optimizations failed\b",
    # the QNN provider asks that of every backend and goes on without (seen with onnxruntime-qnn
    # 2.3.0 to 2.7.0 on the GPU backend)
    r"Unable to get platform info: Only support getting platform info for HTP backend",
    # the DSP has no notifications of queues, and the queue is made all the same
    # (https://github.com/qualcomm/fastrpc/issues/342)
    r"0x80000414: remote_handle64_\w+ failed for \S{0,12} ?libdspqueue_rpc_skel\.so",
    # an older DSP lacks what its daemon asks for as it starts, and the daemon goes on
    # (src/adspmsgd.c of qualcomm/fastrpc takes it for no error)
    r"[ac]dsprpcd?\b.*Error 0x80000414: remote_handle64_invoke failed for handle",
    # FastRPC asks for what hands on the DSP's log, and does without
    # (https://github.com/XiaoMi/mace/issues/581 shows it of a program that works)
    r"fopen\w* fail\w* .{0,20}(?:libadspmsgd_adsp_skel|libsysmon_cdsp_skel|oemconfig)\.so",
    # a warning, after which the stub allocates by the older call (a longer form of it adds what
    # that cannot: more than 2 GB)
    r"This META does not have Alloc2 Support\W{0,4}$",
    # a test that passed had the error for its subject
    # (https://docs.pytest.org/en/stable/how-to/output.html shows such lines)
    r"^PASS(?:ED)? \S+::\S+ |^\S+\.py::\S+ PASSED\b",
    # the QNN provider says it whenever somebody else has set the path of skels (onnxruntime-qnn
    # 2.7.0 on boards; sessions work)
    r"Using existing ADSP_LIBRARY_PATH setting of ",
)
"""Patterns of lines that look like errors but are not, each below the reason why it is logged."""

# Some versions put the level before each line.
_LEVEL: Final = re.compile(r"^\s*<[EWIVD]>\s*")
# ORT appends the location in its source to each line.
_PLACE: Final = re.compile(r"\s*\[[\w./-]+\.(?:cc|cpp|h|hpp):\d+ [^\]]{0,200}\]\s*$")

# Words of warnings about a failure, not merely about something unused.
_FAILING: Final = re.compile(
    r"\b(?:fail(?:s|ed|ure|ing)?|errors?|cannot|can't|could not|unable|denied|not found|no such)\b",
    re.I,
)

# GPU_ERROR_FAILED_CREATION(10006): a number of the GPU library's own.
_NAMED: Final = re.compile(
    r"\b(?P<name>[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_ERROR_[A-Z0-9_]+)\((?P<number>\d{1,10})\)"
)
# Some lines have only the number: GPU ERROR: (10006) - Invalid OpenCL driver path
_UNNAMED: Final = re.compile(r"\bGPU ERROR: \((?P<number>\d{5})\)")
_CODES: Final = (
    re.compile(r"\b(0x8000[0-9a-f]{4})\b", re.I),
    re.compile(r"\b(?:failed|returned|returns)(?: with)?,? (0x[0-9a-f]{3,8}|\d{4,5})\b", re.I),
    re.compile(r"\berr(?:or)?(?: ?code)?\s?[:=]?\s?(0x[0-9a-f]{1,8}|\d{1,6})\b", re.I),
    re.compile(r":\s?(0x[0-9a-f]{1,8}|\d{1,6})[\"']?\.?$", re.I),
)


def failure_chain(step: StepResult) -> tuple[ChainLink, ...]:
    """Return the causes of a failed step in order; the result of the call is the last link.

    The links are the library's error lines, each once, and warnings about a failure right before
    one. There are at most 40 links.
    """
    if not step.code and step.error is None:
        return _logged(step)
    info = None if step.code is None else describe(step.code, api=step.api)
    message = step.message or step.error or (info.note if info else None) or ""
    return call_chain(step, code=step.code, symbol=step.symbol, message=message)


def call_chain(
    step: StepResult, *, code: int | None, symbol: str | None, message: str
) -> tuple[ChainLink, ...]:
    """Return the chain of a step whose call returned this code and message."""
    info = None if code is None else describe(code, api=step.api)
    returned = ChainLink(
        code=code,
        hex=info.hex if info else None,
        symbol=symbol or (info.symbol if info else None),
        component=info.component if info else None,
        message=str(clean_text(message))[:_MAX_LINK_CHARS],
        source="call",
    )
    return (*_logged(step), returned)


def is_benign(line: str) -> bool:
    """Return whether a line of a log is no failure."""
    text = line[:MAX_LINE_CHARS]
    return any(re.search(pattern, text, re.I) for pattern in (*BENIGN, messages_of("benign")))


def _logged(step: StepResult) -> tuple[ChainLink, ...]:
    return tuple(link_of(text) for text in _failing_lines(step)[: MAX_LINKS - 1])


def error_lines(step: StepResult) -> list[str]:
    """Return the library's first 40 distinct error lines of a step, without benign ones."""
    texts = (_plain(line.text) for line in step.logs if line.level == "error")
    return list(dict.fromkeys(text for text in texts if _is_relevant(text)))[:MAX_LINKS]


def _failing_lines(step: StepResult) -> list[str]:
    failing: dict[str, None] = {}
    warnings: list[str] = []
    for line in step.logs:
        text = _plain(line.text)
        if not _is_relevant(text):
            continue
        if line.level == "error":
            failing.update(dict.fromkeys([*warnings, text]))
            warnings = []
        elif line.level == "warn" and _FAILING.search(text):
            warnings.append(text)
        else:
            warnings = []
    return list(failing or dict.fromkeys(warnings))


def link_of(text: str) -> ChainLink:
    """Return the link of a logged line, with the code in it if there is one."""
    text = text[:_MAX_LINK_CHARS]
    named = _NAMED.search(text) or _UNNAMED.search(text)
    if named:
        number = int(named["number"])
        name = named.groupdict().get("name") or GPU_ERRORS.get(number)
        return ChainLink(code=number, hex=hex(number), symbol=name, message=text, source="log")
    for pattern in _CODES:
        for digits in pattern.findall(text):
            info = describe(int(digits, 0) if digits[:2] in ("0x", "0X") else int(digits))
            known = info.component == "dsp" or (info.raw <= 0xFFFF and info.symbol is not None)
            if known and info.component != "none":
                return ChainLink(
                    code=info.raw,
                    hex=info.hex,
                    symbol=info.symbol,
                    component=info.component,
                    message=text,
                    source="log",
                )
    return ChainLink(message=text, source="log")


def _plain(text: str) -> str:
    return str(clean_text(_PLACE.sub("", _LEVEL.sub("", text)).strip()))


def _is_relevant(text: str) -> bool:
    return bool(text) and not is_benign(text)
