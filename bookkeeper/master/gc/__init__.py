"""The garbage collector: deletes files without a reference.

``gc_pace`` is the pause between runs; ``file_flags`` has one run's facts about each file; ``gc_rules`` decides which
files may be marked and deleted (pure); ``gc_runner`` executes it; ``orphan_files`` marks segments that no tablet names;
``retention_reasons`` lists the reasons why a file stays, for operators.
"""
