"""The policy of every process of a cluster: how its threads run, how it ends, and how long it tries again.

``process_exit`` ends a process that must not go on. ``threads`` runs work in threads whose death ends the process.
``session_retries`` repeats calls for as long as the process holds its session.
"""
