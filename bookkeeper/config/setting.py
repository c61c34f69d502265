"""The parts of one setting: a type with unit and bounds, a default, a meaning, and the reason for the default.

:func:`explain` returns them as :class:`SettingFacts`: for the comments of the settings file, the messages of
``bookkeeper config`` and the reference in ``docs/``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

KIB = 1024
MIB = 1024 * KIB


class Unit(Struct, frozen=True):
    """The unit of a number, as a part of a field's type."""

    name: str


Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Millis = Annotated[int, Field(ge=1, le=7 * 24 * 3600 * 1000), Unit("ms")]
Bytes = Annotated[int, Field(ge=1, le=2**40), Unit("bytes")]
Port = Annotated[int, Field(ge=1, le=65535)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Section(BaseModel):
    """A section of the settings file: frozen, strict (no number in quotes), without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def setting(default: object, meaning: str, why: str, **rules: Any) -> Any:
    """A field with a default. ``meaning`` is a sentence without its full stop, ``why`` completes "default N:"."""
    return Field(default=default, description=meaning, json_schema_extra={"why": why}, **rules)


def required(meaning: str) -> Any:
    """A field without a default; ``bookkeeper init`` writes its value."""
    return Field(description=meaning)


class SettingFacts(Struct, frozen=True):
    """The facts of one setting. ``least`` and ``most`` are None without a bound, ``default`` is None for a value that
    ``bookkeeper init`` writes.
    """

    section: str
    key: str
    unit: str
    default: object
    least: int | None
    most: int | None
    choices: tuple[str, ...]
    meaning: str
    why: str

    @property
    def name(self) -> str:
        """``section.key``."""
        return f"{self.section}.{self.key}"

    @property
    def comment(self) -> str:
        """One line for the settings file."""
        choices = f" ({' | '.join(self.choices)})" if self.choices else ""
        unit = f", in {self.unit}" if self.unit else ""
        reason = f" Default {self.default}: {self.why}." if self.why else ""
        return f"{self.meaning}{unit}{choices}.{reason}"


def explain(sections: type[BaseModel]) -> Iterator[SettingFacts]:
    """All settings, in the order of the file."""
    for section, outer in sections.model_fields.items():
        model = outer.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        for key, field in model.model_fields.items():
            yield _facts(section, key, field)


def _facts(section: str, key: str, field: FieldInfo) -> SettingFacts:
    extra = field.json_schema_extra
    return SettingFacts(
        section=section,
        key=key,
        unit=next((rule.name for rule in field.metadata if isinstance(rule, Unit)), ""),
        default=None if field.is_required() else field.default,
        least=_bound(field, "ge"),
        most=_bound(field, "le"),
        choices=tuple(word for word in get_args(field.annotation) if isinstance(word, str)),
        meaning=field.description or "",
        why=str(extra["why"]) if isinstance(extra, dict) else "",
    )


def _bound(field: FieldInfo, name: str) -> int | None:
    bounds = [getattr(rule, name, None) for rule in field.metadata]
    return next((bound for bound in bounds if isinstance(bound, int)), None)
