"""The leader's side of tablets with replicas: states are made here, travel to other hosts, and are named later.

A flush or a compaction counts when its files and the manifest of this host are durable: then readers use the segments
and memory is freed. The books name a state when enough voters hold its files (N3) and it has what the term has replayed
(N1); only then ``log:`` cells go. So a leader that dies loses nothing: the next one starts from the named state and
replays the logs. In the order in which a state passes them:

* ``terms``: whether this host may lead a tablet, and the major that begins its term (N5);
* ``leader_chain``: one led tablet: its manifest, its logs that wait for a name; ``led_tablets`` has all of them;
* ``chain_states``: flushes and compactions of led tablets, as ``maintenance.tablet_states`` wants them;
* ``senders``: a lane for each target host; ``lane_plan`` decides which tablet is next, ``host_calls`` finds the host,
  ``transfer`` sends one segment at the pace of ``copy_pace``, and ``confirmation`` lets copies of tablets that nobody
  writes stay young;
* ``namer``: names states in the books and lets logs go.
"""
