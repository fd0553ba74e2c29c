"""The config tables of each device class, and the steps that turn their rows into configs for one problem.

``lookup.for_target`` returns a target's :class:`~.device_class.DeviceClass`. The rows are those that PyTorch Inductor's
heuristics list (July 2025), unless a comment says otherwise. Nothing here needs torch or triton.
"""
