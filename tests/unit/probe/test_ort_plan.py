"""Steps for ORT: the fields they become, and what is refused before it travels."""

import pytest

from harness.core.errors import ConfigError
from harness.probe.ort_plan import QNN_EP, Provider, dump_options, ort_run, ort_session

NO_FALLBACK = "session.disable_cpu_ep_fallback=1"
RECORDED = "session.record_ep_graph_assignment_info=1"


def test_a_session_on_qnn_refuses_the_cpu() -> None:
    step = ort_session(3, "/m.onnx", Provider(options={"backend_path": "/libQnnHtp.so"}))
    assert step.fields == {
        "context": "3",
        "file": "/m.onnx",
        "threads": "1",
        "ep": QNN_EP,
        "device": "0",
        "provider.0": "backend_path=/libQnnHtp.so",
        "session.0": NO_FALLBACK,
        "session.1": RECORDED,
    }


def test_what_else_is_asked_of_a_session() -> None:
    assert NO_FALLBACK not in ort_session(0, "/m", Provider(), fallback=True).fields.values()
    option = {"session.disable_cpu_ep_fallback": "0"}  # what the case says counts more
    chosen = ort_session(0, "/m", Provider(), options=option).fields
    assert chosen["session.0"] == "session.disable_cpu_ep_fallback=0"
    of_cpu = ort_session(0, "/m").fields
    assert "ep" not in of_cpu
    assert NO_FALLBACK not in of_cpu.values()
    assert ort_session(0, "/m", Provider("QNN", builtin=True)).fields["ep"] == "builtin:QNN"
    dumps = {embed: dump_options("/x/c.onnx", embed=embed) for embed in (False, True)}
    assert [options["ep.context_embed_mode"] for options in dumps.values()] == ["0", "1"]
    assert dumps[True]["ep.context_file_path"] == "/x/c.onnx"
    assert ort_run(2).fields == {"context": "2", "tolerance": "0", "repeat": "1"}


@pytest.mark.parametrize("options", [{"": "x"}, {"a=b": "x"}, {f"key{at}": "" for at in range(25)}])
def test_options_that_no_plan_can_hold(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        ort_session(0, "/m", Provider(options=options))


def test_as_many_options_as_possible_fit_a_step() -> None:
    most = {f"key{number}": "v" for number in range(24)}
    few = {f"key{number}": "v" for number in range(22)}
    assert len(ort_session(0, "/m", Provider(options=most), options=few).fields) <= 64
