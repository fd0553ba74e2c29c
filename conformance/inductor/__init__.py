"""Judges the code that ``torch.compile`` generates, on the device or for a target without one."""
