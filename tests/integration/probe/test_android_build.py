"""The probe for phones, which no NDK builds, beside the same sources as the NDK builds them."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.errors import ConfigError
from harness.core.state_folders import cache_root
from harness.probe import bionic, plan
from harness.probe.build import ProbeBuilder, read_sources
from harness.probe.ort_plan import (
    Provider,
    call,
    context_load_list,
    io_bind,
    io_release,
    io_run,
    memory_sample,
    ort_end,
    ort_env,
    ort_load,
    ort_placement,
    ort_register_ep,
    ort_run,
    ort_session,
    ort_session_free,
)
from harness.probe.plan import SOURCE_FOLDER, VERBS, Plan, Settings, Step
from harness.probe.plan_runner import EXIT_DONE, run_plan_locally
from harness.runtimes.elf import read_elf
from tests.android.bionic import ARM64, android_probe, compiler, roots, stub_libraries, under_qemu
from tests.integration.probe.conftest import ENVIRONMENT, StandIn
from tests.needed import ANDROID
from tests.stand_in.build import build_backend, build_ort

LEVEL = 24
FIELDS = {
    "struct stat": "st_dev st_ino st_mode st_size",
    "struct dirent": "d_name",
    "struct timespec": "tv_sec tv_nsec",
    "struct pollfd": "fd events revents",
    "struct dl_phdr_info": "dlpi_addr dlpi_name dlpi_phdr dlpi_phnum",
}
"""The C library's structures that the probe uses, and which of their fields."""
TEXT = re.sub(r"/\*.*?\*/", "", b"".join(read_sources().values()).decode(), flags=re.DOTALL)
HEADERS = "\n".join(sorted(set(re.findall(r"#include <[^>]+>", TEXT))))


@pytest.fixture(scope="module")
def probe() -> Path:
    return ProbeBuilder(cache_root() / "probe").build("android-arm64")


def output_of(*command: object) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout


def symbols_of(option: str, file: Path) -> set[str]:
    """Its dynamic symbols with their versions, without weak ones."""
    lines = map(str.split, output_of("nm", "-D", option, file).splitlines())
    return {name.replace("@@", "@") for *_, kind, name in lines if kind not in "wv"}


@pytest.mark.needs("readelf")
@pytest.mark.needs("nm")
def test_it_is_what_every_phone_of_a_level_loads(probe: Path) -> None:
    facts = read_elf(probe.read_bytes())
    assert (facts.machine, facts.libc, facts.android_api) == ("aarch64", "bionic", LEVEL)
    assert facts.needed == ("libdl.so", "libc.so")
    assert facts.page_bytes == 16384
    headers = output_of("readelf", "-hlW", probe)
    assert re.search(r"Type: +DYN ", headers)
    assert "interpreter: /system/bin/linker64]" in headers
    segments = [line.split() for line in headers.splitlines() if re.match(" +[A-Z_]+ +0x", line)]
    kinds = {segment[0]: segment[6:-1] for segment in segments}
    assert {segment[-1] for segment in segments if segment[0] == "LOAD"} == {"0x4000"}
    assert kinds["GNU_RELRO"] == ["R"]
    assert kinds["GNU_STACK"] == ["RW"]
    assert not [s for s in segments if s[0] == "LOAD" and {"W", "E"} <= set("".join(s[6:-1]))]
    dynamic = output_of("readelf", "-dW", probe)
    assert re.search(r"\(FLAGS_1\) +Flags: NOW PIE", dynamic)
    assert "TEXTREL" not in dynamic
    listed = {f"{symbol.name}@{symbol.version}" for symbol in bionic.read_symbols()}
    assert symbols_of("--undefined-only", probe) == listed
    assert max(symbol.since for symbol in bionic.read_symbols()) <= bionic.API == LEVEL


@pytest.mark.slow
def test_the_same_sources_give_the_same_bytes(probe: Path, tmp_path: Path) -> None:
    again = ProbeBuilder(tmp_path / "elsewhere").build("android-arm64")
    assert again.read_bytes() == probe.read_bytes()
    assert str(tmp_path).encode() not in again.read_bytes()


@pytest.mark.slow
def test_what_the_oldest_android_lacks_is_an_error_of_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = bionic.read_symbols()
    later = [each._replace(since=26) if each.name == "clock_nanosleep" else each for each in known]
    monkeypatch.setattr(bionic, "read_symbols", lambda: later)
    with pytest.raises(ConfigError, match="undefined symbol: clock_nanosleep"):
        ProbeBuilder(tmp_path).build("android-arm64")


@pytest.mark.needs(ANDROID)
@pytest.mark.needs("nm")
def test_the_list_is_what_android_has() -> None:
    """Both the oldest level's stubs of the NDK, and the libraries of a real system."""
    system = roots() / "arm64-android11/system/lib64"
    for library in ("libc.so", "libdl.so"):
        stub = next(path for path in stub_libraries(LEVEL) if path.name == library)
        symbols = [each for each in bionic.read_symbols() if each.library == library]
        names = {f"{symbol.name}@{symbol.version}" for symbol in symbols}
        assert names <= symbols_of("--defined-only", stub)
        assert names <= symbols_of("--defined-only", (system / library).resolve())


def numbers(folder: Path, values: list[str], *command: str) -> list[int]:
    """What these expressions are for a compiler, with the headers that the sources include."""
    lines = (f"(long long)({value})," for value in values)
    source = folder / "values.c"
    source.write_text("\n".join([HEADERS, "const long long values[] = {", *lines, "};", ""]))
    output_of(*command, "-w", "-S", "-o", folder / "values.s", source)
    text = (folder / "values.s").read_text()
    parts = re.findall(r"\.(xword|zero)\s+(-?\d+)", text)
    listed = [
        [int(number)] if kind == "xword" else [0] * (int(number) // 8) for kind, number in parts
    ]
    return [number for some in listed for number in some]


@pytest.mark.needs(ANDROID)
def test_constants_and_types_are_the_ndks(tmp_path: Path) -> None:
    """All constants of the C library that stand in the sources, and all types listed above."""
    ndk = [compiler(ARM64, LEVEL), "-D_GNU_SOURCE"]
    ours = [*ProbeBuilder(tmp_path).compiler("android-arm64"), "-D_GNU_SOURCE"]
    ours += [f"-I{SOURCE_FOLDER}", *(flag for flag in bionic.FLAGS if flag != "-r")]
    words = sorted(set(re.findall(r"\b(?:SYS_\w+|_?[A-Z][A-Z0-9_]+)\b", TEXT)))
    source = tmp_path / "words.c"
    source.write_text(HEADERS + "".join(f'\n@ "{word}" {word}' for word in words))
    text = output_of(*ndk, "-E", "-P", source)
    macros = re.findall(r'^@ "(\w+)" ([\w()<|~+*& -]+)$', text, re.MULTILINE)
    values = [word for word, meaning in macros if word != meaning and word != "INFINITY"]
    values += ["S_ISREG(0100644)", "S_ISREG(0040755)", "_IOWR('H', 0, long)"]
    assert {"_SC_PAGESIZE", "O_CLOEXEC", "EINTR", "SIG_DFL", "MAP_FAILED"} <= set(values)
    own = set(re.findall(r"\b(struct \w+) \{", TEXT))
    types = set(re.findall(r"\b(?:struct \w+|\w+_t\b|ElfW\(\w+\))", TEXT)) - own
    assert {name for name in types if name.startswith("struct")} == set(FIELDS)
    values += [f"sizeof({name})" for name in sorted(types - {"sigset_t"})]
    for name, fields in FIELDS.items():
        for part in fields.split():
            values += [f"offsetof({name}, {part})", f"sizeof((({name} *)0)->{part})"]
    expected, got = (numbers(tmp_path, values, *command) for command in (ndk, ours))
    assert len(expected) == len(values)
    assert dict(zip(values, got, strict=True)) == dict(zip(values, expected, strict=True))
    sizes = (numbers(tmp_path, ["sizeof(sigset_t)"], *command) for command in (ndk, ours))
    assert next(sizes) <= next(sizes), "bionic fills one that musl's headers describe"


@pytest.fixture(scope="module")
def builds(probe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Ours and the NDK's, both to be run on this host."""
    folder = tmp_path_factory.mktemp("ndk")
    reference = android_probe(folder, cc=compiler(ARM64, LEVEL))
    places = [tmp_path_factory.mktemp(name) for name in ("ours", "theirs")]
    ours, theirs = map(under_qemu, (probe, reference), places)
    return ours.probe, theirs.probe


FOUR = np.array([1.5, -2.0, 0.25, 1e6], np.float32)
EP = "StandIn"


@pytest.fixture(scope="module")
def stand_in(builds: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    folder = tmp_path_factory.mktemp("stand-in")
    build_ort(folder, compiler(ARM64))
    return StandIn(build_backend(folder, compiler(ARM64)), folder)


def on_qnn(backend: StandIn) -> Iterator[Step]:
    four, binary = backend.file("four", FOUR), backend.binary("plain")
    files = {"inputs": [four], "expected": [four]}
    yield from backend.opened(plan.context_inspect(binary))
    yield plan.context_load(0, binary)
    yield plan.execute(0, **files, saved=[backend.file("saved", FOUR)], repeat=3)
    yield from (io_bind(0, "raw", **files), io_run(0, repeat=2), memory_sample("now"))
    arguments = ("backend", "device", 0, "@file", "#file", "&again", 0)
    yield call("QnnContext_createFromBinary", *arguments, file=binary)
    yield from (io_release(0), plan.context_free(0))
    yield from map(Step, ("device-free", "backend-free", "log-free"))


def on_ort(backend: StandIn) -> Iterator[Step]:
    model, four = backend.file("copy.onnx", b"stand-in copy\n"), backend.file("four", FOUR)
    yield from (ort_load(str(backend.folder / "libonnxruntime.so")), ort_env())
    yield ort_register_ep("/p.so", EP)
    yield from (ort_session(0, model, Provider(EP)), ort_placement(0, whole=EP))
    yield ort_run(0, inputs=[four], expected=[four], saved=[backend.file("saved", FOUR)], repeat=3)
    yield from (ort_session_free(0), *ort_end(EP))


def failing(backend: StandIn) -> Iterator[tuple[Step, ...]]:
    four = backend.file("four", FOUR)
    loaded = backend.opened(plan.context_load(0, backend.binary("plain")))
    yield (*loaded, io_bind(0, "memhandle", inputs=[four]))
    yield backend.opened(context_load_list(0, [backend.binary("plain")]))
    for behaviour in ("overflow", "drift", "crash", "hang"):
        step = plan.execute(0, inputs=[four], expected=[four], repeat=3)
        yield backend.opened(plan.context_load(0, backend.binary(behaviour)), step)
    yield (plan.backend_load("/nonexistent"), plan.context_load(0, "/nonexistent"))
    yield (plan.context_load(0, "/nonexistent"),)
    yield (Step("noop"), Step("sleep", {"ms": "1"}), Step("hang"))
    yield (Step("spew", {"bytes": "9"}), Step("crash", {"signal": "11"}))
    yield (Step("spew", {"bytes": "9", "to": "stderr"}), Step("exit", {"code": "3"}))
    for verb in filter(re.compile("executorch-").match, VERBS):
        needed = [key for key, rule in VERBS[verb].items() if rule.required]
        yield (Step(verb, dict.fromkeys(needed, "0")),)


CHANGING = re.compile(r".*_us|(rss|pss|anonymous)_.*bytes|pid|tid|cpu_ticks|syscall|wchan|crc")


def steady(value: Any) -> Any:
    """What stands in an event, without what differs from one run to the next."""
    if isinstance(value, list):
        return [steady(each) for each in value]
    if isinstance(value, dict):
        return {key: bool(CHANGING.fullmatch(key)) or steady(value[key]) for key in value}
    return value


def outcome(probe: Path, steps: tuple[Step, ...]) -> tuple[Any, ...]:
    settings = Settings(deadline_ms=1000, linger_ms=10, log_level="debug", memory="pss")
    done = run_plan_locally(probe, Plan(steps, settings), env=ENVIRONMENT, timeout_s=60)
    events = [steady(json.loads(text)) for text in done.raw_events.split(b"\x1e")[1:]]
    return done.exit_code, done.signal, events, done.stderr


@pytest.mark.slow
@pytest.mark.needs(ANDROID)
def test_every_verb_does_the_same(builds: tuple[Path, Path], stand_in: StandIn) -> None:
    fine = (tuple(on_qnn(stand_in)), tuple(on_ort(stand_in)))
    plans = (*fine, *failing(stand_in))
    verbs = {step.verb for steps in plans for step in steps}
    assert verbs == set(VERBS) - {"set", "cleanup"}
    for steps in plans:
        ours, theirs = (outcome(build, steps) for build in builds)
        assert ours == theirs
        assert (ours[0] == EXIT_DONE) == (steps in fine)
