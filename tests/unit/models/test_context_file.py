"""Context files as values: what a test writes, and what goes to another process."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from harness import ContextFile, ContextSource, Model
from harness.bench.case_placement import Need, Placement
from harness.core.errors import ConfigError

FILE = ContextFile("a/model.bin", inputs="in", expected=["y.raw", "/z.npy"], tolerance=0.5)


def test_relative_paths_are_those_of_the_tests_folder() -> None:
    resolved = FILE.seen_from(Path("/mine"))
    assert (resolved.path, resolved.inputs) == (Path("/mine/a/model.bin"), Path("/mine/in"))
    assert resolved.expected == (Path("/mine/y.raw"), Path("/z.npy"))
    assert resolved == resolved.seen_from(Path("/elsewhere"))
    assert ContextFile("model.bin", name="mine").seen_from(Path("/mine")).name == "mine"


def test_a_source_has_a_name_and_says_whether_it_is_compiled() -> None:
    sources: list[ContextSource] = [FILE, Model("tiny"), ContextFile("a/b.bin", name="mine")]
    assert all(isinstance(source, ContextSource) for source in sources)
    assert [str(source) for source in sources] == ["model.bin", "tiny", "mine"]
    assert [source.compiled for source in sources] == [False, True, False]
    assert len({FILE, ContextFile(Path("a/model.bin")), ContextFile("a/model.bin")}) == 2


@pytest.mark.parametrize("tolerance", [-1, float("nan"), float("inf")])
def test_a_tolerance_that_is_none(tolerance: float) -> None:
    with pytest.raises(ConfigError) as error:
        ContextFile("model.bin", tolerance=tolerance)
    assert error.value.field == "tolerance"


def test_a_need_is_the_same_in_another_process() -> None:
    need = Need(
        Placement(device="a", backend="htp", qnn="2.51.0", compiler=None),
        (FILE, Model("tiny"), ContextFile("x")),
    )
    kind = TypeAdapter(Need)
    assert kind.validate_json(kind.dump_json(need)) == need
