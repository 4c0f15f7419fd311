"""`make release`: what it asks of the tree, and what it puts beside the package.

That is notes, a bill of materials, checksums and a tag. Signatures and uploads are the publisher's.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import harness

DIST: Final = Path("dist")
_CHANGELOG: Final = Path("CHANGELOG.md")
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")
_NEXT: Final = """\
{tag} is tagged here, and dist/ has what goes with it. What is left, with your own keys:
    gpg --armor --detach-sign dist/SHA256SUMS
    git push origin {tag}
    twine upload dist/*.whl dist/*.tar.gz
"""


def problems(
    versions: Mapping[str, str], changelog: str, tags: Collection[str], changed: Sequence[str]
) -> list[str]:
    """What keeps a tree from being released, a line each (pure).

    `versions` is what each file calls this version, `changed` which files are not committed.
    """
    found = []
    if changed:
        found.append(f"not committed: {', '.join(changed)}")
    said = set(versions.values())
    if len(said) > 1:
        each = ", ".join(f"{file}: {version}" for file, version in versions.items())
        found.append(f"one version is called differently: {each}")
        return found
    (version,) = said
    if not _VERSION.fullmatch(version):
        found.append(f"{version} is not MAJOR.MINOR.PATCH")
    if f"v{version}" in tags:
        found.append(f"v{version} is tagged already: raise the version in {', '.join(versions)}")
    if not notes(changelog, version):
        found.append(
            f"CHANGELOG.md has nothing under '## {version} - YYYY-MM-DD': give what stands under "
            "Unreleased that heading"
        )
    elif re.search(r"^## Unreleased\n+(?!## )\S", changelog, re.MULTILINE):
        found.append("CHANGELOG.md still has something under Unreleased")
    return found


def notes(changelog: str, version: str) -> str:
    """What the changelog says of a version; empty where it says nothing (pure)."""
    heading = rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)"
    found = re.search(heading, changelog, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def _said(*command: object) -> str:
    words = list(map(str, command))
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def check() -> int:
    """Says what is in the way; 2 if anything is."""
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]["version"]
    found = problems(
        {"pyproject.toml": project, "harness/__init__.py": harness.__version__},
        _CHANGELOG.read_text("utf-8"),
        _said("git", "tag", "--list").split(),
        [line[3:] for line in _said("git", "status", "--porcelain").splitlines()],
    )
    for one in found:
        print(f"error: {one}", file=sys.stderr)
    return 2 if found else 0


def finish() -> int:
    """Puts notes, bill of materials and checksums into dist/, and tags the commit."""
    version = harness.__version__
    text = notes(_CHANGELOG.read_text("utf-8"), version)
    (DIST / f"qnn_harness-{version}.md").write_text(f"{text}\n", "utf-8")
    (wheel,) = DIST.glob("*.whl")
    _write_bill(wheel, DIST / f"qnn_harness-{version}.cdx.json")
    sums = DIST / "SHA256SUMS"
    files = sorted(path for path in DIST.iterdir() if path != sums)
    lines = [f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in files]
    sums.write_text("".join(lines), "utf-8")
    # a line of notes that begins with # is a heading, no comment
    tag = ("git", "tag", "--annotate", "--cleanup=verbatim", f"v{version}")
    _said(*tag, "--message", f"qnn-harness {version}\n\n{text}\n")
    print(_NEXT.format(tag=f"v{version}"), end="")
    return 0


def _write_bill(wheel: Path, file: Path) -> None:
    """What the package brings along where it is installed today, as CycloneDX has it."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "bin/python")
        _said(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        for note in Path(folder).glob("lib/*/site-packages/*.dist-info/direct_url.json"):
            note.unlink()  # a path of this computer
        bill = (Path(sys.executable).with_name("cyclonedx-py"), "environment")
        form = ("--output-reproducible", "--of", "JSON", "--mc-type", "library")
        _said(*bill, *form, "--pyproject", "pyproject.toml", "--output-file", file, python)


if __name__ == "__main__":
    sys.exit({"check": check, "finish": finish}[sys.argv[1]]())
