"""The families of kernels, one module each: their examples, timed problems and random draws, whatever the kernel."""
