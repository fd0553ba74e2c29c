"""``torch.compile`` as a second system under test, on the device or for a target without one."""

"""``torch.compile`` as a second system under test, on the device or for a target without one."""
