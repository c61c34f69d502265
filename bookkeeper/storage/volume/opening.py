"""Opens the Volume of a cluster: the only place that knows where it lies."""

from __future__ import annotations

from bookkeeper.config.sections import Settings
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.volume.volume_protocol import Volume


def open_volume(settings: Settings) -> Volume:
    """The Volume in the cluster's directory. A process opens it once and hands it to its parts. With ``storage.volume``
    = none it is the host's own directory, and nothing of the cluster lies there.
    """
    return LocalVolume(settings.cluster_directory)
