"""Messages of other clusters: from the wire into one WAL block of each tablet, for its *slice* of the message.

Read ``receiver`` from top to bottom: it has the steps of a message in their order. Each step calls one owner of state:
``message_admission`` (streams that are open, logs that are announced), ``message_decoding``, ``slice_delivery`` (the
tserver of each slice), ``message_order`` (the message in front). In the commit thread ``slice_decision`` finds
duplicates by high-water, and the room ``origins`` by origin.

``receive_streams`` has the tokens of the senders, ``slice_retry`` the wait for a tablet that is away for a moment,
``receiving_tablets`` the tservers of the tablets, ``tablet_slice`` the values that the steps hand on.
"""
