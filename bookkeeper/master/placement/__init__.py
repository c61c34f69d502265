"""Which tserver serves which tablet.

``tablet_balance`` assigns and evens out (pure); ``load_retries`` says when a failed load is tried again;
``placement`` writes each decision as a cell; ``tablet_orders`` sends it; ``tablet_moves`` follows tablets on their way
from one live tserver to another.
"""
