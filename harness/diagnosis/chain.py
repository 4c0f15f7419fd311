"""How a failure came about: what was logged while a step failed, as links of a chain (pure).

The code that a call returns is often the last of several, and says least: 14001 (invalid config)
follows a DSP library that could not be opened.

`messages.tsv` has parts of messages as they stand in the libraries and in their sources, whatever
thread knows them (`*` is anything short), and what each tells: `known` states a cause,
`consequence` follows from one of several, `benign` is nothing wrong. A cause is a rule's id.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from importlib.resources import files
from typing import Final

from harness.core.codes import GPU_ERRORS, describe
from harness.diagnosis.error import ChainLink, clean_text
from harness.probe.transcript import StepResult

_GAP: Final = ".{0,80}?"
_ROLES: Final = ("known", "consequence", "benign")


def read_messages(text: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """The patterns of a table by role and cause, as they stand there; benign ones have no cause.

    Raises ValueError where a row has not three columns, or an unknown role.
    """
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for number, line in enumerate(text.splitlines()[1:], 2):
        columns = line.split("\t")
        if len(columns) != 3 or columns[1] not in _ROLES:
            raise ValueError(f"messages.tsv:{number}: no pattern with role and cause: {line!r}")
        found[columns[1], columns[2]].append(columns[0])
    return {key: tuple(patterns) for key, patterns in found.items()}


@cache
def message_table() -> dict[tuple[str, str], tuple[str, ...]]:
    """The patterns of the project's table."""
    text = files("harness.diagnosis").joinpath("messages.tsv").read_text("utf-8")
    return read_messages(text)


@cache
def messages_of(role: str, cause: str = "") -> str:
    """A regular expression for all messages that tell this; empty where there are none."""
    patterns = message_table().get((role, cause), ())
    return "|".join(_GAP.join(map(re.escape, one.split("*"))) for one in patterns)


MAX_LINKS: Final = 40
MAX_LINE_CHARS: Final = 1000
"""So much of a line is looked at."""
_MAX_LINK_CHARS: Final = 500

ECHO: Final = (
    r"\bQNN_HARNESS_CALL=.*|\badbd *(?:[(\[] *\d+[)\]])?: .*"
    r"|^(?:\S{8,40} )?\++ (?-i:[a-z./~]|[A-Z_]+=).*"
)
"""In a line that tells what was asked, and not what was said: a command, with all words in it."""

SHELL_TOOLS: Final = (
    r"(?:cat|ls|stat|file|find|head|tail|grep|od|xxd|hexdump|strings|dd|cp|mv|rm|chmod|chown|touch"
    r"|du|df|readlink|realpath|md5sum|sha256sum|lsof|toybox|busybox|sh|bash|dash|mksh)"
)
"""Programs that people, and the harness, look at a device with; no program that uses the NPU."""

BENIGN: Final[dict[str, str]] = {
    rf"^(?:[\w@.:~/ -]{{0,60}}[$#] )?(?:/\S{{0,40}}/)?{SHELL_TOOLS}: .*"
    r"(?:permission denied|operation not permitted|no such file)": (
        "a tool of the shell was denied a look, as a shell user always is at device nodes, or "
        "looked in one place of several (lib/xwrap.c of toybox has the words)"
    ),
    rf'avc: +denied .*\bcomm="{SHELL_TOOLS}"': (
        "the same, as the kernel logs it "
        "(comm is the name of who asked, https://source.android.com/docs/security/features/selinux)"
    ),
    ECHO: (
        "adbd logs each command that it is given, `set -x` each that a script runs "
        "(daemon/services.cpp of Android's adb)"
    ),
    r"expected magic number: 0x5678abcd but get: 0x2000000\b": (
        "ExecuTorch's parser says it of a blob that it has unwrapped already "
        "(https://github.com/pytorch/executorch/issues/18862 shows it in a log of many loads)"
    ),
    r"Skel\.so\W{1,3}is 32-bit instead of 64-bit": (
        "a skel is the DSP's program, which the CPU cannot open and need not "
        "(https://github.com/argmaxinc/WhisperKitAndroid/pull/57 shows it in an app that runs)"
    ),
    r"fastrpc_enable_kernel_optimizations failed\b": (
        "FastRPC goes on without them, here in a domain that came up "
        "(https://github.com/chraac/llama.cpp/issues/41, and qualcomm/fastrpc#180)"
    ),
    r"Unable to get platform info: Only support getting platform info for HTP backend": (
        "the QNN provider asks that of every backend and goes on without "
        "(seen with onnxruntime-qnn 2.3.0 to 2.7.0 on the GPU backend)"
    ),
    r"0x80000414: remote_handle64_\w+ failed for \S{0,12} ?libdspqueue_rpc_skel\.so": (
        "the DSP has no notifications of queues, and the queue is made all the same "
        "(https://github.com/qualcomm/fastrpc/issues/342)"
    ),
    r"[ac]dsprpcd?\b.*Error 0x80000414: remote_handle64_invoke failed for handle": (
        "an older DSP lacks what its daemon asks for as it starts, and the daemon goes on "
        "(src/adspmsgd.c of qualcomm/fastrpc takes it for no error)"
    ),
    r"fopen\w* fail\w* .{0,20}(?:libadspmsgd_adsp_skel|libsysmon_cdsp_skel|oemconfig)\.so": (
        "FastRPC asks for what hands on the DSP's log, and does without "
        "(https://github.com/XiaoMi/mace/issues/581 shows it of a program that works)"
    ),
    r"This META does not have Alloc2 Support\W{0,4}$": (
        "a warning, after which the stub allocates by the older call "
        "(a longer form of it adds what that cannot: more than 2 GB)"
    ),
    r"^PASS(?:ED)? \S+::\S+ |^\S+\.py::\S+ PASSED\b": (
        "a test that passed had the error for its subject "
        "(https://docs.pytest.org/en/stable/how-to/output.html shows such lines)"
    ),
    r"Using existing ADSP_LIBRARY_PATH setting of ": (
        "the QNN provider says it whenever somebody else has set the path of skels "
        "(onnxruntime-qnn 2.7.0 on boards; sessions work)"
    ),
}
"""Lines that look like errors and are none: a pattern of each, and who says it why."""

# Some versions put the level before each line, which says nothing new.
_LEVEL: Final = re.compile(r"^\s*<[EWIVD]>\s*")
# ORT names the place in its source behind each line.
_PLACE: Final = re.compile(r"\s*\[[\w./-]+\.(?:cc|cpp|h|hpp):\d+ [^\]]{0,200}\]\s*$")

# Warnings that tell of something that went wrong, and not merely of what is not used.
_FAILING: Final = re.compile(
    r"\b(?:fail(?:s|ed|ure|ing)?|errors?|cannot|can't|could not|unable|denied|not found|no such)\b",
    re.I,
)

# GPU_ERROR_FAILED_CREATION(10006): a number of the GPU library's own.
_NAMED: Final = re.compile(
    r"\b(?P<name>[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_ERROR_[A-Z0-9_]+)\((?P<number>\d{1,10})\)"
)
# Some lines name the number only: GPU ERROR: (10006) - Invalid OpenCL driver path
_UNNAMED: Final = re.compile(r"\bGPU ERROR: \((?P<number>\d{5})\)")
_CODES: Final = (
    re.compile(r"\b(0x8000[0-9a-f]{4})\b", re.I),
    re.compile(r"\b(?:failed|returned|returns)(?: with)?,? (0x[0-9a-f]{3,8}|\d{4,5})\b", re.I),
    re.compile(r"\berr(?:or)?(?: ?code)?\s?[:=]?\s?(0x[0-9a-f]{1,8}|\d{1,6})\b", re.I),
    re.compile(r":\s?(0x[0-9a-f]{1,8}|\d{1,6})[\"']?\.?$", re.I),
)


def failure_chain(step: StepResult) -> tuple[ChainLink, ...]:
    """What went wrong in a step that failed, in order; the call's own answer is the last link.

    The links are the library's error lines, each once, and warnings right before one that tell of a
    failure, too. At most 40 links.
    """
    if not step.code and step.error is None:
        return _logged(step)
    info = None if step.code is None else describe(step.code, api=step.api)
    said = step.message or step.error or (info.note if info else None) or ""
    return call_chain(step, code=step.code, symbol=step.symbol, message=said)


def call_chain(
    step: StepResult, *, code: int | None, symbol: str | None, message: str
) -> tuple[ChainLink, ...]:
    """The chain of a step whose call came to this code and said this."""
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
    """Whether a line of a log tells of nothing wrong."""
    return benign_part(line) is not None


def benign_part(line: str) -> tuple[int, int] | None:
    """Where in a line stands what makes it benign."""
    said = line[:MAX_LINE_CHARS]
    found = (re.search(one, said, re.I) for one in (*BENIGN, messages_of("benign")))
    return next((one.span() for one in found if one is not None), None)


def _logged(step: StepResult) -> tuple[ChainLink, ...]:
    return tuple(link_of(text) for text in _failing_lines(step)[: MAX_LINKS - 1])


def error_lines(step: StepResult) -> list[str]:
    """The library's error lines of a step: each once, the first 40, without benign ones."""
    texts = (_plain(line.text) for line in step.logs if line.level == "error")
    return list(dict.fromkeys(text for text in texts if _tells(text)))[:MAX_LINKS]


def _failing_lines(step: StepResult) -> list[str]:
    found: dict[str, None] = {}
    warned: list[str] = []
    for line in step.logs:
        text = _plain(line.text)
        if not _tells(text):
            continue
        if line.level == "error":
            found.update(dict.fromkeys([*warned, text]))
            warned = []
        elif line.level == "warn" and _FAILING.search(text):
            warned.append(text)
        else:
            warned = []
    return list(found or dict.fromkeys(warned))


def link_of(text: str) -> ChainLink:
    """The link of a logged line, with the code that it names if it names one."""
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


def _tells(text: str) -> bool:
    return bool(text) and not is_benign(text)
