"""Who may look at the monitor: whoever shows the token of one of its secrets, or the cookie that a browser got for it.

Arrives: the settings of a cluster, and what a stranger shows. Leaves: :class:`Viewers`, tokens, verdicts. Token and
cookie come from the secret's key and do not lead back to it; neither opens anything else. Nothing survives a crash; the
secrets' files do.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookkeeper.config import Settings
from bookkeeper.security.secret import Secret
from bookkeeper.security.secret_store import SecretStore


@dataclass(frozen=True, slots=True)
class Viewers:
    """What a monitor asks for. ``accepted`` None = whoever comes may look (``authentication = "none"``).

    ``cluster`` and ``instance_id`` say whose monitor it is.
    """

    accepted: Callable[[], Sequence[Secret]] | None
    cluster: str
    instance_id: str


def viewers_of(settings: Settings) -> Viewers:
    """For the monitors of a cluster: a change of its secrets counts from the next request on."""
    own = settings.instance
    accepted = SecretStore(settings.directory).viewers if is_asked(settings) else None
    return Viewers(accepted, own.name, own.instance_id)


def is_asked(settings: Settings) -> bool:
    """Whether the monitor asks for a token."""
    return "none" not in (settings.security.authentication, settings.monitor.authentication)


def token_of(secret: Secret) -> str:
    """What a person or a program shows: 43 letters, digits, ``-`` and ``_``."""
    return _made_of(secret, b"token")


def cookie_of(secret: Secret) -> str:
    """What a browser shows after it has shown the token: it is no token itself."""
    return _made_of(secret, b"cookie")


def holder_of(secrets: Sequence[Secret], made: Callable[[Secret], str], shown: str) -> Secret | None:
    """The secret whose token (``made``: or cookie) is shown; None = of none of them. Each is compared, whatever comes
    out.
    """
    found = [secret for secret in secrets if is_same(made(secret), shown)]
    return found[0] if found else None


def is_same(expected: str, shown: str) -> bool:
    """Compare in a time that does not tell how much of it is right."""
    return hmac.compare_digest(expected.encode(), shown.encode("utf-8", "surrogatepass"))


def _made_of(secret: Secret, use: bytes) -> str:
    made = hmac.digest(secret.key, b"tablet-bookkeeper monitor " + use, "sha256")
    return base64.urlsafe_b64encode(made).rstrip(b"=").decode()
