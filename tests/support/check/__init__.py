"""``make check``: the tests that a change is likely to break, in minutes.

``changed_tests`` finds the unit tests of what changed against main and of what imports it. ``first_of`` is a pytest
plugin that keeps the first test of a file: one schedule of each family. ``__main__`` runs both, and a pair of clusters
that ships a row.
"""
