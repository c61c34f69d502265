"""Replicas of a tablet by immutable segments: the pure machine.

Source: EventQL, *Segment-Based Replication*, with the corrections of the page *The machine of replicas*. No clock,
file or socket: ``decide(replica, event, rules)`` returns the next replica and instructions, and a host follows them.
Content is opaque. In the order in which a segment passes them:

* ``rules``: the two rule sets, the document to the letter and the corrected one; each correction is a field;
* ``values``: segments, entries with acknowledgements, placements, the replica;
* ``messages``, ``instructions``, ``events``: what replicas say, what one has to do, what happens to one;
* ``chain``: walks from the root; ``making``: flushes, compactions, the major that begins a term;
* ``sending``: a leader to its targets, a follower to its leader;
* ``receiving``: accept or decline, fast-forward or merge;
* ``naming``: which state the books may name; ``collecting``: which files a host may delete; ``damage``: files whose
  bytes turned out to be wrong;
* ``placements``: role and targets from a tablet's row, joins; ``progress``;
* ``splitting``: a replica of a tablet that a split in place has made;
* ``machine``: ``decide``, the entrance.

The stages LOADING, UNLOAD and UNLOAD_FINAL, targets with a key range, and the rules P6, P7 and P14 belong to the split
to other hosts, which the schedules of the simulation alone play. A tserver splits in place: its replicas are LIVE or
JOINING.
"""
