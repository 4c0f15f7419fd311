"""Tests of harness/device/transport."""
