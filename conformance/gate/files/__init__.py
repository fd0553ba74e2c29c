"""The TOML files that users write: waivers and expected failures."""
