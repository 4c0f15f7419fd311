"""Tests of harness/ground/host."""
