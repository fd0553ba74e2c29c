"""Screens every GPU of a machine by exact products in a loop, and traces each wrong element to its SM."""
