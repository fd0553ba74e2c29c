"""Decides which cases exist: scenarios, the config space, the rows that problems select, random problems; and
how a tier thins them. The examples that cases are made of are the kernels' own. Imports no pytest.

``docs/configs.md`` states the rules of the tiers. ``tier_rows`` has the budgets, and fills them with the one cover of
``cover``; ``generated_cases`` does so for code that Inductor generates.
"""
