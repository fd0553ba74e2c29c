"""Which cases exist: scenarios, shapes, config space, random problems, and how a tier thins them. No pytest."""
