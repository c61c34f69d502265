"""The policy of every process of a cluster: how its threads run, how it ends, and how long it repeats calls.

``process_exit`` ends a process that must not continue. ``threads`` runs work in threads whose death ends the process.
``session_retries`` repeats calls for as long as the process holds its session. ``log_lines`` writes its log.
``garbage`` holds back the collector while work makes many objects that stay.
"""
