"""Shows records to people: summaries, the HTML report and a digest to publish.

Imports neither torch nor triton.
"""
