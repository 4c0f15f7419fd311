"""Where .ci/run ran, the tests find what they want; nowhere is one left out in silence."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needed import (
    ALWAYS_THERE,
    ANDROID,
    C_COMPILERS,
    CI,
    DSP,
    HEXAGON,
    INSIST,
    installed_by_ci,
    need,
)

TESTS = Path(__file__).parents[1]
SOURCES = sorted(path for path in TESTS.rglob("*.py") if path.name != "needed.py")
RUNNERS = {"run", "Popen", "call", "check_call", "check_output"}
MAY_WANT = re.compile(
    rf"\b(?:which|skipif|importorskip|skip)\b|\b(?:{'|'.join(sorted(RUNNERS))})\(\s*\["
)
"""What no text is without that leaves a test out or runs a program: few need be read as code."""


def named(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def texts(nodes: list[ast.expr]) -> list[str]:
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def when_collected(tree: ast.Module) -> Iterator[ast.AST]:
    """What runs before any test does: it can make tests vanish."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from node.decorator_list
        else:
            yield node


def hidden_wants(source: str) -> list[str]:
    """What leaves tests out, or runs a program, past `need` and past .ci/run's list."""
    if not MAY_WANT.search(source):
        return []
    tree, found = ast.parse(source), []
    for node in when_collected(tree):
        found += [f"line {c.lineno}: which" for c in calls(node) if named(c.func) == "which"]
    for call in calls(tree):
        if named(call.func) in ("skipif", "importorskip"):
            found.append(f"line {call.lineno}: {named(call.func)}")
        if named(call.func) == "skip" and any("need" in text for text in texts(call.args)):
            found.append(f"line {call.lineno}: skip")
        first = call.args[0] if call.args else None
        if named(call.func) in RUNNERS and isinstance(first, ast.List) and first.elts:
            for program in texts(first.elts[:1]):
                if program not in ALWAYS_THERE | installed_by_ci():
                    found.append(f"line {call.lineno}: runs {program}")
    return found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("shells = [s for s in ALL if shutil.which(s)]", "line 1: which"),
        ("@pytest.mark.parametrize('x', [which('x')])\ndef test_x(x): pass", "line 1: which"),
        ("@pytest.mark.skipif(True, reason='x')\ndef test_x(): pass", "line 1: skipif"),
        ("def test_x():\n    pytest.skip('needs a compiler')", "line 2: skip"),
        ("subprocess.run(['oddjob', '-x'])", "line 1: runs oddjob"),
    ],
)
def test_what_is_found(source: str, found: str) -> None:
    assert hidden_wants(source) == [found]


def test_tests_say_what_they_want() -> None:
    found = {str(path.relative_to(TESTS)): hidden_wants(path.read_text()) for path in SOURCES}
    assert {path: wants for path, wants in found.items() if wants} == {}


def test_what_ci_installs() -> None:
    programs = {"mksh", "toybox", "busybox", "gdb", "qemu-aarch64", "aarch64-linux-gnu-gcc"}
    variables = {"QNN_HARNESS_ADBD_ROOT", "QNN_HARNESS_ADB29", ANDROID, INSIST}
    assert installed_by_ci() >= programs | variables | {C_COMPILERS[0], DSP, HEXAGON}
    assert CI.read_text().index("apt-get install") < CI.read_text().index("make test")


@pytest.mark.parametrize("tool", ["no-such-program", "NO_SUCH_VARIABLE"])
def test_what_is_missing(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INSIST, raising=False)
    need(tool, "sh")
    with pytest.raises(pytest.skip.Exception, match=f"^needs {tool}$"):
        need(tool)
    monkeypatch.setenv(INSIST, "1")
    with pytest.raises(pytest.fail.Exception, match=f"{tool} is .* insisted on"):
        need(tool)


def test_what_no_package_has_is_named_even_where_all_is_insisted_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(INSIST, "1")
    monkeypatch.delenv(ANDROID, raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"^needs {ANDROID}$"):
        need(ANDROID)
