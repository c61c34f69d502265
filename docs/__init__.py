"""The documentation: its pages, and :mod:`docs.extension`, which makes the parts that follow from the sources."""
