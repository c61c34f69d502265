"""Random schedules of files on their way into tablets: imports, transfers, relays, exports, compactions, the collector.

The holds, the collector, the search for orphan files, the uploads and the engine of operations are the product's own;
tablets are modelled. ``cluster`` has the stores and the laws, ``nodes`` the tservers and masters, ``operations`` an
import and an export, ``schedules`` what happens. ``python -m tests.support.adoption_simulation 0 1000`` searches seeds.
"""
