"""Context binaries and models: sources, the compiler, forecasts of capacity."""
