"""Real apps, which packages of PyPI and npm ship: none has QNN, and none gets a finding."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.integration.in_process import qnn_harness

pytestmark = [pytest.mark.nightly, pytest.mark.needs("npm")]

PIP = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", "."]
PACKAGES = {
    "uiautomator2": [*PIP, "uiautomator2==3.7.1"],
    "io.appium.settings": ["npm", "pack", "io.appium.settings@8.0.10"],
    "appium-uiautomator2-server": ["npm", "pack", "appium-uiautomator2-server@10.6.6"],
}


def apks(folder: Path) -> list[Path]:
    """Unpack the apps of a package."""
    (package,) = folder.iterdir()
    contents: dict[str, bytes] = {}
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            contents = {name: wheel.read(name) for name in wheel.namelist()}
    else:
        with tarfile.open(package) as archive:
            for member in archive.getmembers():
                if (stream := archive.extractfile(member)) is not None:
                    contents[member.name] = stream.read()
    for name, content in contents.items():
        if name.endswith(".apk"):
            (folder / Path(name).name).write_bytes(content)
    return sorted(folder.glob("*.apk"))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_real_app_has_no_finding(package: str, tmp_path: Path) -> None:
    subprocess.run(PACKAGES[package], cwd=tmp_path, check=True, timeout=300)
    found = apks(tmp_path)
    assert found
    for path in found:
        completed = qnn_harness("app", "check", path)
        assert completed.returncode == 0, completed.stderr
        assert "targetSdk 3" in completed.stdout
        assert "contains nothing of QNN" in completed.stdout
