"""Compiles a program with ``torch.compile``, on the device or for a target without one."""
