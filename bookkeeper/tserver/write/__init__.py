"""The write path: from a request to a durable, applied block.

``request_decoder`` decodes and parts records by tablet, within the bounds of ``decompression``; ``commit`` is what the
commit thread does with them: ``write_context`` is what it works under, ``config_barrier`` and ``configuration`` keep
the configuration the same for a group, ``write_guards`` refuse, ``request_dedup`` recognises late attempts.
``conditional`` writes on conditions. ``replicated_apply`` takes ranges of other clusters, as ``share_decision``
decides.
"""
