"""The files of a wheel that are used, and the line of pip's output that helps after a failure."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.core.files import LocalFile, content_key
from harness.runtimes.pypi import essential_line, known_sha256, use_of
from tests.snapshots import Snapshot

NOT_FOUND = (
    "Looking in indexes: https://user:secret@index.example/simple\n"
    "{warnings}"
    "ERROR: Could not find a version that satisfies the requirement onnxruntime-qnn==2.7.0 "
    "(from versions: none)\n"
    "ERROR: No matching distribution found for onnxruntime-qnn==2.7.0\n"
)
RETRY = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after "
    "connection broken by '{}': /simple/onnxruntime-qnn/\n"
)
OUTPUTS = (
    *(
        NOT_FOUND.format(warnings=warnings)
        for warnings in (
            "",
            RETRY.format(
                "NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at "
                "0x7f>: Failed to establish a new connection: [Errno -3] Temporary failure in name "
                "resolution')"
            ),
            RETRY.format("NewConnectionError('...: [Errno 111] Connection refused')"),
            RETRY.format("ProxyError('Cannot connect to proxy.')"),
            RETRY.format("SSLError(SSLCertVerificationError(1, '...'))"),
            RETRY.format("ReadTimeoutError('Read timed out. (read timeout=15)')"),
            "WARNING: 401 Error, Credentials not correct\n401 Client Error\n",
        )
    ),
    "/usr/bin/python: No module named pip\n",
    "ERROR: [Errno 28] No space left on device\n",
    "ERROR: HTTPSConnectionPool(host='index.example', port=443): Max retries exceeded "
    "with url: /simple/",
    "ERROR: 403 Client Error: Forbidden for url: https://user:secret@index.example/x\n",
    "",
    "Traceback\nKeyError: 'x'\n",
)


def test_a_line_tells_the_cause_and_gives_nothing_away(snapshot: Snapshot) -> None:
    lines = [essential_line(output) for output in OUTPUTS]
    assert not [line for line in lines if "secret" in line or "index.example" in line]
    assert not [line for line in lines if "\n" in line]
    assert lines == snapshot


def test_a_long_line_is_cut() -> None:
    assert len(essential_line("ERROR: " + "x" * 5000)) == 240


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("onnxruntime_qnn/libQnnHtp.so", "device"),
        ("onnxruntime_qnn/libQnnSomethingNew.so", "device"),
        ("onnxruntime_qnn.libs/libc++-71bc274c.so.1.0", "device"),
        ("onnxruntime_qnn/libonnxruntime_providers_qnn.so", "host"),
        ("onnxruntime_qnn/build_and_package_info.py", "host"),
        ("onnxruntime_qnn/libHtpPrepare.so", "none"),
        ("onnxruntime_qnn/libQnnHtpPrepare.so", "host"),
        ("onnxruntime_qnn/libDlModelToolsPy312.so", "none"),
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
