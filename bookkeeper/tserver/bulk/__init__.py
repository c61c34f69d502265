"""Imported segments, of this cluster or of another one.

``segment_receiver`` takes offers of other clusters: ``segment_offers`` decides whether segments are taken (pure), and
``segment_uploads`` has their files. ``bulk_loader`` adds segments to a tablet, atomically and once, while it has the
tablet for itself (``exclusive_tablets``); ``hosted_files`` brings them to the hosts of a tablet with replicas.
``relay_log`` passes them on to this cluster's own peers. ``session_holds`` keeps files that no tablet names yet. Other
rooms import ``bulk_parts`` alone.
"""
