"""The settings of one cluster in ``bookkeeper.toml``: defined in ``sections`` and ``processes``, read by ``file``."""

from bookkeeper.config.file import (
    SETTINGS_FILE,
    Problem,
    check_settings,
    format_settings,
    joined_settings,
    load_settings,
    new_settings,
    write_settings,
)
from bookkeeper.config.processes import MasterSettings, ReplaySettings, TServerSettings
from bookkeeper.config.sections import (
    CoordinationSettings,
    HostSettings,
    InstanceSettings,
    MetadataSettings,
    MonitorSettings,
    ReplicasSettings,
    ReplicationSettings,
    RpcSettings,
    Sections,
    SecuritySettings,
    Settings,
    StandaloneSettings,
)
from bookkeeper.config.setting import SettingFacts, explain

__all__ = [
    "SETTINGS_FILE",
    "CoordinationSettings",
    "HostSettings",
    "InstanceSettings",
    "MasterSettings",
    "MetadataSettings",
    "MonitorSettings",
    "Problem",
    "ReplaySettings",
    "ReplicasSettings",
    "ReplicationSettings",
    "RpcSettings",
    "Sections",
    "SecuritySettings",
    "SettingFacts",
    "Settings",
    "StandaloneSettings",
    "TServerSettings",
    "check_settings",
    "explain",
    "format_settings",
    "joined_settings",
    "load_settings",
    "new_settings",
    "write_settings",
]
