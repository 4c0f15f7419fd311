"""Stand-ins for QNN's libraries on Android, as AARs in a Maven folder: real bionic, no backend."""

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.models.session_plan import Context
from harness.probe.plan import SOURCE_FOLDER
from harness.runtimes.maven_repository import Coordinates
from tests.android.bionic import ARM64, compile_c, compiler
from tests.integration.runtimes.maven_server import make_aar
from tests.unit.runtimes.elf_files import elf_file

QNN = Coordinates.parse("com.qualcomm.qti:qnn-runtime")
REAL_BUDGET = 3_650_722_201
"""What the real library for x86-64 takes (docs/explanation/concepts.md)."""

NO_BUDGET = 1 << 62
_SOURCE = Path(__file__).parents[1] / "stand_in/phone_stand_in.c"
_MOST_BYTES = 4096  # of an output that is given as it is expected


def add_stand_in(
    repository: Path, version: str, contexts: Sequence[Context], *, budget: int, work: Path
) -> None:
    """Adds a version of qnn-runtime that knows these contexts and takes `budget` bytes of them."""
    work.mkdir()
    (work / "known_contexts.h").write_text(_known(contexts))
    build = f"v{version}.260101000000"
    libraries = {}
    for name in ("libQnnHtp.so", "libQnnSystem.so", "libQnnHtpV73Stub.so"):
        flags = [f'-DBUILD="{build}"', f"-DBUDGET=UINT64_C({budget})", f"-Wl,-soname,{name}"]
        folders = [f"-I{folder}" for folder in (SOURCE_FOLDER, work, _SOURCE.parent)]
        shared = ["-shared", "-fPIC", "-Wl,-z,max-page-size=16384", "-fvisibility=hidden"]
        compile_c(compiler(ARM64), *shared, *flags, *folders, _SOURCE, "-o", work / name)
        libraries[name] = (work / name).read_bytes()
    # what runs on the DSP, which nobody here has
    libraries["libQnnHtpV73Skel.so"] = elf_file("hexagon", bits=32, flags=0x73)
    aar = repository / QNN.with_version(version).aar()
    aar.parent.mkdir(parents=True)
    aar.write_bytes(content := make_aar(libraries))
    aar.with_name(f"{aar.name}.sha1").write_text(hashlib.sha1(content).hexdigest())


def _known(contexts: Iterable[Context]) -> str:
    text, rows = "", []
    for number, context in enumerate(contexts):
        (graph,) = context.metadata["graphs"]
        binary = context.path.read_bytes()
        for kind in ("inputs", "outputs"):
            text += _tensors(f"{kind}_{number}", kind, graph[kind])
        expected = [_bytes(path) for path in context.expected]
        text += (
            f"static const unsigned char *const expected_{number}[] = {{{', '.join(expected)}}};\n"
        )
        rows.append(
            f"{{{len(binary)}, {zlib.adler32(binary)}u, {len(graph['inputs'])}, "
            f'{len(graph["outputs"])}, {context.memory_bytes}, "{graph["name"]}", '
            f"inputs_{number}, outputs_{number}, expected_{number}}},\n"
        )
    end = '{0, 0, 0, 0, 0, "", NULL, NULL, NULL}'
    return f"{text}static const struct known KNOWN[] = {{\n{''.join(rows)}{end}}};\n"


def _bytes(path: Path) -> str:
    content = path.read_bytes()
    if len(content) > _MOST_BYTES:
        return "NULL"
    return f"(const unsigned char[]){{{', '.join(map(str, content))}}}"


def _tensors(name: str, kind: str, tensors: Sequence[Mapping[str, object]]) -> str:
    rows = []
    for one in tensors:
        sizes = one["dimensions"]
        assert isinstance(sizes, list)
        scale = "{ABI_UNDEFINED, ABI_UNDEFINED, {{0, 0}}}"
        if one.get("encoding") == "scale-offset":
            scale = f"{{1, 0, {{{{{one['scale']}f, {one['offset']}}}}}}}"
        rows.append(
            f'{{.version = 1, .id = {one["id"]}, .name = "{one["name"]}", '
            f".type = {int(kind == 'outputs')}, .data_type = {one['data_type_code']}, "
            f".quantization = {scale}, .rank = {len(sizes)}, "
            f".dimensions = (uint32_t[]){{{', '.join(map(str, sizes))}}}}}"
        )
    return f"static struct abi_tensor {name}[] = {{{', '.join(rows)}}};\n"
