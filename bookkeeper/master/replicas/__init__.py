"""The replicas of tablets on hosts, as the master sees them: who leads, and what has to change.

``held_states`` has what hosts say that they hold; ``election`` has the protocol of elections and the one by the master,
``coordinated_election`` the one through coordination. ``leader_choice`` asks the hosts and elects for the placement.
``repair_state`` is the input of the plans, all pure: ``repair_plan`` chooses joins, ends of joins and leaves, one cell
each, ``zone_plan`` spreads replicas over zones, ``balance_plan`` evens out the replicas of hosts, ``leader_balance``
the tablets that they lead, and ``meeting_plan`` brings tablets together that merge. ``repairer`` plans and writes;
``away_hosts`` knows since when hosts are away. ``store_plan`` finds tables whose tablets are not where
``table.replicas`` wants them. ``failover_plan`` decides which tablets go on without a log whose host stays away, and
``failover`` writes it. The operations on hosts are in :mod:`bookkeeper.master.operations.hosts`. The master reads no
file of a host.
"""
