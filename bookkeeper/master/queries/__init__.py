"""Answers to operators, from the books and from memory.

``queries`` reads tablets, marks and files below marks; ``target_states`` has the progress of each file at each target;
``causes`` decides why a target lacks records, ``waits`` sums the causes up, ``cause_texts`` and ``why`` put them into
words with the next step; ``retained_files`` has the reasons for which files are retained;
``usage`` has the disk usage of tables; ``host_queries`` lists hosts and replicas; ``quarantine_admin`` lists
quarantined ranges and executes commands for them.
"""
