"""Packs a run into one signed archive, and verifies such an archive with nothing but a public key."""
