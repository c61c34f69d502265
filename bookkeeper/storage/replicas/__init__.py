"""Replicas on one host's disk: segment files, and for each replica a durable *manifest* of what the host holds.

Books name, hosts hold. A host that does not find a manifest, or can't read it, does not have the replica; it never
takes an empty directory for a complete replica.

``manifest`` has the values, ``manifest_codec`` their bytes. ``file_checks`` computes checksums of files, ``host_store``
is the directory of a host: its lock, its incarnation, its manifests, and its files as a Volume. ``incoming_files`` has
the files that are under way to the host, and copies a file from a Volume.
"""
