"""A CA and certificates for tests, made by the openssl command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.security.tls import TlsFiles


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA in a directory of its own."""

    directory: Path

    @classmethod
    def make(cls, directory: Path) -> Authority:
        """A new one."""
        directory.mkdir(parents=True)
        _openssl(
            *("req", "-x509", "-subj", "/CN=tests", "-days", "2", "-nodes", *_NEW_KEY),
            *("-keyout", str(directory / "ca.key"), "-out", str(directory / "ca.pem")),
        )
        return cls(directory)

    @property
    def ca(self) -> Path:
        """Its own certificate."""
        return self.directory / "ca.pem"

    def sign(self, name: str, address: str = "IP:127.0.0.1") -> TlsFiles:
        """A certificate for a subject alternative name, with its key."""
        key, request, certificate = (self.directory / f"{name}.{end}" for end in ("key", "csr", "pem"))
        extensions = self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={address}\n")
        _openssl("req", "-new", "-subj", f"/CN={name}", "-nodes", *_NEW_KEY, "-keyout", str(key), "-out", str(request))
        _openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.ca), "-CAkey", str(self.directory / "ca.key")),
            *("-CAcreateserial", "-days", "2", "-extfile", str(extensions), "-out", str(certificate)),
        )
        key.chmod(0o600)
        return TlsFiles(self.ca, certificate, key)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def _openssl(*words: str) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def tls_overrides(files: TlsFiles, clients: str = "any") -> dict[str, object]:
    """Settings of a cluster with these files."""
    return {
        "security.tls_certificate": str(files.certificate),
        "security.tls_key": str(files.key),
        "security.tls_ca": str(files.ca),
        "security.tls_clients": clients,
    }
