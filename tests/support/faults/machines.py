"""Fault switches of hosts on several machines, which share no directory."""

from __future__ import annotations

from tests.support.faults.switch import Edit, Switch

MACHINES: dict[str, Switch] = {
    "logs-in-the-hosts-own-volume": Switch(
        "bookkeeper.tserver.process",
        "open_host",
        old='if settings.storage.volume == "none":',
        new="if False:",
        breaks="the logs of a tserver lie in a directory in which no other host looks, and count as gone",
    ),
    "any-cluster-takes-machines": Switch(
        "bookkeeper.standalone.machine_joining",
        "shared_of",
        old="if reasons:",
        new="if False:",
        also=(
            Edit(
                "bookkeeper.standalone.machine_joining",
                "join_by_zookeeper",
                "check_books(settings, coordination)",
                "pass",
            ),
        ),
        breaks="a host on another machine looks for books and logs in its own directory",
    ),
    "a-join-file-names-any-file": Switch(
        "bookkeeper.security.join_file",
        "parse_join_file",
        old="_FILE.fullmatch(file) is None or",
        new="",
        breaks="a file that an operator was given writes files of others",
    ),
    "hosts-with-any-settings": Switch(
        "bookkeeper.coordination.shared_settings",
        "agree_on_settings",
        old="if found := other_values(settings, recorded):",
        new="found = []\nif False:",
        breaks="a host with a shorter lease ends the sessions of others that renew theirs in time",
    ),
    "hosts-known-by-path": Switch(
        "bookkeeper.coordination.host_names",
        "claim_any_name",
        old="id_in(config.host_ids, host_id) if host_id else name_in(without_id(config), place)",
        new="name_in(config.hosts, place)",
        also=(
            Edit(
                "bookkeeper.coordination.host_names",
                "claim_name",
                "id_in(config.host_ids, host_id) if host_id else name_in(without_id(config), place)",
                "name_in(config.hosts, place)",
            ),
        ),
        breaks="the same path on two machines is one host, and both hold its replicas",
    ),
    "hosts-held-by-two-nodes": Switch(
        "bookkeeper.coordination.host_holders",
        "hold_host",
        old="refuse_held(coordination, host, host_id, node, session_id)",
        new="pass",
        breaks="two machines serve the tablets of one host, each with its own files",
    ),
    "replaced-while-it-begins": Switch(
        "bookkeeper.coordination.host_names",
        "replace_host",
        old="_refuse_alive(coordination, name, before)  # it may",
        new="pass  # it may",
        breaks="two directories serve as one host",
    ),
    "announces-what-it-binds": Switch(
        "bookkeeper.rpc.rpc_server",
        "Binding.announced",
        old="return Address(host, self.announced_port or bound.port)",
        new="return bound",
        breaks="nobody reaches a process behind a translation of addresses",
    ),
    "every-address-is-announced": Switch(
        "bookkeeper.config.setting",
        "check_announced",
        old="if is_every_address(announced or bound):",
        new="if False:",
        breaks="others are told 0.0.0.0, and call their own machine",
    ),
    "hosts-with-any-secrets": Switch(
        "bookkeeper.master.queries.host_comparison",
        "lacking_secrets",
        old="if lacking := known - set(marks):",
        new="lacking = set()\nif False:",
        breaks="a host refuses callers, or can't reach a peer, and nobody says why",
    ),
    "hosts-with-any-clock": Switch(
        "bookkeeper.master.queries.host_comparison",
        "ClockOffset.warning",
        old="if abs(self.ahead_ms) - self.within_ms <= AHEAD_MS_MAX:",
        new="if True:",
        breaks="the times that hosts show can't be compared, and nobody says so",
    ),
    "peer-secret-on-one-host": Switch(
        "bookkeeper.client.replication_admin",
        "Replication._refuse_lacking",
        old="if lacking:",
        new="if False:",
        breaks="a peer is defined that only one host reaches",
    ),
    "hosts-are-alike": Switch(
        "bookkeeper.coordination.shared_settings",
        "unlike_hosts",
        old="if host != settings.host.name and (lines :=",
        new="if False and (lines :=",
        breaks="an operator does not learn that one host has other settings",
    ),
    "machines-share-a-directory": Switch(
        "bookkeeper.standalone.one_machine",
        "OneMachine.begin",
        old="if self._read() != first:",
        new="if False:",
        breaks="two machines on one directory end each other's sessions for ever",
    ),
    "network-locks-count": Switch(
        "bookkeeper.standalone.one_machine",
        "refuse_network",
        old="if kind in NETWORK:",
        new="if False:",
        breaks="two machines on one directory write the same SQLite files",
    ),
    "files-change-their-place": Switch(
        "bookkeeper.coordination.shared_settings",
        "replace_settings",
        old="if fixed := different({name: wanted[name] for name in FIXED}, recorded):",
        new="fixed = []\nif False:",
        breaks="logs and segments that lie in the directory of one host count as gone on the others",
    ),
    "rounds-of-two-moments": Switch(
        "bookkeeper.standalone.books",
        "check_books",
        old="latest = coordination.number(ROUND_NAME)",
        new="latest = stored_round",
        breaks="a host that starts slowly while another one leads takes the store for an older copy, and ends",
    ),
    "ports-free-at-loopback-alone": Switch(
        "bookkeeper.standalone.ports",
        "free_ports",
        old="_EVERY_ADDRESS, port)",
        new="HOST, port)",
        breaks="a process of a new cluster binds a port that another one has at its address, and never starts",
    ),
    "any-replay-process-is-near": Switch(
        "bookkeeper.tserver.shipping.worker_lane_tools",
        "pick_replay",
        old="s.host is None or s.host.name != own_host",
        new="False",
        breaks="logs are read through another host, whose tasks get them over the network",
    ),
    "a-table-on-one-machine": Switch(
        "bookkeeper.master.operations.volume_need",
        "refuse_without_volume",
        old="if not context.settings.has_volume:",
        new="if False:",
        breaks="a tablet is served by a host that has not its files, or its files are those of one machine",
    ),
}
