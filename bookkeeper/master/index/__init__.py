"""A leading master's copy of the books in memory: a million files in a few hundred bytes each.

``log_names`` splits a name into a directory and a number; ``file_entry_codec`` packs numbers; ``barriers`` orders the
records of several logs (rule R24); ``file_entry`` is one outstanding file; ``log_index`` orders the logs of one
directory; ``outstanding`` finds all of them; ``tablet_index`` has the tablets; ``snapshot`` reads tablet rows into
both; ``target_progress`` counts; ``write_times`` knows how old missing records are; ``shipments`` has the ranges of
workers; ``log_files`` is a log on disk. All of it is pure. Other rooms see files as ``file_entry`` and
``outstanding`` show them, not how they are packed.
"""
