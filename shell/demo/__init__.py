"""The demo: two clusters under load, with kills and outages, and a comparison of every cell at the end.

``acts`` is the plan; ``stage`` makes the clusters, ``workload`` and ``load`` write, ``outages`` kills, ``lag`` and
``background`` measure meanwhile, ``tally`` counts, ``verdict`` compares, ``demo_report`` and ``screen`` print.
"""
