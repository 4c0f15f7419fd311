"""Tests of harness/transport."""
