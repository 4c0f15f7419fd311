"""Tests of the lab on real parts."""
