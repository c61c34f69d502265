"""FATE: operations of several steps; the next master continues those of a dead one.

``engine`` executes the steps; ``fate_store`` writes operations and their steps into the metadata table.
"""
