"""The parts of one setting: a type with unit and bounds, a default, a meaning, and the reason for the default.

:func:`explain` returns them as :class:`SettingFacts`: for the comments of the settings file, the messages of
``bookkeeper config`` and the reference in ``docs/``.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Meta, Struct, StructMeta

KIB = 1024
MIB = 1024 * KIB


def unit(name: str) -> dict[str, str]:
    """The unit of a number, as an extra fact of its type."""
    return {"unit": name}


Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Millis = Annotated[int, Meta(ge=1, le=7 * 24 * 3600 * 1000, extra=unit("ms"))]
Bytes = Annotated[int, Meta(ge=1, le=2**40, extra=unit("bytes"))]
Port = Annotated[int, Meta(ge=1, le=65535)]
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z"
"""The form of the names and ids of clusters; ``init`` makes no other ones, and a peer's have it, too."""

Name = Annotated[
    str,
    Meta(
        pattern=NAME_PATTERN,
        description="up to 64 letters, digits, '.', '_' and '-', with a letter or digit first",
    ),
]
Text = Annotated[str, Meta(min_length=1)]


Announced = Annotated[str, Meta(pattern=r"^[^\s/@,\[\]]*\Z", description="a name or an address, without a port")]
"""The host of an address that others use; empty: the one that a server binds."""

AnyPort = Annotated[int, Meta(ge=0, le=65535)]
"""A port, or 0."""


def check_announced(key: str, bound: str, announced: str) -> None:
    """Raise ValueError when others would be told to call every address of their own machine. ``key``: of the bound
    host.
    """
    if is_every_address(announced or bound):
        name = f"{key.rpartition('.')[0]}.announced_host".lstrip(".")
        raise ValueError(
            f"{key} is {bound or 'every address'}, which others can't call: name this machine in {name}"
            if not announced
            else f"{name} is {announced}, which others can't call: name this machine"
        )


def is_every_address(host: str) -> bool:
    """Whether a server that binds this host listens at every address of its machine."""
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a name
        return False


class Documented(NamedTuple):
    """The declaration of a field of a section, in the place of its default."""

    default: object
    meaning: str
    why: str = ""
    key: str = ""
    """Its name where it is stored, if that is another one."""


class SectionMeta(StructMeta):
    """Makes a section: each field gets its default, and the class keeps what was said about the field."""

    documented: Mapping[str, Documented]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> Any:
        """The class of a section."""
        documented = {key: value for key, value in namespace.items() if isinstance(value, Documented)}
        defaults = {key: value.default for key, value in documented.items() if value.default is not NODEFAULT}
        others = {key: value for key, value in namespace.items() if key not in documented}
        made = super().__new__(mcs, name, bases, {**others, **defaults}, **config)
        made.documented = documented
        return made


class Section(Struct, frozen=True, forbid_unknown_fields=True, metaclass=SectionMeta):
    """A section of the settings file: frozen, strict (no number in quotes), without unknown keys."""


def setting(default: object, meaning: str, why: str) -> Any:
    """A field with a default. ``meaning`` is a sentence without its full stop, ``why`` completes "default N:"."""
    return Documented(default, meaning, why)


def required(meaning: str) -> Any:
    """A field without a default; ``bookkeeper init`` writes its value."""
    return Documented(NODEFAULT, meaning)


def stored(key: str, default: object, meaning: str) -> Any:
    """A field that is stored under ``key``. ``meaning`` also has the reason for the default."""
    return Documented(default, meaning, key=key)


@functools.cache
def fields_of(section: type[Struct]) -> Mapping[str, Any]:
    """The types of a class's fields by name, in their order, with bounds."""
    hints = get_type_hints(section, include_extras=True)
    return {name: hints[name] for name in section.__struct_fields__}


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


def explain(sections: type[Section]) -> Iterator[SettingFacts]:
    """All settings, in the order of the file."""
    for name, section in fields_of(sections).items():
        for key, kind in fields_of(section).items():
            yield _facts(name, key, kind, section.documented[key])


def is_section(kind: Any) -> bool:
    """Whether a type is that of a section."""
    return isinstance(kind, SectionMeta)


def expected(kind: Any) -> str:
    """The words for a value of this type; they complete "it must be"."""
    if choices := choices_of(kind):
        return f"one of {', '.join(map(repr, choices))}"
    bare, meta = bare_of(kind), meta_of(kind)
    if get_origin(bare) is tuple:
        (each, _) = get_args(bare)
        return f"a list{' of at least one element' if meta.min_length else ''}; each element {expected(each)}"
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[bare]
    if meta.ge is not None and meta.le is not None:
        return f"{words} from {meta.ge} to {meta.le}"
    if meta.description is not None:
        return meta.description
    return f"{words}, not empty" if meta.min_length else words


def _facts(section: str, key: str, kind: Any, said: Documented) -> SettingFacts:
    meta = meta_of(kind)
    return SettingFacts(
        section=section,
        key=key,
        unit=(meta.extra or {}).get("unit", ""),
        default=None if said.default is NODEFAULT else said.default,
        least=int(meta.ge) if meta.ge is not None else None,
        most=int(meta.le) if meta.le is not None else None,
        choices=choices_of(kind),
        meaning=said.meaning,
        why=said.why,
    )


def choices_of(kind: Any) -> tuple[str, ...]:
    """The words that a type allows, if it is a choice of words."""
    return tuple(word for word in get_args(bare_of(kind)) if isinstance(word, str))


def bare_of(kind: Any) -> Any:
    """A type without its bounds."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def meta_of(kind: Any) -> Meta:
    """The bounds of a type."""
    return next((rule for rule in getattr(kind, "__metadata__", ()) if isinstance(rule, Meta)), Meta())
