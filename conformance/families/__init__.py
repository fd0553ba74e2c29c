"""The families of problems. A family is one folder: its problems, examples, reference, fills, bounds and alterations.

A family registers its answers when its folder is imported.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
