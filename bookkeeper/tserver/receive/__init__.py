"""Messages of other clusters: from the wire into one WAL block of each tablet.

Read ``receiver`` from top to bottom: it has the steps of a message in their order. Each step calls one owner of state:
``admission`` (streams that are open, logs that are announced), ``message_decoding``, ``share_delivery`` (the tserver of
each tablet), ``message_order`` (the message in front). In the commit thread ``share_decision`` finds duplicates by
high-water, and the room ``origins`` by origin.

``receive_streams`` has the tokens of the senders, ``share_retry`` the wait for a tablet that is away for a moment,
``receiving_tablets`` the tservers of the tablets, ``received_share`` the values that the steps hand on.
"""
