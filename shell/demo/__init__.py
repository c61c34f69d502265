"""The demo: two clusters under load, with kills and outages, and a comparison of every cell at the end.

In the order of a run: ``demo_run`` has the plan, ``demo_clusters`` makes the clusters, ``workload`` and ``load`` write,
``outages`` kills, ``lag`` and ``background`` measure meanwhile, ``comparison`` compares the tables with the input,
``lost_hosts`` takes hosts away, ``shipped_totals`` counts, ``demo_report`` and ``screen`` print.
"""
