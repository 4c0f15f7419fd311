"""Public logs in which no NPU failed: of boots, phones, servers, builds; none of them is kept here.

`python -m tests.quiet.public FOLDER` brings those of `public.tsv` into a folder (80 MB): each at
its commit, by git. Tests read them where `QNN_HARNESS_PUBLIC_LOGS` names that folder.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

ROWS: Final = Path(__file__).with_name("public.tsv")
_GITHUB: Final = "https://github.com"
_FETCH_S: Final = 600


def public_logs() -> dict[tuple[str, str], list[str]]:
    """The paths of the logs, by repository and commit."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    with ROWS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            found[row["repository"], row["commit"]].append(row["path"])
    return dict(found)


def fetch(repository: str, commit: str, paths: list[str], folder: Path) -> None:
    """Brings these files of one commit into the folder; CalledProcessError where git fails."""
    store = folder / ".git-of" / repository.replace("/", "+")
    if not store.exists():
        store.mkdir(parents=True)
        _git(store, "init", "--quiet", "--bare")
        _git(store, "remote", "add", "origin", f"{_GITHUB}/{repository}")
        # files come when they are asked for: there are large ones beside them
        _git(store, "config", "remote.origin.promisor", "true")
        _git(store, "fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", commit)
    for path in paths:
        into = folder / repository.replace("/", "+") / path.replace("/", "+")
        into.parent.mkdir(exist_ok=True)
        into.write_bytes(_git(store, "cat-file", "blob", f"{commit}:{path}"))


def _git(store: Path, *words: str) -> bytes:
    command = ("git", "--git-dir", str(store), *words)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=_FETCH_S).stdout


def main(folder: Path) -> None:
    """Brings all that can be had; says what cannot."""
    for (repository, commit), paths in public_logs().items():
        try:
            fetch(repository, commit, paths, folder)
        except (subprocess.SubprocessError, OSError) as error:
            print(f"{repository}: {error}", file=sys.stderr)
    print(f"{sum(1 for one in folder.glob('*/*') if one.is_file())} logs in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
