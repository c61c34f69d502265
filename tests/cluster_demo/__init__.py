"""``make cluster-demo``: a cluster on three machines and its peer; every few seconds a process or a machine is killed.

``__main__`` is the command, ``run`` the course of a run, ``outages`` has what is killed, ``airports`` what is written.
"""
