"""Measurements: each module's ``run()`` gives figures, each beside a reference measured in the same run."""
