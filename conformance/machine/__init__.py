"""This machine: its GPUs, which process uses which, their memory, and the installed versions.

Imports without torch or triton.
"""
