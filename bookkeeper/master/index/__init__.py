"""The books as a leading master holds them in memory: a million files in a few hundred bytes each.

``log_names`` splits a name into a directory and a number; ``file_entry_codec`` packs numbers; ``barriers`` says what
must be at a peer first (rule R24); ``file_entry`` is one outstanding file; ``log_index`` orders the logs of one
directory; ``outstanding`` finds all of them; ``tablet_index`` holds the tablets; ``snapshot`` reads tablet rows into
both; ``shipments`` says what workers were given; ``log_files`` is a log on disk. All of it is pure.
"""
