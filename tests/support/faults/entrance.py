"""Fault switches of access: secrets, handshakes, rights, certificates, viewers of the monitor."""

from __future__ import annotations

from tests.support.faults.switch import Switch

ENTRANCE: dict[str, Switch] = {
    "roots-are-everywhere": Switch(
        "bookkeeper.security.file_roots",
        "is_in",
        old="return found == root or root in found.parents",
        new="return True",
        breaks="a user of a cluster reads and writes all files that its processes may",
    ),
    "directories-stay-open": Switch(
        "bookkeeper.security.private_files",
        "is_open",
        old="return not stat.S_ISLNK(mode) and bool(stat.S_IMODE(mode) & UMASK)",
        new="return False",
        breaks="every user of the machine reads records, and holds the lock of a cluster",
    ),
    "only-directories-are-read": Switch(
        "bookkeeper.security.secret_store",
        "file_facts",
        old="return tuple(fact for name in names if (fact := _fact_of(directory, name)) is not None)",
        new='return (FileFact("", 0, 0, 0, directory.stat().st_mtime_ns),)',
        breaks="a secret that was replaced in place lets its old holder in, and keeps its new one out",
    ),
    "any-proof-will-do": Switch(
        "bookkeeper.rpc.trust.handshake",
        "is_proof",
        old="return hmac.compare_digest(expected, received)",
        new="return True",
        breaks="the id of a secret is enough to connect without the secret, and to pose as a server",
    ),
    "no-secret-is-required": Switch(
        "bookkeeper.rpc.trust.admission",
        "Admission._answer_greeting",
        old="if self._entrance.accepted is None:",
        new="if True:",
        breaks="a server that should ask for a secret accepts all callers",
    ),
    "proofs-are-the-same": Switch(
        "bookkeeper.rpc.trust.handshake",
        "client_proof",
        old='return _derived(key, b"client", transcript)',
        new="return server_proof(key, transcript)",
        breaks="a caller without a secret gets in by sending the server's own proof back",
    ),
    "nonces-repeat": Switch(
        "bookkeeper.rpc.trust.handshake",
        "new_nonce",
        old="return secrets.token_bytes(NONCE_BYTES)",
        new="return bytes(32)",
        breaks="a recorded handshake lets a caller without a secret in",
    ),
    "tags-are-not-verified": Switch(
        "bookkeeper.rpc.frames.frame_tags",
        "FrameTags.check",
        old="self._receive_cipher.decrypt(self._receive_nonces.take(), tag, payload)",
        new="pass",
        breaks="a relay of a handshake makes calls of its own on the connection, and changes answers",
    ),
    "frames-have-no-numbers": Switch(
        "bookkeeper.rpc.frames.frame_tags",
        "_Nonces.take",
        old="self._next = number + 1",
        new="self._next = number",
        breaks="a relay repeats frames",
    ),
    "everything-is-offered": Switch(
        "bookkeeper.security.access",
        "meant_for",
        old='return [secret for secret in secrets if instance_id and secret.instance_id in ("", instance_id)]',
        new="return secrets",
        breaks="any server at an address is offered, and sees proofs of, the secrets for other instances",
    ),
    "any-target-will-do": Switch(
        "bookkeeper.rpc.trust.admission",
        "refuse_other_target",
        old="if target and target != hello.instance_id:",
        new="if False:",
        breaks="a handshake that was meant for one instance holds at another",
    ),
    "any-instance-will-do": Switch(
        "bookkeeper.rpc.rpc_pool",
        "refuse_other_instance",
        old="if instance_id and hello.instance_id != instance_id:",
        new="if False:",
        breaks="R23: a server at the address of a peer that asks for no secret gets the data for that peer",
    ),
    "proofs-hold-on-any-channel": Switch(
        "bookkeeper.rpc.trust.handshake",
        "transcript_of",
        old='return b"".join((len(channel).to_bytes(2, "big"), channel, *messages, nonce, chosen))',
        new='return b"".join((*messages, nonce, chosen))',
        breaks="a holder of a certificate relays a handshake from one TLS connection to another one",
    ),
    "callers-believe-any-proof": Switch(
        "bookkeeper.rpc.channel",
        "Channel._prove",
        old="if not handshake.is_proof(handshake.server_proof(secret.key, transcript), challenge.proof):",
        new="if False:",
        breaks="any server at an address counts as holder of the secret",
    ),
    "everywhere-is-loopback": Switch(
        "bookkeeper.security.exposure",
        "is_loopback",
        old="try:",
        new="""
        return True
        try:
        """,
        breaks="a cluster listens beyond its machine without TLS and without a warning",
    ),
    "every-secret-opens-everything": Switch(
        "bookkeeper.rpc.trust.rights",
        "may_call",
        old='if kind == "cluster":',
        new="if True:",
        breaks="a peer's secret gives the rights of a client, a client's those of a process",
    ),
    "peers-speak-for-others": Switch(
        "bookkeeper.rpc.trust.rights",
        "refuse_foreign_source",
        old="if foreign:",
        new="if False:",
        breaks="a peer opens a stream in another one's name, and this cluster drops that one's records as known",
    ),
    "peers-reach-every-table": Switch(
        "bookkeeper.rpc.trust.table_rights",
        "opens",
        old="return secret.opens(table)",
        new="return True",
        breaks="a peer's secret opens every table",
    ),
    "relays-need-no-name": Switch(
        "bookkeeper.tserver.receive.message_decoding",
        "origins_of_block",
        old="if origins is not None and not named <= {own.instance_id, *origins}:",
        new="if False:",
        breaks="R22: a peer reports the offsets of another cluster's log, and that cluster's records are dropped",
    ),
    "files-need-no-relay": Switch(
        "bookkeeper.tserver.bulk.segment_offers",
        "reason_of_origin",
        old="if origins is None or origin in (stream.source_instance_id, *origins):",
        new="if True:",
        breaks="R22: a peer offers files as those of another cluster's log, and that cluster's records are dropped",
    ),
    "any-name-will-do": Switch(
        "bookkeeper.rpc.rpc_pool",
        "refuse_wrong_instance",
        old='if secret is not None and secret.instance_id not in ("", hello.instance_id):',
        new="""
        return
        if secret is not None and secret.instance_id not in ("", hello.instance_id):
        """,
        breaks="R23: a holder of one secret of this cluster poses as another peer",
    ),
    "secrets-pass-hands": Switch(
        "bookkeeper.rpc.dispatch",
        "refuse_contradicting_hello",
        old="if admitted is None:",
        new="if True:",
        breaks="a secret that was made for one instance serves another",
    ),
    "any-version-will-do": Switch(
        "bookkeeper.rpc.trust.admission",
        "check_caller_version",
        old="if version != PROTOCOL_VERSION:",
        new="if False:",
        breaks="a peer of a newer protocol is not told so",
    ),
    "silent-connections-stay": Switch(
        "bookkeeper.rpc.rpc_server",
        "RpcServer._end_surplus_handshakes",
        old="surplus = len(self._handshakes) - self._settings.handshakes_max",
        new="surplus = 0",
        breaks="unfinished handshakes take the slots of other connections",
    ),
    "silent-clients-keep-their-slots": Switch(
        "bookkeeper.monitor.connection_limiter",
        "surplus_connection",
        old="return next((connection for connection in connections if connection.phase is not Phase.ANSWER), None)",
        new="return None",
        breaks="clients that send nothing keep all others from the monitor",
    ),
    "slow-requests-keep-their-slots": Switch(
        "bookkeeper.monitor.connection_limiter",
        "LimitedConnection._close_late",
        old='self.refuse("late", self.phase.value)',
        new="pass",
        breaks="a client that sends the monitor a byte now and then stays for ever",
    ),
    "any-certificate-will-do": Switch(
        "bookkeeper.security.tls",
        "expect_certificate",
        old="""
        context.check_hostname = True
        context.verify_mode = ssl.CERT_REQUIRED
        """,
        new="""
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        """,
        breaks="a client accepts any server at an address",
    ),
    "forgotten-secrets-stay": Switch(
        "bookkeeper.rpc.rpc_server",
        "is_forgotten",
        old="return accepted is not None and admitted.secret is not None and admitted.secret.id not in accepted",
        new="return False",
        breaks="a connection stays open after its secret was removed",
    ),
    "lengths-are-believed": Switch(
        "bookkeeper.rpc.frames.wire",
        "_end_of",
        old="if size < 0 or end > len(view):",
        new="if False:",
        breaks="L7: garbage on the wire kills a server",
    ),
    "secrets-lie-open": Switch(
        "bookkeeper.security.secret",
        "refuse_readable_by_others",
        old="if stat.S_IMODE(mode) & 0o077:",
        new="if False:",
        breaks="a secret that others can read is used all the same",
    ),
    "viewers-come-in-everywhere": Switch(
        "bookkeeper.security.secret_store",
        "SecretStore.accepted",
        old='if stored.secret.kind != "monitor"}',
        new="}",
        breaks="a viewer of the monitor gets in at the ports of processes",
    ),
    "the-monitor-needs-no-token": Switch(
        "bookkeeper.monitor.auth_middleware",
        "AuthMiddleware.__call__",
        old="secrets = None if self._viewers.accepted is None else list(self._viewers.accepted())",
        new="secrets = None",
        breaks="any client that reaches the monitor's port sees its pages",
    ),
    "any-token-will-do": Switch(
        "bookkeeper.security.viewers",
        "is_same",
        old='return hmac.compare_digest(expected.encode(), presented.encode("utf-8", "surrogatepass"))',
        new="return bool(presented)",
        breaks="any text in place of a token opens the monitor",
    ),
    "tokens-stay-in-the-address": Switch(
        "bookkeeper.monitor.auth_middleware",
        "address_without_token",
        old="others = [",
        new="""
        return str(request.url)
        others = [
        """,
        breaks="the token stays in a browser's history, and others read it from the screen",
    ),
    "scripts-read-the-cookie": Switch(
        "bookkeeper.monitor.auth_middleware",
        "set_cookie",
        old=', secure=is_secure, httponly=True, samesite="strict"',
        new="",
        breaks="pages of other sites make a browser show the cookie, scripts read it",
    ),
    "refusals-say-what-was-shown": Switch(
        "bookkeeper.monitor.auth_middleware",
        "reason_of",
        old="if TOKEN in request.query_params or bearer_of(request):",
        new="""
        return f"{request.url} {request.headers.get('authorization')} is wrong"
        if TOKEN in request.query_params or bearer_of(request):
        """,
        breaks="tokens are in the log: one of another cluster, or one that is a letter short",
    ),
    "all-clients-see-details": Switch(
        "bookkeeper.monitor.app",
        "visible_part",
        old="return view if request.scope[IS_AUTHENTICATED] else {verdict: view[verdict]}",
        new="return view",
        breaks="health and readiness show details to clients that are no viewers",
    ),
    "every-refusal-is-logged": Switch(
        "bookkeeper.rpc.trust.admission",
        "is_quiet",
        old="return logged_ns != 0 and now_ns < logged_ns + QUIET_MS * 1_000_000",
        new="return False",
        breaks="refused connections without end fill the log",
    ),
}
