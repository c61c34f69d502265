"""The homes of logs: on the cluster's Volume, or on the disk of the host whose session wrote them.

``home_books`` has the rows ``~home_<session>`` of the books: a session without one has its logs on the Volume.
``host_logs`` reaches the logs of one host's disk through the process that holds that host. ``log_volume`` is the Volume
that finds each file by its name; ``opening`` makes one for a process, and says where a session makes its own logs.
``log_recovery`` seals the log of a dead session wherever it lies.
"""
