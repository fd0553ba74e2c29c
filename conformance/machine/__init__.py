"""This machine: its GPUs, who uses which, their memory and the installed versions. Starts without torch."""
