"""The master's thread and the work that it hands out.

``event_queue`` takes nudges and reports; ``cycle`` is the loop over all parts; ``assigner`` chooses a tserver for each
range of a file; ``work_dispatch`` sends it; ``replicate_file`` persists the tserver of each file as an operation;
``header_times`` reads how old records are that a new leader did not see written; ``check_ins`` notices peers that
came back older; ``knowledge`` is the age of the master's view of the books.
"""
