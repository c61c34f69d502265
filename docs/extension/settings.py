"""The reference of settings and table properties, from :mod:`bookkeeper.config`."""

from __future__ import annotations

import json

from bookkeeper.config.sections import Sections
from bookkeeper.config.setting import SettingFacts, explain, fields_of
from bookkeeper.config.table_properties import PROPERTIES
from docs.extension.markdown import code, doc, table


def section(name: str) -> str:
    """One section of the settings file; raises ValueError."""
    if name not in Sections.__struct_fields__:
        raise ValueError(f"no section {name}")
    facts = [found for found in explain(Sections) if found.section == name]
    rows = [[code(found.key), _default(found), _range(found), _meaning(found)] for found in facts]
    introduction = doc(fields_of(Sections)[name])
    return f"{introduction}\n\n{table(('key', 'default', 'allowed', 'meaning, and reason for the default'), rows)}"


def _default(facts: SettingFacts) -> str:
    if facts.default is None:
        return "written by `init`"
    return code(json.dumps(facts.default)) + (f" {facts.unit}" if facts.unit else "")


def _range(facts: SettingFacts) -> str:
    if facts.choices:
        return ", ".join(map(code, facts.choices))
    return f"{facts.least:,} to {facts.most:,}" if facts.least is not None and facts.most is not None else "text"


def _meaning(facts: SettingFacts) -> str:
    return f"{facts.meaning}." + (f" *Why: {facts.why}.*" if facts.why else "")


def table_properties(_: str) -> str:
    """Every property of a table."""
    rows = [
        [code(known.key), code(known.default), ", ".join(map(code, known.choices)), known.meaning]
        for known in PROPERTIES.values()
    ]
    return table(("property", "default", "one of", "meaning, and reason for the default"), rows)
