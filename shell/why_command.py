"""``replication why``: the cause of each wait, and the command that ends it."""

from __future__ import annotations

import click

from bookkeeper.rpc.contract.messages import FileWhy, NextStep, WaitCause, WhyReport
from shell import colours
from shell.failures import ExitCode
from shell.output import Output, Record
from shell.shell_session import Session, in_session

NEEDS_YOU, BY_ITSELF = "needs you", "ends by itself"
"""The last line of a cause."""


@click.command()
@click.argument("about", metavar="[TABLE|FILE|PEER]", default="")
@in_session
def why(session: Session, output: Output, about: str) -> int:
    """Say why records wait, for whom, since when, and which command helps; of a log file also why it is kept.

    FILE is the name of a log or the end of it, as `replication status` prints it. Exit code 5 when a wait needs you; 0
    when nothing waits, or each wait ends by itself.
    """
    report = session.client.replication.why(about)
    if report.problem:
        output.warning(report.problem, {"age_ms": report.age_ms})
    if output.as_json:
        output.result("", report_record(report))
    else:
        for paragraph in paragraphs(report, about):
            click.echo(in_colours(paragraph) if colours.are_wanted() else paragraph)
    return ExitCode.NEEDS_PERSON if any(cause.needs_person for cause in report.causes) else ExitCode.OK


def paragraphs(report: WhyReport, about: str) -> list[str]:
    """The answer as text."""
    found = [] if report.file is None else ["\n".join(file_lines(report.file))]
    found += ["\n".join(cause_lines(cause)) for cause in report.causes]
    if not report.targets:
        subject = f"of {about} " if about else ""
        found.append(f"nothing {subject}is replicated: enablereplication -t TABLE --all-loc-groups CLUSTER")
    elif not report.causes:
        found.append(f"nothing waits: {', '.join(report.targets)}")
    return [text if number == 0 else f"\n{text}" for number, text in enumerate(found)]


def in_colours(paragraph: str) -> str:
    """A paragraph whose verdict is red when it needs a person, and green when it ends by itself."""
    for verdict, colour in ((NEEDS_YOU, colours.RED), (BY_ITSELF, colours.GREEN)):
        if paragraph.endswith(f"\n  {verdict}"):
            return paragraph.removesuffix(verdict) + colours.painted(verdict, colour)
    return paragraph


def cause_lines(cause: WaitCause) -> list[str]:
    """One paragraph."""
    tables = f"table{'s' if len(cause.tables) > 1 else ''} {', '.join(cause.tables)}"
    since = "" if cause.since_seconds is None else f" for {age(cause.since_seconds)}"
    lines = [f"{cause.cluster} waits for {tables}: {cause.kind}{since}", f"  {cause.text}"]
    records = f"{cause.records} record{'s' if cause.records != 1 else ''}"
    amount = f"{records} in {cause.files} file{'s' if cause.files != 1 else ''}"
    lines.append(f"  {amount}{f', {cause.file}' if cause.file else ''}")
    if cause.tries and cause.next_try_in_ms is not None:
        lines.append(f"  next try in {cause.next_try_in_ms / 1000:.1f} s, after {cause.tries} failed ones")
    lines += [f"  {'then' if number else 'next'}: {step_line(step)}" for number, step in enumerate(cause.steps)]
    if not cause.steps:
        again = "" if cause.next_try_in_ms is None else f"; it tries again in {cause.next_try_in_ms / 1000:.1f} s"
        lines.append(f"  next: nothing to do{again}")
    lines.append(f"  {NEEDS_YOU if cause.needs_person else BY_ITSELF}")
    return lines


def step_line(step: NextStep) -> str:
    """A command, and where to type it."""
    return f"in the directory of {step.at}: {step.command}" if step.at else step.command


def file_lines(file: FileWhy) -> list[str]:
    """Why a file is kept."""
    size = "its size is not known: it is gone, or its host is away" if file.bytes is None else f"{file.bytes} bytes"
    lines = [f"{file.file}: {size}"]
    lines += [
        f"  kept for {reason.kind}: {reason.who}{f', {reason.detail}' if reason.detail else ''}"
        for reason in file.reasons
    ]
    if not file.reasons:
        lines.append("  nothing needs it: the collector deletes it next")
    for target in file.targets:
        lacks = f"lacks offsets {target.first} to {target.last}, {target.records} records of {target.table}"
        lines.append(f"  {target.cluster} {lacks if target.first else f'lacks nothing of {target.table}'}")
    return lines


def age(seconds: float) -> str:
    """A duration in its largest unit."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def report_record(report: WhyReport) -> Record:
    """The answer for programs."""
    return {
        "needs_person": any(cause.needs_person for cause in report.causes),
        "causes": [cause_record(cause) for cause in report.causes],
        "file": None if report.file is None else file_record(report.file),
        "targets": list(report.targets),
        "age_ms": report.age_ms,
        "problem": report.problem or None,
    }


def cause_record(cause: WaitCause) -> Record:
    """One cause."""
    return {
        "cluster": cause.cluster,
        "kind": cause.kind,
        "tables": list(cause.tables),
        "text": cause.text,
        "steps": [{"at": step.at or None, "command": step.command} for step in cause.steps],
        "needs_person": cause.needs_person,
        "since_seconds": cause.since_seconds,
        "files": cause.files,
        "records": cause.records,
        "bytes": cause.bytes,
        "file": cause.file or None,
        "next_try_in_ms": cause.next_try_in_ms,
        "tries": cause.tries,
    }


def file_record(file: FileWhy) -> Record:
    """A file, its reasons and what each target lacks."""
    return {
        "file": file.file,
        "bytes": file.bytes,
        "reasons": [{"kind": one.kind, "who": one.who, "detail": one.detail} for one in file.reasons],
        "targets": [
            {
                "table": one.table,
                "cluster": one.cluster,
                "first": one.first or None,
                "last": one.last or None,
                "records": one.records,
                "kind": one.kind,
            }
            for one in file.targets
        ],
    }
