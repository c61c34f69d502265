"""The alerts of ``docker/prometheus/rules.yml``, checked and tested by Prometheus' own ``promtool``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bookkeeper.master.queries.cause_texts import PATIENCE_S
from bookkeeper.monitor.metrics import METRICS, PREFIX

RULES = Path(__file__).parents[2] / "docker" / "prometheus" / "rules.yml"
FOR_S = 60
"""An alert without a time of its own in its expression waits so long."""


def promtool(*arguments: str | Path) -> None:
    """Run ``promtool``; skips where it is missing (``make system-deps`` installs it)."""
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("no promtool: make system-deps installs Debian's prometheus")
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def alert_name(kind: str) -> str:
    """The alert of a kind of cause."""
    return "Bookkeeper" + "".join(word.capitalize() for word in kind.split("_"))


def summaries() -> dict[str, str]:
    """The summary of each alert, by its name."""
    found = re.findall(r'- alert: (\w+)\n(?:.*\n)*?\s+summary: "(.*)"', RULES.read_text())
    return dict(found)


def test_the_rules_are_valid() -> None:
    promtool("check", "rules", RULES)


def test_each_metric_of_the_rules_is_one_that_the_monitor_has() -> None:
    used = set(re.findall(rf"\b{PREFIX}(\w+)", RULES.read_text()))
    names = {f"{metric.name}_total" if metric.kind == "counter" else metric.name for metric in METRICS}
    assert used <= names | {"leads", "master_has_books"}
    assert {"stalled_seconds", "problems"} <= used


def test_each_cause_that_needs_a_person_has_an_alert() -> None:
    causes = re.findall(r'- alert: (\w+)\n\s+expr: bookkeeper_stalled_seconds\{cause="(\w+)"\}', RULES.read_text())
    assert {kind: name for name, kind in causes} == {kind: alert_name(kind) for kind in PATIENCE_S}


@pytest.mark.parametrize("kind", sorted(PATIENCE_S))
def test_an_alert_fires_when_a_person_is_needed_and_not_before(kind: str, tmp_path: Path) -> None:
    labels = {"table": "cities", "peer": "east", "cause": kind}
    series = f"bookkeeper_stalled_seconds{{{', '.join(f'{name}={json.dumps(text)}' for name, text in labels.items())}}}"
    severity = "ticket" if kind in ("quarantined", "peer_busy") else "page"
    summary = summaries()[alert_name(kind)]
    for name, text in labels.items():
        summary = summary.replace(f"{{{{ $labels.{name} }}}}", text)
    fired = {"exp_labels": {**labels, "severity": severity}, "exp_annotations": {"summary": summary}}
    after_s = PATIENCE_S[kind] or FOR_S
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "5s",
        "tests": [
            {
                "interval": "5s",
                "input_series": [{"series": series, "values": "0+5x200"}],
                "alert_rule_test": [
                    {"eval_time": f"{after_s - 5}s", "alertname": alert_name(kind), "exp_alerts": []},
                    {"eval_time": f"{after_s + 5}s", "alertname": alert_name(kind), "exp_alerts": [fired]},
                ],
            }
        ],
    }
    written = tmp_path / "rules_test.yml"
    written.write_text(json.dumps(test))  # JSON is YAML
    promtool("test", "rules", written)
