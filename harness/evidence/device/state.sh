# Asks for the clocks and what the DSPs are doing.
part clock 4096
part dsps 16384
