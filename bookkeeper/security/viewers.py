"""Authentication of the monitor: a viewer presents the token of a monitor secret, or the cookie derived from it.

Arrives: the settings of a cluster, and the token or cookie of a request. Leaves: :class:`Viewers`, tokens, verdicts.
Token and cookie are digests of the secret's key: the key can't be computed from them, and they open only the monitor.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Sequence

from msgspec import Struct

from bookkeeper.config.sections import Settings
from bookkeeper.security.secret import Secret
from bookkeeper.security.secret_store import SecretStore


class Viewers(Struct, frozen=True):
    """Requirements of a monitor. ``accepted`` None = it accepts every viewer (``authentication = "none"``).

    ``cluster`` and ``instance_id`` name the cluster of the monitor.
    """

    accepted: Callable[[], Sequence[Secret]] | None
    cluster: str
    instance_id: str


def viewers_of(settings: Settings) -> Viewers:
    """Requirements of a cluster's monitors: a change of its secrets takes effect with the next request."""
    own = settings.instance
    accepted = SecretStore(settings.cluster_directory).viewers if requires_token(settings) else None
    return Viewers(accepted, own.name, own.instance_id)


def requires_token(settings: Settings) -> bool:
    """Whether the monitor requires a token."""
    return "none" not in (settings.security.authentication, settings.monitor.authentication)


def token_of(secret: Secret) -> str:
    """The token that a person or a program presents: 43 letters, digits, ``-`` and ``_``."""
    return _derived(secret, b"token")


def cookie_of(secret: Secret) -> str:
    """The cookie that a browser gets for a token, and presents from then on: it is no token itself."""
    return _derived(secret, b"cookie")


def holder_of(secrets: Sequence[Secret], derive: Callable[[Secret], str], presented: str) -> Secret | None:
    """The secret whose token or cookie (``derive``) was presented; None = of none of them. Every secret is compared, so
    that the time does not tell which one fits.
    """
    found = [secret for secret in secrets if is_same(derive(secret), presented)]
    return found[0] if found else None


def is_same(expected: str, presented: str) -> bool:
    """Compare in constant time: the time does not tell how many characters are right."""
    return hmac.compare_digest(expected.encode(), presented.encode("utf-8", "surrogatepass"))


def _derived(secret: Secret, use: bytes) -> str:
    digest = hmac.digest(secret.key, b"tablet-bookkeeper monitor " + use, "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
