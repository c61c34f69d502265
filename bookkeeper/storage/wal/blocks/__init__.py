"""The bytes of a log: blocks in checksummed frames.

``block`` is a block in memory and ``block.proto`` its header. ``ipc_message`` encodes the records, ``frame`` adds
lengths and checksums. ``block_messages``, ``block_origins`` and ``target_shares`` turn parts of a header into values
and back.
"""
