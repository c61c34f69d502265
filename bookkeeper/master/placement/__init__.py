"""The placement of tablets on tservers.

``tablet_balance`` assigns tablets and evens out the load (pure); ``return_wait`` waits for tservers after an outage of
all; ``load_retries`` has the time of the next try of a failed load; ``placement`` writes each decision as a cell;
``tablet_orders`` sends it; ``tablet_reports`` has the reports of tservers; ``tablet_moves`` follows tablets that move
from one live tserver to another.
"""
