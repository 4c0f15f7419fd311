"""The layers to the DSP as a table: each of them failing, with texts as real systems print them."""

import re
from dataclasses import replace

import pytest

from harness.diagnosis.diagnosis import diagnosed
from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.rule_sources import own_rules
from harness.doctor.check_results import Checked, CheckResult, one_line
from harness.doctor.device_checks import (
    _LAYERS,
    _REACHED_AT,
    ANSWER,
    GRAPH,
    SESSION,
    DspAttempt,
    ExaminedDevice,
    dsp_layers,
)
from harness.runtimes.runtime import LibraryFacts, SdkBuild
from tests.snapshots import Snapshot
from tests.unit.doctor.answers import BOARD, PHONE
from tests.unit.doctor.test_device_checks import examined, shown

BUILD = SdkBuild("2.51.0", "260929181845")
LIBRARIES = (
    LibraryFacts("libQnnHtp.so", "backend-htp", build=BUILD),
    LibraryFacts("libQnnHtpV75Stub.so", "stub", 75, build=BUILD),
    LibraryFacts("libQnnHtpV75Skel.so", "skel", 75, build=BUILD),
    LibraryFacts("libQnnHtpV73Skel.so", "skel", 73, build=SdkBuild("2.40.0", "")),
)
OPEN = DspAttempt(CheckResult("ok", "backend and device came up"))
UNTRIED = DspAttempt(CheckResult("unknown", "not tried"))
LEFT_OUT = DspAttempt(CheckResult("not-applicable", "left out"))
NO_GRAPH = DspAttempt(CheckResult("unknown", "not tried, no session came up"))


def climbed(
    device: ExaminedDevice,
    libraries: tuple[LibraryFacts, ...] | None = LIBRARIES,
    session: DspAttempt = UNTRIED,
    graph: DspAttempt = UNTRIED,
) -> dict[str, Checked]:
    checks = dsp_layers(device, libraries, session, graph)
    by_name = {check.name: check for check in checks}
    assert list(by_name) == [*_LAYERS, "DSP skel", "stub and skel", SESSION, GRAPH, ANSWER]
    return by_name


def is_end(layers: dict[str, Checked], name: str) -> bool:
    """Return whether the answer is that the way ends at a layer."""
    return layers[ANSWER].status == "fail" and f" {name}: " in layers[ANSWER].found


def failed(message: str, *evidence: str, code: int = 14001) -> DspAttempt:
    """A session that ended so, diagnosed as the doctor does it."""
    record = ErrorRecord.of(api="QnnDevice_create", code=code, message=message)
    error = diagnosed("failed", record, evidence)
    return DspAttempt(CheckResult("fail", f"failed: {message}", "a hint"), error, evidence)


def test_a_phone_whose_way_is_open(snapshot: Snapshot) -> None:
    layers = climbed(examined(PHONE), session=OPEN, graph=OPEN).values()
    assert {(check.status, check.advice) for check in layers} == {("ok", "")}
    assert list(map(shown, layers)) == snapshot


def test_a_board_with_nothing_of_the_vendor(snapshot: Snapshot) -> None:
    layers = climbed(examined(BOARD, "linux-arm64", facts={"soc": "QCS6490"}))
    assert {name: check.status for name, check in layers.items()} == {
        "DSP nodes": "fail",
        "SELinux": "not-applicable",
        "DSP processor": "ok",
        "libcdsprpc.so": "fail",
        "unsigned PD": "warn",
        "DSP skel": "fail",
        "stub and skel": "fail",
        SESSION: "unknown",
        GRAPH: "unknown",
        ANSWER: "fail",
    }
    assert layers[ANSWER].advice == layers["DSP nodes"].advice
    assert list(map(shown, layers.values())) == snapshot


# As audit prints them; scontext and labels differ between releases and vendors.
ANDROID_8 = (
    'avc: denied { read } for comm="qnn-probe" name="adsprpc-smd" dev="tmpfs" ino=14893 '
    "scontext=u:r:shell:s0 tcontext=u:object_r:qdsp_device:s0 tclass=chr_file permissive=0"
)
# GenieX#989, Android 15; ai-hub-apps#41, Android 14; fastrpc#266, Android 14 on a vehicle
SHELL_FILE = (
    'type=1400 audit(0.0:3156): avc:  denied  { read } for  name="fastrpc_shell_unsigned_3" '
    'dev="sde9" ino=37 scontext=u:r:shell:s0 tcontext=u:object_r:vendor_file:s0 tclass=file '
    "permissive=0"
)
OF_AN_APP = (
    'type=1400 audit(0.0:1985): avc: denied { open } for path="/dev/adsprpc-smd" dev="tmpfs" '
    "ino=1406 scontext=u:r:untrusted_app:s0:c120,c256 tcontext=u:object_r:vendor_qdsp_device:s0 "
    "tclass=chr_file permissive=0 app=com.quicinc.imageclassification"
)
SECURE_NODE = (
    'type=1400 audit(0.0:140): avc:  denied  { read } for  name="adsprpc-smd-secure" dev="tmpfs" '
    "ino=842 scontext=u:r:shell:s0 tcontext=u:object_r:vendor_xdsp_device:s0 tclass=chr_file "
    "permissive=0"
)
OF_A_BOARD = (
    "[  812.410] audit: type=1400 audit(1738760000.123:45): avc:  denied  { read } for  pid=812 "
    'comm="qnn-probe" name="fastrpc-cdsp" dev="devtmpfs" ino=101 scontext=user_u:user_r:user_t:s0 '
    "tcontext=system_u:object_r:device_t:s0 tclass=chr_file permissive=0"
)


@pytest.mark.parametrize(
    ("line", "account", "mode", "status"),
    [
        (ANDROID_8, None, "Enforcing", "fail"),
        (SHELL_FILE, None, "Enforcing", "fail"),
        (OF_A_BOARD, "uid=1000(u) context=user_u:user_r:user_t:s0", "Enforcing", "fail"),
        (ANDROID_8, None, "Permissive", "ok"),
        (SHELL_FILE.replace("permissive=0", "permissive=1"), None, "Enforcing", "ok"),
        (OF_AN_APP, None, "Enforcing", "ok"),
        (SECURE_NODE, None, "Enforcing", "ok"),
        (ANDROID_8, "uid=0(root) context=u:r:su:s0", "Enforcing", "ok"),
    ],
)
def test_what_selinux_refuses(
    line: str, account: str | None, mode: str | None, status: str
) -> None:
    device = examined(PHONE)
    answers = replace(
        device.answers, denials=(line,), selinux=mode, account=account or device.answers.account
    )
    layers = climbed(replace(device, answers=answers))
    assert layers["SELinux"].status == status
    assert one_line(line) in layers["SELinux"].found
    assert (layers[ANSWER].status == "fail") == (status == "fail")


@pytest.mark.parametrize(
    ("old", "new", "name", "status"),
    [
        ("r /dev/adsprpc-smd\r\n", "- /dev/adsprpc-smd\r\n", "DSP nodes", "fail"),
        ("r /dev/adsprpc-smd\r\n- /dev/adsprpc-smd-secure\r\n", "", "DSP nodes", "fail"),
        ("Enforcing", "", "SELinux", "unknown"),
        ("state:running", "state:crashed", "DSP processor", "fail"),
        ("remoteproc-cdsp", "remoteproc-adsp", "DSP processor", "unknown"),
        ("r /vendor/lib64/libcd", "- /vendor/lib64/libcd", "libcdsprpc.so", "fail"),
        ("r /vendor/dsp/cdsp/fast", "- /vendor/dsp/cdsp/fast", "unsigned PD", "unknown"),
        ("shell_unsigned_3", "shell_9", "unsigned PD", "warn"),
    ],
)
def test_one_layer_is_otherwise(old: str, new: str, name: str, status: str) -> None:
    assert old in PHONE
    layers = climbed(examined(PHONE.replace(old, new)))
    assert layers[name].status == status
    assert layers[ANSWER].status == ("fail" if status == "fail" else "unknown")
    if status == "fail":
        assert is_end(layers, name)
        assert layers[ANSWER].advice == layers[name].advice


def test_libraries_of_two_builds_and_none_at_all() -> None:
    other = replace(LIBRARIES[2], build=SdkBuild("2.28.0", "241029"))
    layers = climbed(examined(PHONE), (*LIBRARIES[:2], other))
    assert layers["stub and skel"].status == "fail"
    assert is_end(layers, "stub and skel")
    layers = climbed(examined(PHONE), LIBRARIES[:2])
    assert (layers["DSP skel"].status, layers["stub and skel"].status) == ("warn", "ok")
    layers = climbed(examined(PHONE), None)
    assert {layers[name].status for name in ("DSP skel", "stub and skel")} == {"unknown"}
    unbuilt = replace(LIBRARIES[1], build=None)
    assert climbed(examined(PHONE), (LIBRARIES[0], unbuilt))["stub and skel"].status == "unknown"


@pytest.mark.parametrize(
    ("tried", "layer"),
    [
        (failed("libcdsprpc.so: cannot open shared object file: No such file"), "libcdsprpc.so"),
        (failed("open_dev failed", ANDROID_8), "SELinux"),
        (failed("/dev/fastrpc-cdsp: open: Permission denied"), "DSP nodes"),
        (failed("createUnsignedPD failed"), "unsigned PD"),
        (
            failed(
                "DspTransport.openSession qnn_open failed, 0x80000406",
                "apps_std_fopen_with_env failed with 0x2 for libQnnHtpV75Skel.so (No such file)",
            ),
            "DSP skel",
        ),
        (failed("Stub lib id mismatch: expected (v2.51.0), detected (v2.28.0)"), "stub and skel"),
        (failed("SSR Detected"), "DSP processor"),
        (failed("something new"), SESSION),
        (failed("", code=1008), SESSION),
    ],
)
def test_a_session_that_ends_at_a_layer(tried: DspAttempt, layer: str) -> None:
    """Its own log says more than what can be read: everything that can be is in order here."""
    layers = climbed(examined(PHONE), session=tried, graph=NO_GRAPH)
    assert layers[ANSWER].status == layers[layer].status == layers[SESSION].status == "fail"
    assert is_end(layers, layer)
    if tried.evidence:
        assert tried.evidence[-1] in layers[layer].found
    if layer != SESSION:
        assert f": {tried.error.message}" in layers[layer].found
        assert layers[layer].advice == tried.error.diagnosis.fix
    red = {name for name, check in layers.items() if check.status == "fail"}
    assert red == {layer, SESSION, ANSWER}
    spared = tried._replace(result=CheckResult("not-applicable", "this target cannot"))
    layers = climbed(examined(PHONE), session=spared, graph=NO_GRAPH)
    assert "fail" not in {check.status for check in layers.values()}


def test_of_what_the_device_looked_for_the_last_is_said() -> None:
    lines = [f"fopen failed for /{place}/libQnnHtpV75Skel.so" for place in "abc"]
    tried = failed("DspTransport.openSession qnn_open failed, 0x80000406", *lines, "else")
    text = climbed(examined(PHONE), session=tried, graph=NO_GRAPH)["DSP skel"].found
    assert [line in text for line in (*lines, "else")] == [False, True, True, False]


@pytest.mark.parametrize(
    ("changes", "name", "status"),
    [
        ({"owners": ()}, "DSP nodes", "fail"),
        ({"denials": (), "selinux": "Permissive"}, "SELinux", "ok"),
        ({"shells": {}}, "unsigned PD", "unknown"),
        ({"rpc_libraries": {"/a/x.so": "r"}}, "libcdsprpc.so", "ok"),
        ({"fastrpc": {"fastrpc-sdsp": "r", "fastrpc-adsp": "r"}}, "DSP nodes", "fail"),
    ],
)
def test_what_is_said_of_one_layer(changes: dict[str, object], name: str, status: str) -> None:
    device = examined(BOARD, "linux-arm64")
    if "fastrpc" in changes:
        changes = {"vitals": replace(device.answers.vitals, **changes)}  # type: ignore[arg-type]
    answers = replace(device.answers, **changes)  # type: ignore[arg-type]
    assert climbed(replace(device, answers=answers))[name].status == status


def test_of_a_skel_all_is_said_that_is_known(snapshot: Snapshot) -> None:
    """With an unknown HTP any skel will do, and none in particular is missed."""
    bare = re.sub("r /vendor/lib/rfsa/adsp/.*\r\n", "", PHONE)
    unknown = examined(bare, facts={"soc": None})
    layers = [
        climbed(examined(PHONE), LIBRARIES)["DSP skel"],
        climbed(examined(bare), LIBRARIES)["DSP skel"],
        climbed(examined(bare), None)["DSP skel"],
        climbed(examined(PHONE), None)["DSP skel"],
        climbed(unknown, LIBRARIES)["DSP skel"],
        climbed(unknown, ())["DSP skel"],
        climbed(unknown, ())["stub and skel"],
    ]
    assert list(map(shown, layers)) == snapshot


def test_what_no_rule_knows_a_cure_for_has_the_hint_of_the_attempt() -> None:
    tried = failed("createUnsignedPD failed\nand more of it")
    diagnosis = tried.error.diagnosis.model_copy(update={"fix": None})
    error = tried.error.model_copy(update={"diagnosis": diagnosis})
    check = climbed(examined(PHONE), session=tried._replace(error=error))["unsigned PD"]
    assert check.advice == "a hint"
    assert "more of it" not in check.found


def test_a_denial_is_held_against_selinux_only_where_access_was_denied() -> None:
    tried = failed("createUnsignedPD failed", ANDROID_8)
    other = failed("createUnsignedPD failed").error
    layers = climbed(examined(PHONE), session=tried._replace(error=other), graph=NO_GRAPH)
    assert (layers["SELinux"].status, layers["unsigned PD"].status) == ("ok", "fail")


def test_a_session_that_comes_up_proves_what_is_below_it() -> None:
    """Apps that may not open a node are let in by a service; whatever was read, the way is open."""
    device = examined(PHONE.replace("r /dev/adsprpc-smd\r\n", "- /dev/adsprpc-smd\r\n"))
    layers = climbed(device, session=OPEN, graph=OPEN)
    assert layers["DSP nodes"].status == layers[ANSWER].status == "ok"
    graph = failed("Graph execution failed", code=6031)
    layers = climbed(device, session=OPEN, graph=graph)
    assert is_end(layers, GRAPH)


@pytest.mark.parametrize(
    ("session", "graph", "status"),
    [
        (UNTRIED, NO_GRAPH, "unknown"),
        (LEFT_OUT, LEFT_OUT, "not-applicable"),
        (OPEN, LEFT_OUT, "ok"),
        (OPEN, DspAttempt(CheckResult("unknown", "late")), "unknown"),
    ],
)
def test_what_the_answer_is_where_nothing_fails(
    session: DspAttempt, graph: DspAttempt, status: str
) -> None:
    assert climbed(examined(PHONE), session=session, graph=graph)[ANSWER].status == status


def test_a_simulator_says_what_is_simulated(snapshot: Snapshot) -> None:
    """No DSP is behind a simulated board, so a session proves nothing of what leads to one."""
    config = {"serial": None, "simulated": True, "soc": "QCS8550"}
    layers = climbed(examined(BOARD, "linux-x64", config=config), session=OPEN, graph=OPEN)
    for name in (*_LAYERS, "DSP skel", "stub and skel"):
        assert layers[name].status == "not-applicable"
    assert layers[ANSWER].status == "ok"
    device = examined(BOARD, "linux-arm64", config=config)
    board = climbed(device, LIBRARIES[:1], session=OPEN, graph=OPEN)
    assert (board["stub and skel"].status, board[ANSWER].status) == ("fail", "fail")
    assert list(map(shown, (layers["DSP nodes"], layers[ANSWER], board["DSP nodes"]))) == snapshot


def test_every_diagnosis_that_names_a_layer_is_known() -> None:
    assert set(_REACHED_AT) <= {rule.id for rule in own_rules()}
    assert set(_REACHED_AT.values()) <= {*_LAYERS, "DSP skel", "stub and skel"}
