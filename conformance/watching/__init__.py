"""Takes the launches of a user's own pytest suite on a machine without a GPU, runs and judges each, and records it."""
