"""The emulated DSP."""
