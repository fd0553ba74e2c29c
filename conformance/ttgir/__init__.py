"""Runs what the compiler made of a kernel, its TTGIR, on the CPU: values, shared memory, and who waits for whom."""
