"""Mistakes and missing things end in one clear message and the right exit code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.ground.files.cache import cache_root
from tests.integration.device_runs import DeviceRuns, Finished

NIGHT = pytest.mark.nightly
OFFLINE = {
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "",
    "PIP_CONFIG_FILE": "/dev/null",
    "PIP_EXTRA_INDEX_URL": "",
}


def says_once(done: Finished, text: str) -> None:
    told = [line for line in done.output.splitlines() if not line.startswith("rootdir:")]
    lines = [line for line in told if text in line]
    assert len(lines) == 1, done.output
    assert "Traceback" not in done.output, done.output


@pytest.mark.parametrize(
    ("typo", "line", "told"),
    [
        pytest.param("simulatd: true", 4, "simulatd", marks=NIGHT),
        pytest.param("soc: QCS8551", 5, "QCS8550", marks=NIGHT),
        pytest.param("target: linux-x46", 6, "linux-x64", marks=NIGHT),
    ],
)
def test_a_typo_in_the_lab(lab: DeviceRuns, typo: str, line: int, told: str) -> None:
    key = typo.split(":")[0][:3]
    lines = lab.file.read_text().splitlines()
    lines[line - 1] = f"    {typo}"
    assert key
    lab.file.write_text("\n".join(lines))
    done = lab.run("-k", "tiny and 66")
    assert done.code == 2, done.output
    assert f"devices.yaml:{line}" in done.output
    assert told in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("option", "value", "valid"),
    [
        ("--qnn", "2.99.0", "2.51.0"),
        pytest.param("--compiler", "nonsense", "2.51.0", marks=NIGHT),
        pytest.param("--device", "sim-v74", "sim-v73", marks=NIGHT),
        pytest.param("--backend", "npu", "htp", marks=NIGHT),
    ],
)
def test_an_unknown_choice(lab: DeviceRuns, option: str, value: str, valid: str) -> None:
    done = lab.run(option, value, "-k", "tiny and 66")
    assert done.code == 2, done.output
    says_once(done, value)
    assert valid in done.output


@pytest.mark.nightly
def test_no_lab_file(lab: DeviceRuns) -> None:
    lab.file.unlink()
    done = lab.run("-k", "tiny and 66")
    assert done.code == 2
    says_once(done, "devices.yaml")


@pytest.mark.nightly
def test_no_compiler(lab: DeviceRuns, tmp_path: Path) -> None:
    done = lab.run(
        "-k",
        "tiny and 66",
        PATH="/nonexistent",
        CC="",
        QNN_HARNESS_CACHE=str(borrowed_cache(tmp_path, without="probe")),
    )
    assert done.code == 2, done.output
    says_once(done, "no C compiler")


def test_no_network_on_the_first_run(lab: DeviceRuns, tmp_path: Path) -> None:
    done = lab.run("-k", "tiny and 66", QNN_HARNESS_CACHE=str(tmp_path / "cache"), **OFFLINE)
    assert done.code == 3, done.output
    says_once(done, "onnxruntime-qnn")
    ends = [(case["outcome"], case["cause"], case["attempt"]) for case in done.cases]
    assert ends == [("error", "infra", 1)] * 3
    assert "could not fetch onnxruntime-qnn" in done.cases[-1]["error"]["message"]


@pytest.mark.nightly
def test_a_damaged_wheel_is_named_and_not_used(lab: DeviceRuns, tmp_path: Path) -> None:
    cache = borrowed_cache(tmp_path, without="")
    (wheel,) = (cache / "wheels").rglob("onnxruntime_qnn-2.7.0-*x86_64.whl")
    content = bytearray(wheel.read_bytes())
    content[len(content) // 2] ^= 1
    wheel.unlink()  # it is a link to the user's own cache, which must stay whole
    wheel.write_bytes(content)
    settings = OFFLINE | {"QNN_HARNESS_CACHE": str(cache)}
    done = lab.run("-k", "tiny and 66", "--qnn", "2.51.0", **settings)
    assert done.code == 3, done.output
    says_once(done, "damaged")


@pytest.mark.nightly
def test_a_damaged_wheel_is_fetched_again_and_that_is_said(lab: DeviceRuns, tmp_path: Path) -> None:
    cache = borrowed_cache(tmp_path, without="")
    (wheel,) = (cache / "wheels").rglob("onnxruntime_qnn-2.7.0-*x86_64.whl")
    good = tmp_path / "index" / wheel.name
    good.parent.mkdir()
    good.hardlink_to(wheel)
    wheel.unlink()
    wheel.write_bytes(b"not a wheel")
    settings = OFFLINE | {"PIP_FIND_LINKS": str(good.parent), "QNN_HARNESS_CACHE": str(cache)}
    done = lab.run("-k", "tiny and 66 and sequential", "--qnn", "2.51.0", **settings)
    assert done.code == 0, done.output
    says_once(done, "was damaged")
    assert wheel.read_bytes() == good.read_bytes()


def test_a_full_device(lab: DeviceRuns) -> None:
    lab.file.write_text(lab.file.read_text() + "    storage_limit_mb: 30\n")
    done = lab.run("-k", "tiny and 66")
    assert done.code == 3, done.output
    says_once(done, "No space left on device")
    left = sum(path.stat().st_size for path in (lab.folder / "simulated").rglob("*.so"))
    assert left == 0


def borrowed_cache(tmp_path: Path, *, without: str) -> Path:
    """A copy of the user's cache made of hard links, so that it costs nothing."""
    copy = tmp_path / "cache"
    for name in ("wheels", "unpacked", "contexts", "probe", "keys"):
        source = cache_root() / name
        if name != without and source.exists():
            shutil.copytree(source, copy / name, copy_function=link_or_copy)
    return copy


def link_or_copy(source: str, target: str) -> None:
    try:
        Path(target).hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)
