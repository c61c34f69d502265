"""Which tserver serves which tablet.

``tablet_balance`` assigns tablets and evens out the load (pure); ``return_wait`` waits for tservers after an outage of
all; ``load_retries`` says when a failed load is tried again; ``placement`` writes each decision as a cell;
``tablet_orders`` sends it; ``tablet_reports`` holds the answers of tservers; ``tablet_moves`` follows tablets that move
from one live tserver to another.
"""
