"""QNN runtimes: where their libraries come from and how they get onto a device."""
