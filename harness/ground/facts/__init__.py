"""Facts about QNN: error codes, SoCs and versions."""
