"""Tests of harness/host."""
