"""Tests of the doctor's pure parts."""
