"""The program that turns a binary manifest into text: run by manifest.py, never imported.

    python -P manifest_worker.py ARCHIVE TEXT SECONDS BYTES

apk-info survives damaged manifests (20,000 were tried), but some make it take any memory: those
with string pools whose entries all name one long string, or with deep nesting.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def main(archive: str, text: str, most_cpu_s: str, most_bytes: str) -> None:
    """Write the text of the manifest in an archive, or end with the reason why it has none."""
    for limit, most in ((resource.RLIMIT_CPU, most_cpu_s), (resource.RLIMIT_AS, most_bytes)):
        resource.setrlimit(limit, (int(most), int(most)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from apk_info import APK, APKError

    try:
        content = APK(archive).get_xml_string()
    except APKError as error:
        sys.exit(str(error))
    Path(text).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
