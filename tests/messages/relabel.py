"""Writes what the table of causes answers now into the table of messages, to be reviewed.

`python -m tests.messages.relabel` after a change of rules; it prints each row that it changes.
"""

from __future__ import annotations

import io
from dataclasses import replace

from harness.verdict.failure.any_log import read_log
from harness.verdict.failure.chain import is_benign
from harness.verdict.failure.explanation import explain
from tests.messages.corpus import Message, Role, corpus, coverage_text, write


def answered(one: Message) -> tuple[Role, str]:
    """Role and cause of what is answered to a message alone."""
    found = explain(read_log(io.BytesIO(one.sample.encode())).lines).diagnoses
    if not found:
        return ("benign" if is_benign(one.sample) else "nothing"), ""
    return ("consequence" if found[0].confidence == "possible" else "known"), found[0].id


def main() -> None:
    """Labels every message anew."""
    before = corpus()
    now = []
    for one in before:
        role, cause = answered(one)
        now.append(replace(one, role=role, cause=cause))
        if now[-1] != one:
            print(f"{one.role} {one.cause} -> {role} {cause}: [{one.origin}] {one.pattern}")
    write(now)
    print(coverage_text(now))


if __name__ == "__main__":
    main()
