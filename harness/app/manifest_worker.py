"""The program that turns a binary manifest into text: run by manifest.py, never imported.

    python -P manifest_worker.py REQUEST.json

apk-info survives damaged files (20,000 were tried), but takes any memory: string pools whose
entries all name one long string, or deep nesting. So it has limits of its own.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path


def main(request_path: str) -> None:
    """Write the text of a request's manifest, or the reason why it has none."""
    request = json.loads(Path(request_path).read_text())
    seconds, most_bytes = request["most_cpu_s"], request["most_bytes"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from apk_info import APK

    try:
        text = APK(request["archive"]).get_xml_string()
    except Exception as error:
        Path(request["refusal"]).write_text(str(error)[:2000], encoding="utf-8")
    else:
        Path(request["made"]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
