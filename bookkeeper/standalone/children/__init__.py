"""How the supervisor starts its child processes, ends them with itself, and reads their last words.

- ``forked_starts`` starts processes as forks of a warm ``fork_server``, and says when an ended one starts again;
- ``parent_death`` ends a child with its parent;
- ``log_end`` reads the end of a child's log.
"""
