"""A Ray cluster on which the workers of a run live: its nodes, the actor of a worker, and the stream to it.

Modules here import Ray when it is used, because it is an extra of this package.
"""
