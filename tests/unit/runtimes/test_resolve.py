"""Version specs of users, and uses of the files of a wheel."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.core.local_file import LocalFile, content_key
from harness.runtimes.catalog import Catalog, resolve_versions
from harness.runtimes.pypi import all_versions, known_sha256, use_of
from tests.properties import damaged, reached, reaches

ALL = ["2.47.0", "2.48.40", "2.49.40", "2.50.40", "2.51.0"]


@pytest.mark.parametrize(
    ("spec", "versions"),
    [
        ("2.51.0", ["2.51.0"]),
        ("2.51", ["2.51.0"]),
        ("v2.48", ["2.48.40"]),
        ("latest", ["2.51.0"]),
        ("all", ALL),
        ("2.51.0,2.47.0", ["2.51.0", "2.47.0"]),
        (" 2.47 , latest ", ["2.47.0", "2.51.0"]),
        ("2.51,latest,2.51.0", ["2.51.0"]),
        ("2.50.40,all", ["2.50.40", "2.47.0", "2.48.40", "2.49.40", "2.51.0"]),
    ],
)
def test_versions_that_exist(spec: str, versions: list[str]) -> None:
    assert resolve_versions(spec) == versions


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("2.99.0", "unknown QNN version '2.99.0'"),
        ("2.5", "unknown QNN version '2.5'"),
        ("nonsense", "unknown QNN version 'nonsense'"),
        ("", "unknown QNN version ''"),
        ("2.51.0,", "unknown QNN version ''"),
        ("2", "'2' fits several QNN versions"),
        ("2.51.0.1", "unknown QNN version '2.51.0.1'"),
    ],
)
def test_versions_that_do_not(spec: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_versions(spec, field="--qnn")
    assert caught.value.problem == message
    assert caught.value.field == "--qnn"
    assert caught.value.choices is not None
    assert set(caught.value.choices) == {*ALL, "latest", "all"}


@reaches(0.01)
@given(damaged("2.51.0,2.47.0") | damaged("latest") | damaged("2.48"))
def test_any_text_is_a_version_or_a_config_error(spec: str) -> None:
    try:
        versions = resolve_versions(spec)
    except ConfigError:
        return
    reached()
    assert set(versions) <= set(ALL)
    assert len(set(versions)) == len(versions) > 0


def test_versions_are_in_order() -> None:
    assert all_versions() == ALL


def test_a_target_without_a_source(tmp_path) -> None:  # type: ignore[no-untyped-def]
    catalog = Catalog(tmp_path)
    assert catalog.versions("linux-arm64") == ALL
    assert not catalog.is_cached("2.51.0", "linux-arm64")
    for call in (catalog.versions, lambda target: catalog.resolve("latest", target)):
        with pytest.raises(ConfigError, match=r"android-arm64.*linux-x64, linux-arm64"):
            call("android-arm64")
    with pytest.raises(ConfigError, match=r"2\.99\.0"):
        catalog.runtime("2.99.0", "linux-x64")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("onnxruntime_qnn/libQnnHtp.so", "device"),
        ("onnxruntime_qnn/libQnnSystem.so", "device"),
        ("onnxruntime_qnn/libQnnGpu.so", "device"),
        ("onnxruntime_qnn/libQnnCpu.so", "device"),
        ("onnxruntime_qnn/libQnnHtpV73Skel.so", "device"),
        ("onnxruntime_qnn/libQnnHtpV73Stub.so", "device"),
        ("onnxruntime_qnn/libQnnSomethingNew.so", "device"),
        ("onnxruntime_qnn.libs/libc++-71bc274c.so.1.0", "device"),
        ("onnxruntime_qnn/libonnxruntime_providers_qnn.so", "host"),
        ("onnxruntime_qnn/build_and_package_info.py", "host"),
        ("onnxruntime_qnn/__init__.py", "none"),
        ("onnxruntime_qnn/libHtpPrepare.so", "none"),
        ("onnxruntime_qnn/libQnnHtpPrepare.so", "host"),
        ("onnxruntime_qnn/libGenie.so", "none"),
        ("onnxruntime_qnn/libDlModelToolsPy312.so", "none"),
        ("onnxruntime_qnn/Qualcomm_LICENSE.pdf", "none"),
        ("onnxruntime_qnn-2.7.0.dist-info/RECORD", "none"),
    ],
)
def test_files_of_a_wheel(name: str, use: str) -> None:
    assert use_of(name) == use


def test_known_hashes_are_hashes() -> None:
    assert all(len(bytes.fromhex(digest)) == 32 for digest in known_sha256().values())
    assert len(set(known_sha256().values())) == len(known_sha256())


FILES = st.lists(
    st.builds(
        LocalFile,
        path=st.just(Path("somewhere")),
        name=st.text("ab/", min_size=1, max_size=4),
        size=st.just(1),
        sha256=st.sampled_from("xyz"),
        mode=st.sampled_from([0o644, 0o755]),
    ),
    unique_by=lambda file: file.name,
    max_size=5,
)


@given(FILES, FILES)
def test_a_content_key_stands_for_the_content(
    first: list[LocalFile], other: list[LocalFile]
) -> None:
    assert content_key(first) == content_key(reversed(first))
    assert (content_key(first) == content_key(other)) == (set(first) == set(other))
