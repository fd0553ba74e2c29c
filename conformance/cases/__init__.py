"""Which cases exist: scenarios, example shapes, the config space, random problems, and the thinning by tier.

Imports no pytest.
"""
