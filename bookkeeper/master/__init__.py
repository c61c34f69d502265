"""The master: keeps the books, hands out work, and runs the tasks that a cluster needs once.

It reads the rows of the metadata table, and from the coordination store the sessions and the configuration. It answers
tservers, operators and other clusters. A master has no durable state of its own, so the next leader continues.

The packages, in the order in which the data passes them:

- ``reign``: leadership, and the proof that the books are current; ``index``: the leader's copy of the books in memory;
- ``calls``: calls to tservers and to other clusters' masters;
- ``books``: reads and writes the books; ``cycle``: the master's thread, which hands out work;
- ``placement``: which tserver serves which tablet; ``quarantine``: ranges with permanent errors;
- ``fate``: operations of several steps; ``splits``: rules of splits and merges; ``operations``: one module each;
- ``origins``: finds out when a root log is over, and removes its books (rule R22); ``gc``: deletes files without a
reference; - ``queries``: answers to operators.

``replication_why`` says why records wait, ``automatic_splits`` splits tablets that have grown too large.
``leadership`` puts these parts together, ``service`` answers calls, ``monitoring`` informs the monitor, and
``process`` and ``__main__`` run one master. ``operation_kinds`` lists the operations.
"""
