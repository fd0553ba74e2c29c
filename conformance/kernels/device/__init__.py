"""Device code: the ``@triton.jit`` functions of every kernel. Host code is one package up."""
