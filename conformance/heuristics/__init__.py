"""Heuristics: which configs exist, as tables per device class, and which of them are tried for one problem.

``lookup.for_target`` gives a target's :class:`~.device_class.DeviceClass`. The rows are those that PyTorch Inductor's
heuristics list (July 2025), unless a comment says otherwise. This package needs neither torch nor triton.
"""
