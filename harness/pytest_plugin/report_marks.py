"""What reports carry besides pytest's own, also from pytest-xdist's workers to the controller."""

from __future__ import annotations

from typing import Final

RECORDS: Final = "qnn_harness_records"
"""The lines for the journal: what happened to devices, and every attempt at the case."""

LAB_ERROR: Final = "qnn_harness_lab_error"
"""The cause of what went wrong, where that says nothing about the target."""

UNSUPPORTED: Final = "qnn_harness_unsupported"
"""Set where the target said that it cannot do what the case is about."""

OURS: Final = "qnn_harness_case"
"""Set on every report of a case with a device."""

GIVEN_UP: Final = "qnn_harness_given_up"
"""Set where the device was given up while attempts were left: which, and how many."""

RETRIED: Final = "retried"
"""Outcome of a report whose case goes on elsewhere."""
