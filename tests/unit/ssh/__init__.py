"""Tests of harness/ssh."""
