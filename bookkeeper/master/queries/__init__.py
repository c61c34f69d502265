"""Answers to operators, from the books and from memory.

``queries`` reads tablets and replication; ``status`` says for each file and target how far it is and why it waits;
``usage`` says what tables hold on disk; ``quarantine_admin`` lists ranges in quarantine and begins what operators want.
"""
