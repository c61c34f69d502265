"""Fault switches of access: secrets, handshakes, rights, certificates, viewers of the monitor (see ``faults``)."""

from __future__ import annotations

import ssl

from bookkeeper.monitor import app, auth_middleware, connection_limiter
from bookkeeper.monitor.connection_limiter import LimitedConnection
from bookkeeper.rpc import channel, dispatch, rpc_pool, rpc_server
from bookkeeper.rpc.frames import frame_tags, wire
from bookkeeper.rpc.frames.frame_tags import FrameTags
from bookkeeper.rpc.rpc_server import RpcServer
from bookkeeper.rpc.trust import admission, handshake, rights, table_rights
from bookkeeper.security import access, exposure, file_roots, private_files, secret, secret_store, tls, viewers
from bookkeeper.security.secret_store import FileFact
from tests.support.replacement import Fault


def _believe(context: ssl.SSLContext) -> None:
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE


ENTRANCE_FAULTS: dict[str, Fault] = {
    "roots-are-everywhere": Fault(
        file_roots.is_in,
        lambda found, root: True,  # noqa: ARG005
        "a user of a cluster reads and writes all files that its processes may",
    ),
    "directories-stay-open": Fault(
        private_files.is_open,
        lambda mode: False,  # noqa: ARG005
        "every user of the machine reads records, and holds the lock of a cluster",
    ),
    "only-directories-are-read": Fault(
        secret_store.file_facts,
        lambda directory: (FileFact("", 0, 0, 0, directory.stat().st_mtime_ns),) if directory.is_dir() else (),
        "a secret that was replaced in place lets its old holder in, and keeps its new one out",
    ),
    "any-proof-will-do": Fault(
        handshake.is_proof,
        lambda expected, received: True,  # noqa: ARG005
        "the id of a secret is enough to connect without the secret, and to pose as a server",
    ),
    "no-secret-is-required": Fault(
        admission.asks_for_secret,
        lambda entrance: False,  # noqa: ARG005
        "a server that should ask for a secret accepts all callers",
    ),
    "proofs-are-the-same": Fault(
        handshake.client_proof,
        lambda key, transcript: handshake.server_proof(key, transcript),
        "a caller without a secret gets in by sending the server's own proof back",
    ),
    "nonces-repeat": Fault(
        handshake.new_nonce,
        lambda: bytes(32),
        "a recorded handshake lets a caller without a secret in",
    ),
    "tags-are-not-verified": Fault(
        FrameTags.check,
        lambda self, frame: frame[:-16],  # noqa: ARG005
        "a relay of a handshake makes calls of its own on the connection, and changes answers",
    ),
    "frames-have-no-numbers": Fault(
        frame_tags._Nonces.take,
        lambda self: bytes(12),  # noqa: ARG005
        "a relay repeats frames",
    ),
    "everything-is-offered": Fault(
        access.meant_for,
        lambda instance_id, secrets: secrets,  # noqa: ARG005
        "any server at an address is offered, and sees proofs of, the secrets for other instances",
    ),
    "any-target-will-do": Fault(
        admission.refuse_other_target,
        lambda target, hello, own_name: None,  # noqa: ARG005
        "a handshake that was meant for one instance holds at another",
    ),
    "any-instance-will-do": Fault(
        rpc_pool.refuse_other_instance,
        lambda hello, instance_id: None,  # noqa: ARG005
        "R23: a server at the address of a peer that asks for no secret gets the data for that peer",
    ),
    "proofs-hold-on-any-channel": Fault(
        handshake.transcript_of,
        lambda channel, messages, nonce, chosen: b"".join((*messages, nonce, chosen)),  # noqa: ARG005
        "a holder of a certificate relays a handshake from one TLS connection to another one",
    ),
    "callers-believe-any-proof": Fault(
        channel.is_from_server,
        lambda key, transcript, proof: True,  # noqa: ARG005
        "any server at an address counts as holder of the secret",
    ),
    "everywhere-is-loopback": Fault(
        exposure.is_loopback,
        lambda host: True,  # noqa: ARG005
        "a cluster listens beyond its machine without TLS and without a warning",
    ),
    "every-secret-opens-everything": Fault(
        rights.may_call,
        lambda kind, service, method: True,  # noqa: ARG005
        "a peer's secret gives the rights of a client, a client's those of a process",
    ),
    "peers-speak-for-others": Fault(
        rights.is_own_instance,
        lambda caller, source: True,  # noqa: ARG005
        "a peer opens a stream in another one's name, and this cluster drops that one's records as known",
    ),
    "peers-reach-every-table": Fault(
        table_rights.opens,
        lambda secret, table: True,  # noqa: ARG005
        "a peer's secret opens every table",
    ),
    "any-name-will-do": Fault(
        rpc_pool.refuse_wrong_instance,
        lambda hello, secret, offers: None,  # noqa: ARG005
        "R23: a holder of one secret of this cluster poses as another peer",
    ),
    "secrets-pass-hands": Fault(
        dispatch.refuse_contradicting_hello,
        lambda hello, admitted: None,  # noqa: ARG005
        "a secret that was made for one instance serves another",
    ),
    "any-version-will-do": Fault(
        admission.check_caller_version,
        lambda version, own_name: None,  # noqa: ARG005
        "a peer of a newer protocol is not told so",
    ),
    "silent-connections-stay": Fault(
        RpcServer._end_surplus_handshakes,
        lambda self: None,  # noqa: ARG005
        "unfinished handshakes take the slots of other connections",
    ),
    "silent-clients-keep-their-slots": Fault(
        connection_limiter.surplus_connection,
        lambda connections: None,  # noqa: ARG005
        "clients that send nothing keep all others from the monitor",
    ),
    "slow-requests-keep-their-slots": Fault(
        LimitedConnection._close_late,
        lambda self: None,  # noqa: ARG005
        "a client that sends the monitor a byte now and then stays for ever",
    ),
    "any-certificate-will-do": Fault(
        tls.expect_certificate,
        _believe,
        "a client accepts any server at an address",
    ),
    "forgotten-secrets-stay": Fault(
        rpc_server.is_forgotten,
        lambda admitted, accepted: False,  # noqa: ARG005
        "a connection stays open after its secret was removed",
    ),
    "lengths-are-believed": Fault(
        wire._end_of,
        lambda view, at, size: at + size,  # noqa: ARG005
        "L7: garbage on the wire kills a server",
    ),
    "secrets-lie-open": Fault(
        secret.refuse_readable_by_others,
        lambda path, mode: None,  # noqa: ARG005
        "a secret that others can read is used all the same",
    ),
    "viewers-come-in-everywhere": Fault(
        secret_store.opens_ports,
        lambda kind: True,  # noqa: ARG005
        "a viewer of the monitor gets in at the ports of processes",
    ),
    "the-monitor-needs-no-token": Fault(
        auth_middleware.accepted_by,
        lambda viewers: None,  # noqa: ARG005
        "any client that reaches the monitor's port sees its pages",
    ),
    "any-token-will-do": Fault(
        viewers.is_same,
        lambda expected, shown: bool(shown),  # noqa: ARG005
        "any text in place of a token opens the monitor",
    ),
    "tokens-stay-in-the-address": Fault(
        auth_middleware.address_without_token,
        lambda request: str(request.url),
        "the token stays in a browser's history, and others read it from the screen",
    ),
    "scripts-read-the-cookie": Fault(
        auth_middleware.set_cookie,
        lambda answer, name, value, is_secure: answer.set_cookie(name, value),  # noqa: ARG005
        "pages of other sites make a browser show the cookie, scripts read it",
    ),
    "refusals-say-what-was-shown": Fault(
        auth_middleware.reason_of,
        lambda request, cookie: f"{request.url} {request.headers.get('authorization')} is wrong",  # noqa: ARG005
        "tokens are in the log: one of another cluster, or one that is a letter short",
    ),
    "all-clients-see-details": Fault(
        app.visible_part,
        lambda request, view, verdict: view,  # noqa: ARG005
        "health and readiness show details to clients that are no viewers",
    ),
    "every-refusal-is-logged": Fault(
        admission.is_quiet,
        lambda logged_ns, now_ns: False,  # noqa: ARG005
        "refused connections without end fill the log",
    ),
}
