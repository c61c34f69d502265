"""The replicas of tablets on hosts, as the master sees them: who leads, and what has to change.

``held_states`` has what hosts say that they hold; ``election`` chooses a leader (pure), ``leader_choice`` asks the
hosts and elects for the placement. ``repair_state`` is the input of ``repair_plan``, which chooses joins, ends of joins
and leaves, one cell each, ``balance_plan`` evens out the hosts, and ``meeting_plan`` brings tablets together that merge
(all three pure). ``repairer`` plans and writes. The master reads no file of a host.
"""
