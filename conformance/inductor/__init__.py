"""``torch.compile`` as a second system under test: what a :class:`~conformance.inductor.program.Program` is compiled
to, on a device or, with torch's queries of the device answered from a target's facts, without one."""
