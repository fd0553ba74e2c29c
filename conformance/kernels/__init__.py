"""The kernel catalogue: what each kernel takes, how it is launched and what it promises."""
