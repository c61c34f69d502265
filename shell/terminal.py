"""The shell on a terminal: prompt, editable lines, history (:mod:`shell.command_history`), completion with Tab.

Ctrl-C drops the typed line, Ctrl-D ends the shell.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.output import create_output
from prompt_toolkit.shortcuts import CompleteStyle

from shell.command_history import PrivateHistory, history_file
from shell.completion import candidates
from shell.names import WAIT_MS
from shell.shell_session import Session


def terminal_lines(commands: click.Group, session: Session) -> Iterator[str]:
    """Lines as a user enters them; a pasted text of several lines is several commands."""
    prompt: PromptSession[str] = PromptSession(
        history=_history(),
        completer=_CommandCompleter(commands, session),
        complete_style=CompleteStyle.READLINE_LIKE,
        complete_while_typing=False,
        reserve_space_for_menu=0,
        output=create_output(always_prefer_tty=True),
    )
    click.echo("help lists the commands, Tab completes, Ctrl-D leaves", err=True)
    wait_ms = float(WAIT_MS)
    while True:
        try:
            yield from prompt.prompt(prompt_text(session, wait_ms)).splitlines()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        finally:
            wait_ms = 0  # a cluster without an answer delays only the first prompt


def prompt_text(session: Session, wait_ms: float) -> str:
    """The prompt: cluster and current table. Until the cluster answers, its name is that of the command line."""
    cluster = session.names.get(wait_ms).cluster or session.cluster
    return f"{cluster} {session.table}> " if session.table else f"{cluster}> "


def _history() -> History:
    path = history_file(os.environ, Path.home())
    try:
        return PrivateHistory(path)
    except OSError as error:
        click.echo(f"no history of commands: {path}: {error.strerror}; correct the path or its mode", err=True)
        return InMemoryHistory()


class _CommandCompleter(Completer):
    def __init__(self, commands: click.Group, session: Session) -> None:
        self._commands = commands
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Words that may end the line before the cursor; a space follows a single candidate."""
        del complete_event
        found = candidates(self._commands, document.text_before_cursor, self._session)
        ending = " " if len(found) == 1 else ""
        for candidate in found:
            yield Completion(
                candidate.word + ending, -candidate.replaced, display=candidate.word, display_meta=candidate.help
            )
