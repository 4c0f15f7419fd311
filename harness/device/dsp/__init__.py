"""A simulated board's DSP: Qualcomm's own skel in an emulator, and FastRPC to it."""
