"""What a target must pass: mustpass lists, profiles and claims."""
