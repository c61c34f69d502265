"""Ranges of other clusters.

``receive_streams`` gives senders their tokens; ``receiver`` takes a message, parts it by tablet and answers when all of
it is durable; ``share_retry`` tries shares again whose tablet is away; ``table_map`` says where the tablets are.
"""
