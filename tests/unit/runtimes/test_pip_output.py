"""pip's output after a failure becomes one line that helps and gives nothing away."""

from __future__ import annotations

import pytest

from harness.runtimes.pypi import essential_line

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
WANTED = "Could not find a version that satisfies the requirement onnxruntime-qnn==2.7.0"


@pytest.mark.parametrize(
    ("warnings", "cause"),
    [
        ("", None),
        (
            RETRY.format(
                "NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at "
                "0x7f>: Failed to establish a new connection: [Errno -3] Temporary failure in name "
                "resolution')"
            ),
            "cannot be found by name",
        ),
        (
            RETRY.format("NewConnectionError('...: [Errno 111] Connection refused')"),
            "the connection to the package index fails",
        ),
        (RETRY.format("ProxyError('Cannot connect to proxy.')"), "the proxy refuses"),
        (RETRY.format("SSLError(SSLCertVerificationError(1, '...'))"), "certificate"),
        (RETRY.format("ReadTimeoutError('Read timed out. (read timeout=15)')"), "in time"),
        ("WARNING: 401 Error, Credentials not correct\n401 Client Error\n", "wants a login"),
    ],
)
def test_the_cause_is_told(warnings: str, cause: str | None) -> None:
    line = essential_line(NOT_FOUND.format(warnings=warnings))
    assert line.startswith(WANTED)
    assert "\n" not in line
    assert "secret" not in line
    assert "index.example" not in line
    assert (cause or "(from versions: none)") in line


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("/usr/bin/python: No module named pip\n", "no pip; `python -m ensurepip` adds it"),
        ("ERROR: [Errno 28] No space left on device\n", "this computer's disk"),
        (
            "ERROR: HTTPSConnectionPool(host='index.example', port=443): Max retries exceeded "
            "with url: /simple/",
            "HTTPSConnectionPool(host=<index>): Max retries",
        ),
        ("ERROR: 403 Client Error: Forbidden for url: https://u:p@index.example/x\n", "<index>"),
        ("", "it failed without output"),
        ("Traceback\nKeyError: 'x'\n", "KeyError: 'x'"),
    ],
)
def test_other_failures(output: str, line: str) -> None:
    essence = essential_line(output)
    assert line in essence
    assert "index.example" not in essence


def test_a_long_line_is_cut() -> None:
    assert len(essential_line("ERROR: " + "x" * 5000)) == 240
