"""The master's side of the books.

``books_cycle`` reads all of them, or those of one tserver, and executes the decisions of pure modules: ``wal_closer``
closes logs whose writer can't close them, ``finished`` joins the two sides of each target, ``work_maker`` writes needed
cells, ``remover`` purges complete rows. ``tserver_recovery`` seals the logs of dead tservers. ``books_watch`` notices a
store that takes no writes.
"""
