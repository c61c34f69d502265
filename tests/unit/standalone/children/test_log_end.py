"""The end of a child's log says why it ended."""

from __future__ import annotations

from pathlib import Path

from bookkeeper.standalone.children.log_end import WORDS_BYTES_MAX, last_words, log_end


def test_the_end_of_a_log_is_read_and_a_lost_log_hides_no_message(tmp_path: Path) -> None:
    log = tmp_path / "gateway.log"
    assert log_end(log, 4) == ""
    log.write_text("the port is taken")
    assert (log_end(log, 5), log_end(log, 100)) == ("taken", "the port is taken")


def test_the_last_words_of_a_process_are_the_message_of_its_last_error(tmp_path: Path) -> None:
    log = tmp_path / "master.log"
    assert last_words(log) == ""
    lines = [
        "x" * (2 * WORDS_BYTES_MAX),
        "2026-11-26 20:23:55,206 ERROR bookkeeper.master: the master can't go on: can't listen at 127.0.0.1:9797",
        "2026-11-26 20:23:55,206 INFO bookkeeper.master: ends",
        "Traceback (most recent call last):",
    ]
    log.write_text("\n".join(lines))
    assert last_words(log) == "the master can't go on: can't listen at 127.0.0.1:9797"
