"""The master: keeps the books, hands out work, and does what must be done once in a cluster.

Arrives: tablet rows and `~repl_` rows of the metadata table, sessions and configuration from the coordination
store, nudges and reports from tservers, calls of administrators and of other clusters. Leaves: needed cells, closed
cells, deletions of completed books and files, ranges for workers, tablet assignments, FATE operations. Survives a
crash: everything that counts, for it is in the metadata table or the configuration tree; the next leader reads it
and goes on. Only backoffs, last errors and counters of shipped bytes start anew.

Reading order, decisions first (snapshot in, mutations or instructions out): ``files``, ``snapshot``, ``closer``,
``finished``, ``work_maker``, ``remover``, ``assigner``, ``gc``, ``tablet_balance``, ``status``, ``fate``. Then the
edges that execute them: ``leader``, ``books``, ``cycle``, ``recovery``, ``collector``, ``service``, ``__main__``.
"""
