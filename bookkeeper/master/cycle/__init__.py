"""The master's thread and the work that it hands out.

``event_queue`` takes nudges and reports; ``cycle`` is the loop over all parts; ``assigner`` decides which range of
which file goes to which tserver; ``work_dispatch`` sends it; ``replicate_file`` writes each hand-out down as an
operation; ``knowledge`` says whether the master knows yet what is outstanding.
"""
