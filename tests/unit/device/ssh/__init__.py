"""Tests of harness/device/ssh."""
