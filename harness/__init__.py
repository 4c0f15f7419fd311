"""Validation harness for Qualcomm QNN runtimes and context binaries on devices reached over adb."""

__version__ = "0.1.0"
