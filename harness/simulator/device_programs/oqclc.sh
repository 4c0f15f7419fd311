#!/bin/sh
# oqclc: stands in for an offline OpenCL compiler, and compiles nothing.
# libQnnGpu.so for x86-64 searches for it (`whereis oqclc`): with it on PATH the backend prepares
# graphs offline. It leaves its sources in the current folder and takes bin.o from there.
printf 'no kernel: made by a simulated device of qnn-harness' > bin.o
