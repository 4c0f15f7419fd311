"""Attribution of an unexpected exception to the test or to the harness, by its traceback.

A test that calls the harness with wrong arguments makes it fail somewhere inside. So the arguments
of the last call from the test into the harness are checked against the signature, but only after
a failure: calls cost nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
import reprlib
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal

import harness
from harness.core.errors import ConfigError

_PACKAGE: Final = __name__.partition(".")[0]
REFUSED: Final = "pytest cannot run the test as it is written"
_LAZY: Final = "__getattr__"
"""The function that a module calls for a missing name."""
_CALL: Final = re.compile(r"(?P<name>[\w.]+?)(\.__init__)?\(\) (?=got|missing|takes)")
_INSTANCE: Final = re.compile("^(an? (valid )?dictionary or )?(an )?instance of ")
_MODULE: Final = re.compile(r"\b(typing|collections\.abc)\.")
_INSTALLED: Final = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def at_fault(
    failure: BaseException | None, test: str = ""
) -> tuple[Literal["config", "harness"], str | None]:
    """Return `config` and the wrong call if the test is at fault, else `harness` and None.

    An exception of a library counts against its caller, the test or the harness; one that pytest
    raises before either runs counts against the test. `test` is the file of the test, which may be
    installed like a library.
    """
    caller, called, last = _calls(failure, test)
    if caller is None:
        return ("config", REFUSED) if called is None and last == "_pytest" else ("harness", None)
    if called is None or called.f_code.co_name == _LAZY:
        problem = _not_there(failure)
    else:
        problem = next(_misfits(called), None)
    if problem is None:
        return "config" if called is None else "harness", None
    return "config", f"{caller[0].name}:{caller[1]}: {problem}"


def place_of(failure: BaseException | None, test: str) -> str | None:
    """Return the line of the test, file:line, that called the harness; None if unknown."""
    caller, called, _ = _calls(failure, test)
    return None if caller is None or called is None else f"{caller[0].name}:{caller[1]}"


def line_at_work() -> str | None:
    """Return the line of the test, file:line, that is calling the harness; None without one."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and _package_of(frame) == _PACKAGE:
        frame = frame.f_back
    return None if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def with_its_place(error: ConfigError, test: str) -> ConfigError:
    """Return an error with the line of the test that caused it, unless it names a line already."""
    caller, called, _ = _calls(error, test)
    if caller is None or called is None or error.line is not None:
        return error
    file, line = caller[0].name, caller[1]
    # subclasses such as ArtefactError have constructors of their own
    error_type = type(error) if type(error).__init__ is ConfigError.__init__ else ConfigError
    if error.file is not None:
        return error_type(error.args[0], file=file, line=line, more=error.more)
    return error_type(
        error.problem,
        file=file,
        line=line,
        field=error.field,
        choices=error.choices,
        more=error.more,
    )


def _calls(
    failure: BaseException | None, test: str
) -> tuple[tuple[Path, int] | None, FrameType | None, str]:
    """Return the last line of the test's code, the frame it called and the package that failed."""
    caller: tuple[Path, int] | None = None
    called: FrameType | None = None
    last = ""
    trace = failure.__traceback__ if failure else None
    while trace is not None:
        frame = trace.tb_frame
        last = _package_of(frame)
        if last == _PACKAGE:
            called = called or frame
        elif (file := frame.f_code.co_filename) == test or not file.startswith((*_INSTALLED, "<")):
            caller, called = (Path(file), trace.tb_lineno), None
        trace = trace.tb_next
    return caller, called, last


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _not_there(failure: BaseException | None) -> str | None:
    """Return the message for a missing name or a wrong argument of the harness, else None."""
    from harness.core.yaml_document import did_you_mean

    if isinstance(failure, AttributeError):
        owner: Any = failure.obj
        owner = owner if isinstance(owner, type | types.ModuleType) else type(owner)
        names = [name for name in dir(owner) if not name.startswith("_")]
        ours = getattr(owner, "__module__", owner.__name__).partition(".")[0] == _PACKAGE
        return f"{failure}{did_you_mean(failure.name or '', names)}" if ours else None
    call = _CALL.match(str(failure)) if isinstance(failure, TypeError) else None
    return str(failure) if call is not None and _is_ours(call["name"]) else None


def _is_ours(path: str) -> bool:
    """Return whether this dotted name is a callable of the harness."""
    for scope in (harness, harness.steps, harness.experiments):
        with contextlib.suppress(AttributeError):
            return callable(attrgetter(path)(scope))
    return False


def _misfits(frame: FrameType) -> Iterator[str]:
    """Yield a message for each argument of a call that does not match the signature."""
    code, function = frame.f_code, _function_of(frame)
    if function is None:
        return
    number = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:number]
    several = code.co_varnames[number] if code.co_flags & inspect.CO_VARARGS else None
    scope = vars(sys.modules.get(function.__module__, sys.modules[__name__]))
    for name, annotation in inspect.get_annotations(function).items():
        if name not in (*names, several) or name not in frame.f_locals:
            continue
        value = frame.f_locals[name]
        for item in value if name == several else (value,):
            if problem := _misfit(item, _hint(annotation, scope), name):
                yield f"{_name_of(function)}: {problem}"


def _function_of(frame: FrameType) -> Callable[..., Any] | None:
    code, variables = frame.f_code, frame.f_locals
    owner = variables.get(code.co_varnames[0]) if code.co_argcount else None
    of_class = owner if isinstance(owner, type) else type(owner)
    for named in (getattr(of_class, code.co_name, None), frame.f_globals.get(code.co_name)):
        named = named.fget if isinstance(named, property) else getattr(named, "__func__", named)
        function = inspect.unwrap(named) if callable(named) else None
        if getattr(function, "__code__", None) is code:
            return function
    return None


def _name_of(function: Callable[..., Any]) -> str:
    # a class is called by its own name
    return function.__qualname__.removesuffix(".__init__")


def _hint(annotation: object, scope: Mapping[str, Any]) -> Any:
    """Return the type of an annotation; Any if it is only imported for type checkers."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, dict(scope))  # our own source
    except Exception:
        return Any


def _misfit(value: object, hint: Any, place: str) -> str | None:
    """Return why a value does not match a type, None if it does or if it cannot be checked."""
    from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

    strict = ConfigDict(strict=True, arbitrary_types_allowed=True)
    try:
        TypeAdapter(tuple[hint], config=strict).validate_python((value,))
    except PydanticUserError:  # a type that cannot be checked at run time
        return None
    except ValidationError as error:
        # of the members of a union, the one with the deepest error was probably meant
        wrong = max(error.errors(), key=lambda detail: len(_indices(detail["loc"])))
        inside, actual = "".join(_indices(wrong["loc"])[1:]), wrong["input"]
        expected = _INSTANCE.sub("", wrong["msg"].removeprefix("Input should be "))
        if not inside:
            expected = hint.__name__ if isinstance(hint, type) else _MODULE.sub("", str(hint))
        shown = f"{reprlib.repr(actual)} ({type(actual).__name__})"
        return f"{place}{inside} must be {expected}, is {shown}"
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    scope = vars(sys.modules.get(type(value).__module__, sys.modules[__name__]))
    inner = ((f"{place}.{field.name}", getattr(value, field.name), field.type) for field in fields)
    problems = (_misfit(part, _hint(annotation, scope), path) for path, part, annotation in inner)
    return next(filter(None, problems), None)


def _indices(place: tuple[int | str, ...]) -> list[str]:
    return [f"[{part}]" for part in place if isinstance(part, int)]


def require(kind: type, *values: object) -> None:
    """Raise TypeError for a value that would break the record later."""
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r:.60} is no {kind.__name__}")
