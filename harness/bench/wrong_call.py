"""Who is at fault for an exception that nobody foresaw, told by its traceback.

A test that calls the harness with what it does not take makes it fail somewhere inside. What a
function of the harness takes stands in its signature. The arguments of the last call that a test
made into the harness are held against that afterwards, so that no call costs anything.
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
"""A function of a module that has not got a name."""
_CALL: Final = re.compile(r"(?P<name>[\w.]+?)(\.__init__)?\(\) (?=got|missing|takes)")
_INSTANCE: Final = re.compile("^(an? (valid )?dictionary or )?(an )?instance of ")
_MODULE: Final = re.compile(r"\b(typing|collections\.abc)\.")
_INSTALLED: Final = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def at_fault(
    failure: BaseException | None, test: str = ""
) -> tuple[Literal["config", "harness"], str | None]:
    """`config` if the test's code is to blame, else `harness`; and its call that was wrong, if so.

    What libraries raise is the fault of the test or the harness, whichever called them. What pytest
    raises before either is at work is the fault of the test. `test` is the file of the test, which
    may be installed like a library.
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
    """The line of a test, file:line, that called the harness; None if that is not known."""
    caller, called, _ = _calls(failure, test)
    return None if caller is None or called is None else f"{caller[0].name}:{caller[1]}"


def line_at_work() -> str | None:
    """The line of a test, file:line, that is calling the harness now; None if no test is."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and _package_of(frame) == _PACKAGE:
        frame = frame.f_back
    return None if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def with_its_place(error: ConfigError, test: str) -> ConfigError:
    """An error, with the line of the test that made it unless it names a line already."""
    caller, called, _ = _calls(error, test)
    if caller is None or called is None or error.line is not None:
        return error
    file, line = caller[0].name, caller[1]
    # some are made of other words than these, such as an ArtefactError
    made = type(error) if type(error).__init__ is ConfigError.__init__ else ConfigError
    if error.file is not None:
        return made(error.args[0], file=file, line=line, more=error.more)
    return made(
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
    """The last line of a test's code that was at work, what of the harness it called, and the
    package in which the failure arose.
    """
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
    """What the harness has not got and a test asked it for: a name, or an argument."""
    from harness.core.yaml_document import did_you_mean

    if isinstance(failure, AttributeError):
        of: Any = failure.obj
        of = of if isinstance(of, type | types.ModuleType) else type(of)
        names = [name for name in dir(of) if not name.startswith("_")]
        ours = getattr(of, "__module__", of.__name__).partition(".")[0] == _PACKAGE
        return f"{failure}{did_you_mean(failure.name or '', names)}" if ours else None
    call = _CALL.match(str(failure)) if isinstance(failure, TypeError) else None
    return str(failure) if call is not None and _is_ours(call["name"]) else None


def _is_ours(path: str) -> bool:
    """Whether what a test calls by this name is the harness's."""
    for scope in (harness, harness.steps, harness.experiments):
        with contextlib.suppress(AttributeError):
            return callable(attrgetter(path)(scope))
    return False


def _misfits(frame: FrameType) -> Iterator[str]:
    """The arguments of a call that are not what its signature says."""
    code, function = frame.f_code, _function_of(frame)
    if function is None:
        return
    number = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:number]
    several = code.co_varnames[number] if code.co_flags & inspect.CO_VARARGS else None
    scope = vars(sys.modules.get(function.__module__, sys.modules[__name__]))
    for name, said in inspect.get_annotations(function).items():
        if name not in (*names, several) or name not in frame.f_locals:
            continue
        value = frame.f_locals[name]
        for one in value if name == several else (value,):
            if problem := _misfit(one, _hint(said, scope), name):
                yield f"{_name_of(function)}: {problem}"


def _function_of(frame: FrameType) -> Callable[..., Any] | None:
    code, held = frame.f_code, frame.f_locals
    owner = held.get(code.co_varnames[0]) if code.co_argcount else None
    of_class = owner if isinstance(owner, type) else type(owner)
    for found in (getattr(of_class, code.co_name, None), frame.f_globals.get(code.co_name)):
        found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        found = inspect.unwrap(found) if callable(found) else None
        if getattr(found, "__code__", None) is code:
            return found
    return None


def _name_of(function: Callable[..., Any]) -> str:
    # what is called by the name of its class
    return function.__qualname__.removesuffix(".__init__")


def _hint(said: object, scope: Mapping[str, Any]) -> Any:
    """A type, Any for what is imported for type checkers only."""
    if not isinstance(said, str):
        return said
    try:
        return eval(said, dict(scope))  # our own source
    except Exception:
        return Any


def _misfit(value: object, hint: Any, where: str) -> str | None:
    """Why a value is not of a type, with the place inside it; None if it is, or cannot be told."""
    from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

    strict = ConfigDict(strict=True, arbitrary_types_allowed=True)
    try:
        TypeAdapter(tuple[hint], config=strict).validate_python((value,))
    except PydanticUserError:  # what nobody can ask for at run time
        return None
    except ValidationError as error:
        # of a union, what says a place inside is what the value might have been meant for
        wrong = max(error.errors(), key=lambda one: len(_indices(one["loc"])))
        inside, given = "".join(_indices(wrong["loc"])[1:]), wrong["input"]
        wanted = _INSTANCE.sub("", wrong["msg"].removeprefix("Input should be "))
        if not inside:
            wanted = hint.__name__ if isinstance(hint, type) else _MODULE.sub("", str(hint))
        told = f"{reprlib.repr(given)} ({type(given).__name__})"
        return f"{where}{inside} must be {wanted}, is {told}"
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    scope = vars(sys.modules.get(type(value).__module__, sys.modules[__name__]))
    inner = ((f"{where}.{one.name}", getattr(value, one.name), one.type) for one in fields)
    found = (_misfit(part, _hint(said, scope), place) for place, part, said in inner)
    return next(filter(None, found), None)


def _indices(place: tuple[int | str, ...]) -> list[str]:
    return [f"[{part}]" for part in place if isinstance(part, int)]


def require(kind: type, *given: object) -> None:
    """Raises TypeError for what could be noted now and would break the record later.

    What the signature says of it is told by `wrong_call`.
    """
    for one in given:
        if not isinstance(one, kind):
            raise TypeError(f"{one!r:.60} is no {kind.__name__}")
