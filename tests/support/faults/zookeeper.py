"""Fault switches of the coordination store in ZooKeeper."""

from __future__ import annotations

from tests.support.faults.switch import Edit, Switch

_ENSEMBLE = "bookkeeper.coordination.zookeeper.ensemble"
_STORE = "bookkeeper.coordination.zookeeper.zookeeper"
_SLOW_TO_NOTICE = Edit(_ENSEMBLE, "new_client", "call_ms / 1000,", "60,")

ZOOKEEPER: dict[str, Switch] = {
    "zookeeper-ephemeral-lives": Switch(
        _ENSEMBLE,
        "Ensemble.commit",
        old="transaction.create(path, content, acl_of(client, is_public))",
        new='transaction.create(path, content, acl_of(client, is_public), ephemeral="/alive/" in path)',
        breaks="R15: a process whose connection ZooKeeper expires is dead, and counts on its lease",
    ),
    "zookeeper-lives-by-first-look": Switch(
        "bookkeeper.coordination.zookeeper.lives",
        "Lives.note",
        old="is_unchanged = seen is not None and seen.version == version",
        new="is_unchanged = seen is not None",
        breaks="R15: a process that renewed its lease after a pause is taken for dead",
    ),
    "zookeeper-death-at-any-version": Switch(
        _STORE,
        "ZooKeeperCoordination._has_removed",
        old="session_id), version))",
        new="session_id), ANY))",
        breaks="R15: a renewal between an observer's look and its verdict does not count",
    ),
    "zookeeper-unanswered-renewals-count": Switch(
        "bookkeeper.coordination.zookeeper.zookeeper_session",
        "ZooKeeperSession._renew",
        old="except UnavailableError as error:",
        new="""
        except UnavailableError as error:
            self._valid_until_ns = before_ns + self._lease_ns
        """,
        breaks="R15: a process that is cut off counts on a lease that others saw run out",
    ),
    "zookeeper-leads-by-a-look": Switch(
        _STORE,
        "ZooKeeperCoordination._write_leader",
        old="layout.encode(leader), version))",
        new="layout.encode(leader), ANY))",
        breaks="R1: two masters lead in one epoch, and write different values at one rank",
    ),
    "zookeeper-lease-not-on-the-host": Switch(
        "bookkeeper.coordination.zookeeper.zookeeper_session",
        "ZooKeeperSession._renew",
        old="self._lease.file.write(before_ns)",
        new="pass",
        breaks="R15: the host's supervisor ends a process that renews its lease",
    ),
    "zookeeper-waits-for-its-server": Switch(
        _ENSEMBLE,
        "Ensemble._connect_again",
        old="if self._connection.client is not lost:",
        new="if True:",
        also=(_SLOW_TO_NOTICE,),
        breaks="R15: a server that goes dark ends the sessions of all processes that use it",
    ),
    "zookeeper-session-in-two-steps": Switch(
        _STORE,
        "ZooKeeperCoordination.open_session",
        old="""
        self._zk.commit(
            Write(self._zk.at(layout.SERIAL), b"", serial.version),
            Create(self._zk.at(layout.SESSIONS, session_id), content),
            Create(alive),
        )
        """,
        new="""
        self._zk.commit(Create(self._zk.at(layout.SESSIONS, session_id), content))
        self._zk.commit(Write(self._zk.at(layout.SERIAL), b"", serial.version), Create(alive))
        """,
        breaks="R15: a new session is listed as dead, its record is removed, and then it lives unlisted",
    ),
    "zookeeper-ends-without-token": Switch(
        _STORE,
        "ZooKeeperCoordination.end_session",
        old="if layout.session_of(node.content).token_digest != digest_of(token):",
        new="if False:",
        breaks="R15: a forged lease file on one host ends a live session of another",
    ),
    "zookeeper-ends-by-a-look": Switch(
        _STORE,
        "ZooKeeperCoordination.end_session",
        old="self._end(session_id, Check(record, node.version))",
        new="self._end(session_id)",
        breaks="R15: a token ends a session that has another one by the time of the transaction",
    ),
    "zookeeper-bare-serials": Switch(
        _STORE,
        "random_suffix",
        old="return secrets.token_hex(8)",
        new='return "0"',
        breaks="a root restored from a backup gives out ids of sessions that have logs already",
    ),
    "zookeeper-any-root": Switch(
        _STORE,
        "ZooKeeperCoordination._refuse_other_root",
        old="if root.content != self._settings.store_id.encode():",
        new="if False:",
        breaks="R23: a process works with the root of another cluster",
    ),
    "zookeeper-dead-write": Switch(
        _STORE,
        "ZooKeeperCoordination._checks_of_own",
        old="for session in self._own[:1]",
        new="for session in ()",
        breaks="R14: a process that counts as dead changes the configuration",
    ),
    "zookeeper-any-size": Switch(
        "bookkeeper.coordination.zookeeper.layout",
        "checked_size",
        old="if len(content) > NODE_BYTES_MAX:",
        new="if False:",
        breaks="a value that ZooKeeper does not take costs the connection, and the leases with it",
    ),
    "zookeeper-candidacies-in-one-node": Switch(
        "bookkeeper.coordination.zookeeper.layout",
        "parted",
        old=">= PLACES_MAX:",
        new=">= 10**9:",
        breaks="a host with very many replicas can't stand in elections, and ends for ever again",
    ),
    "zookeeper-calls-without-limit": Switch(
        _ENSEMBLE,
        "Ensemble._left_s",
        old="return max(0.0,",
        new="return max(5.0,",
        also=(_SLOW_TO_NOTICE,),
        breaks="R15: a thread waits for ZooKeeper beyond the lease",
    ),
    "zookeeper-lost-answer-is-no": Switch(
        _STORE,
        "ZooKeeperCoordination._change_tree",
        old="if any(known.token == token for known in tree.changes):",
        new="if False:",
        breaks="a change whose answer was lost is made, and its caller is told that it was not",
    ),
    "zookeeper-reads-again": Switch(
        _ENSEMBLE,
        "Ensemble._watched_node",
        old="if known is not None and known[0].is_quiet(client):",
        new="if False:",
        breaks="an idle process reads again and again what has not changed",
    ),
    "zookeeper-lists-again": Switch(
        _ENSEMBLE,
        "Ensemble._watched_list",
        old="if known is not None and known[0].is_quiet(client):",
        new="if False:",
        breaks="an idle process lists again and again the sessions that it knows",
    ),
    "zookeeper-candidates-ask": Switch(
        _STORE,
        "ZooKeeperCoordination._is_led_by_other",
        old="if row is None or row.session_id == session.session_id:",
        new="if True:",
        breaks="a master that stands by asks ZooKeeper ten times a second who leads",
    ),
    "zookeeper-a-server-takes-all-the-time": Switch(
        _ENSEMBLE,
        "StoreHandler.create_connection",
        old="timeout=timeout / self._servers",
        new="timeout=timeout",
        breaks="one machine without power takes all of the time of a call, and the servers that live are not asked",
    ),
    "zookeeper-forgets-the-order": Switch(
        "bookkeeper.coordination.zookeeper.lives",
        "Lives.note_order",
        old="moments.append(Moment(zxid, now_ns))",
        new="return",
        breaks="a new leader sees the tservers of a dead machine for the first time, and waits for a second lease",
    ),
    "zookeeper-any-order": Switch(
        "bookkeeper.coordination.zookeeper.lives",
        "Lives._committed_by",
        old="self._moments[first].ns if first < len(self._moments) else now_ns",
        new="self._moments[0].ns if self._moments else now_ns",
        breaks="R15: a lease counts from before its renewal, and a live process is taken for dead",
    ),
    "zookeeper-silence-is-no-news": Switch(
        _STORE,
        "ZooKeeperCoordination.has_session_news",
        old="is_any_over or",
        new="",
        breaks="the tablets of a lost machine wait for the next look at all sessions",
    ),
    "zookeeper-no-news": Switch(
        _ENSEMBLE,
        "Watch.note",
        old="self.has_changed.set()",
        new="pass",
        breaks="a process that waits for news gets none",
    ),
    "zookeeper-masters-read-once": Switch(
        "bookkeeper.coordination.masters",
        "MasterFinder.addresses",
        old="yield from last.addresses",
        new="""
        yield from last.addresses
        if last.addresses:
            return
        """,
        breaks="a peer whose masters have other addresses gets nothing until an operator defines it again",
    ),
    "zookeeper-masters-of-anybody": Switch(
        "bookkeeper.coordination.masters",
        "MasterFinder.addresses",
        old='if instance_id not in ("", newer.instance_id):',
        new="if False:",
        breaks="R23: an attacker who writes the root of a peer lets a process ask ever more clusters in its place",
    ),
    "zookeeper-masters-read-by-each": Switch(
        "bookkeeper.coordination.masters",
        "MasterFinder._read_again",
        old="if root.last.number == last.number and not is_young:",
        new="if True:",
        breaks="each stream of a peer that is away connects to the ZooKeeper of that peer",
    ),
    "zookeeper-masters-closed": Switch(
        _STORE,
        "ZooKeeperCoordination.publish_masters",
        old="is_public=True",
        new="is_public=False",
        breaks="clients and peers can't find a cluster whose root belongs to a user",
    ),
    "zookeeper-untrusted-wait": Switch(
        _ENSEMBLE,
        "read_public",
        old="limit_ms // (1 + len(servers))",
        new="limit_ms",
        breaks="a peer is not found while one machine with a ZooKeeper of it has no power",
    ),
    "zookeeper-untrusted-without-bound": Switch(
        _ENSEMBLE,
        "UntrustedSocket.recv",
        old="received = super().recv(min(size, self.left_bytes), flags)",
        new="received = socket.socket.recv(self, size, flags)",
        breaks="a false ZooKeeper of a peer fills the memory of a process",
    ),
    "zookeeper-untrusted-stay": Switch(
        _ENSEMBLE,
        "UntrustedHandler.cut",
        old="for connection in self._connections:",
        new="for connection in ():",
        breaks="a false ZooKeeper of a peer keeps a thread for each question",
    ),
    "zookeeper-generation-unsettled": Switch(
        _STORE,
        "ZooKeeperCoordination.settled_generation",
        old="self._zk.commit(*(self._checks_of_own() or [Check(self._zk.at(layout.GENERATION))]))",
        new="pass",
        breaks="R14: a command returns when tservers follow a configuration older than its own change",
    ),
    "zookeeper-tree-goes-back": Switch(
        _STORE,
        "ZooKeeperCoordination._generation_node",
        old="if node.version < known:",
        new="if False:",
        breaks="R6: a process goes on with an older configuration after the root was restored",
    ),
    "zookeeper-older-root": Switch(
        "bookkeeper.coordination.seen_store",
        "refuse_older",
        old="if found.generation < seen.generation or found.sessions < seen.sessions:",
        new="if False:",
        breaks="R6: a host goes on with the configuration of an hour ago",
    ),
    "zookeeper-idle-at-a-look": Switch(
        _STORE,
        "ZooKeeperCoordination.put_while_idle",
        old="Check(self._zk.at(layout.SERIAL), serial.version),",
        new="Check(self._zk.at(layout.SERIAL)),",
        breaks="a process that starts while a command changes the shared settings runs with the former ones",
    ),
    "zookeeper-start-makes-secrets": Switch(
        "bookkeeper.standalone.directory",
        "complete_cluster",
        old="may_make = is_embedded or is_new",
        new="may_make = True",
        breaks="a host that is alone in its own directory makes secrets that no other host has, and another election",
    ),
}
