"""The master: keeps the books, hands out work, and runs the tasks that a cluster needs once.

It reads tablet rows and ``~repl_`` rows of the metadata table, sessions and the configuration from the coordination
store, and it answers tservers, operators and other clusters. All durable state is in the metadata table or in the
configuration, so the next leader continues from there.

The rooms, in the order in which the data passes them:

- ``reign``: leadership, and the proof that the books are current; ``index``: the leader's copy of the books in memory;
- ``calls``: calls of tservers and of other clusters' masters;
- ``books``: reads and writes the books; ``cycle``: the master's thread, which hands out work;
- ``placement``: which tserver serves which tablet; ``quarantine``: ranges that fail for good;
- ``fate``: operations of several steps; ``splits``: rules of splits and merges; ``operations``: one module each;
- ``origins``: removes the records of several paths (rule R22); ``gc``: deletes files without a reference;
- ``queries``: answers to operators.

``leadership`` puts these parts together, ``service`` answers calls, ``monitoring`` informs the monitor, and
``process`` and ``__main__`` run one master. ``operation_kinds`` lists the operations.
"""
