"""Segments that come whole: of an import, or of another cluster's import.

``segment_uploads`` takes files that other clusters send; ``segment_offers`` decides whether a source file is taken
whole (pure); ``segment_receiver`` checks and adds it; ``relay_log`` passes it on to this cluster's own peers;
``bulk_loader`` adds segments to a tablet, atomically and once.
"""
