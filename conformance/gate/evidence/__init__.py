"""A run's evidence: packed into one signed archive, and verified by someone who trusts nothing but a public key."""
