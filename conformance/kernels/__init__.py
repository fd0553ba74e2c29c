"""The kernel catalogue: what each kernel takes and refuses, how it is launched, and what it promises."""
