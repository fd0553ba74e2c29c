"""The cases that exist: scenarios, the config space, the rows that problems select, random problems; and how a tier
thins them. The examples that cases are made of are the kernels' own. Imports no pytest.

:func:`.cover.cover` chooses rows. These rules decide before and after it, in the quick tier unless they say otherwise:

* Of a ``Thin`` parameter the first values are taken (``generated_cases``), of a sample of configs the first
  ``configs`` that the scenario asks for (``scenarios``).
* fp32 keeps the configs that compile within seconds, in the default tier too (``unrolled``).
* A kernel beyond the core has one of the rows, the next one for each kernel and test: ``in_turn``. A scenario with
  ``every_config`` or ``every_target`` keeps them all (``scenarios``).
* addmm has one of the rows in addition to mm in a scenario with ``any_epilogue`` (``scenarios``).
* In the sweep each of the n kernels that share a table takes every n-th row of its sample, two rows at least:
  ``_share``. Of a table that is not CUDA's it takes one row, and none of its extra table (``config_space``).
* Rows that problems select have no case (``selected_rows``).
* A compile-only sweep has the usual shape alone, in every tier (``scenarios``).
"""
