"""The master's side of the books.

``books_cycle`` reads them, whole or for one tserver, and carries out what pure modules decide: ``wal_closer`` closes
logs that nobody else may close, ``finished`` joins the two sides of each target, ``work_maker`` writes needed cells,
``remover`` purges complete rows. ``tserver_recovery`` seals the logs of dead tservers.
"""
