"""The bases of kernels, one module each, for families that several files and packages have kernels of."""
