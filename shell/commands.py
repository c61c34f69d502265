"""All commands of ``bookkeeper shell``, by name."""

from __future__ import annotations

import click

from shell.lazy_group import LazyCommand, LazyCommands, LazyGroup

COMMANDS = {
    "help": LazyCommand("shell.help_command", "show_help", "List the commands, or explain one."),
    "createtable": LazyCommand(
        "shell.table_commands", "createtable", 'Make a table; families without a group are in the group "default".'
    ),
    "deletetable": LazyCommand(
        "shell.table_commands",
        "deletetable",
        "Delete a table and its data on this cluster; its records are not replicated any more.",
    ),
    "tables": LazyCommand("shell.table_commands", "tables", "List the tables."),
    "setgroups": LazyCommand(
        "shell.table_commands",
        "setgroups",
        'Replace the locality groups of a table; without groups every family is in "default".',
    ),
    "getgroups": LazyCommand("shell.table_commands", "getgroups", "List the locality groups of a table."),
    "readonly": LazyCommand(
        "shell.table_commands",
        "readonly",
        "Refuse users' writes (on), accept them again (off), or print the present state.",
    ),
    "flush": LazyCommand("shell.table_commands", "flush", "Write the memory of a table's tablets to segments."),
    "config": LazyCommand(
        "shell.storage_commands",
        "config",
        "List the properties of a table or the site, or change some; changes are in force on return.",
    ),
    "compact": LazyCommand(
        "shell.storage_commands",
        "compact",
        "Merge the segments of a table's tablets, and drop deletes, older versions and aged-off cells.",
    ),
    "du": LazyCommand(
        "shell.storage_commands",
        "du",
        "Print the size of tables on disk: tablets, segments, and their records and bytes.",
    ),
    "importdirectory": LazyCommand(
        "shell.storage_commands",
        "importdirectory",
        "Add the records of a directory's Parquet and CSV files to a table as segments, without logs and memory.",
    ),
    "exporttable": LazyCommand(
        "shell.storage_commands",
        "exporttable",
        "Copy a table into a directory: its segments, its settings, and a manifest with checksums.",
    ),
    "importtable": LazyCommand(
        "shell.storage_commands",
        "importtable",
        "Make a table from an export: same tablets, locality groups, properties, timestamps and deletes.",
    ),
    "setauths": LazyCommand(
        "shell.user_commands",
        "setauths",
        "Replace the authorizations of a user; they choose the labelled cells that its scans show.",
    ),
    "getauths": LazyCommand("shell.user_commands", "getauths", "Print the authorizations of a user."),
    "tablets": LazyCommand(
        "shell.tablet_commands",
        "tablets",
        "List the tablets of a table: rows, tablet server, state and problem of each.",
    ),
    "addsplits": LazyCommand(
        "shell.tablet_commands",
        "addsplits",
        "Split tablets of a table at these rows; the table stays in use, and its replication continues.",
    ),
    "getsplits": LazyCommand(
        "shell.tablet_commands", "getsplits", "List the last row of each tablet of a table, except the last tablet."
    ),
    "merge": LazyCommand(
        "shell.tablet_commands", "merge", "Merge the tablets of a range of rows, or of the table, into one tablet."
    ),
    "hosts": LazyCommand(
        "shell.host_commands",
        "hosts",
        "List the hosts: the replicas that each is to hold, how many of them join, the tablets that it serves, its "
        "bytes.",
    ),
    "host": LazyCommand("shell.host_commands", "host", "Take a host out of use, or back into use."),
    "segments": LazyCommand(
        "shell.host_commands",
        "segments",
        "List the segments of a table's tablets on hosts: the chain of each tablet, the hosts that hold each state "
        "with all its files, those that told the leader so, and what it waits for.",
    ),
    "insert": LazyCommand(
        "shell.data_commands",
        "insert",
        "Write one cell; it is durable when the command returns. \\xHH stands for any byte.",
    ),
    "delete": LazyCommand("shell.data_commands", "delete", "Delete one cell: all its versions up to the timestamp."),
    "scan": LazyCommand(
        "shell.data_commands", "scan", "Print cells in order, one a line: row, column, visibility, timestamp, value."
    ),
    "definecluster": LazyCommand(
        "shell.replication_commands",
        "definecluster",
        "Name a peer: the cluster with its masters at QUORUM.",
    ),
    "deletecluster": LazyCommand(
        "shell.replication_commands", "deletecluster", "Remove a peer to which no table replicates."
    ),
    "clusters": LazyCommand("shell.replication_commands", "clusters", "List the clusters that are defined."),
    "enablereplication": LazyCommand(
        "shell.replication_commands",
        "enablereplication",
        "Send records written to TABLE from now on to CLUSTER; on return every tablet server does so.",
    ),
    "disablereplication": LazyCommand(
        "shell.replication_commands",
        "disablereplication",
        "Stop sending groups of TABLE to CLUSTER; print the table's remaining targets there.",
    ),
    "replication": LazyCommand(
        "shell.replication_commands",
        "replication",
        "Show the progress of replication, wait for it, and release blocked records.",
    ),
    "operations": LazyCommand(
        "shell.operation_commands", "operations", "List operations that are under way, and those that failed lately."
    ),
    "table": LazyCommand(
        "shell.session_commands", "table", "Make a table the current one, or print the current table."
    ),
    "notable": LazyCommand("shell.session_commands", "notable", "Unset the current table."),
}


@click.group(
    name="shell",
    cls=LazyGroup,
    commands=LazyCommands(COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def commands(as_json: bool) -> None:
    """Commands of the shell; COMMAND --help explains one."""
