"""The replicas of tablets on hosts, as the master sees them: who leads, and what has to change.

``held_states`` has what hosts say that they hold; ``election`` has the protocol of elections and the one by the master,
``coordinated_election`` the one through coordination. ``leader_choice`` asks the hosts and elects for the placement.
``repair_state`` is the input of ``repair_plan``, which chooses joins, ends of joins and leaves, one cell each, of
``balance_plan``, which evens out the replicas of hosts, and of ``leader_balance``, which evens out the tablets that they
lead (all three pure). ``repairer`` plans and writes. The master reads no file of a host.
"""
