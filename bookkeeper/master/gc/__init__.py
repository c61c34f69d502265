"""The garbage collector: deletes files that nothing names any more.

``gc_pace`` says when it runs; ``file_flags`` is what one run knows of each file; ``gc_rules`` decides what may be
marked and deleted (pure); ``gc_runner`` executes it; ``orphan_files`` does the same for segments that no tablet names;
``retention_reasons`` tells operators why a file stays.
"""
