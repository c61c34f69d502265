"""Calls between processes: Thrift messages in frames over TCP, with or without TLS.

The rooms, lowest first: ``contract`` says what can be called; ``frames`` turns calls into bytes, within budgets;
``trust`` says who may come in and what they may do. A caller uses ``client``, with one ``channel`` for each connection
and ``address`` for addresses. A server is ``server``, with one ``connection`` each, and ``dispatch`` for each call.
"""
