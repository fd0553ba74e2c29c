"""Which configs exist: the tables of each device class, and what becomes of their rows for one problem.

``lookup.for_target`` gives a target's :class:`~.device_class.DeviceClass`. The rows are those that PyTorch Inductor's
heuristics list (July 2025), unless a comment says otherwise. Nothing here needs torch or triton.
"""
