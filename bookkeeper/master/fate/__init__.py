"""FATE: operations of several steps that outlive the master that began them.

``engine`` executes steps; ``fate_store`` keeps operations in the metadata table.
"""
