"""Frames that nobody on the way can change: without TLS each one ends with a tag that only the two sides can make.

Arrives: the keys that a handshake made, one for each direction; frames. Leaves: frames with their tags, and payloads
whose tag is right; CorruptionError otherwise, and the connection closes. Nothing survives a crash.

A sealed frame is its header, the payload, the tag (16 bytes); the header's length counts payload and tag. The tag is
AES-256-GMAC over the payload, which is AES-256-GCM with an empty plaintext and the payload as associated data. Its
nonce is the number of the frame in its direction, from 0, in 12 bytes, big-endian. So a frame that is repeated, left
out, moved or sent back to its sender has a wrong tag. Tags do not hide what a frame says: that is what TLS is for.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import AEADEncryptionContext, Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import GCM
from cryptography.hazmat.primitives.constant_time import bytes_eq

from bookkeeper.errors import CorruptionError
from bookkeeper.rpc.frames.envelope import FRAME_HEADER
from bookkeeper.rpc.frames.wire import Buffers

TAG_BYTES = 16
NONCE_BYTES = 12


class FrameTags:
    """The tags of one side of a connection. Used by one thread at a time."""

    def __init__(self, send_key: bytes, receive_key: bytes) -> None:
        """Each key has 32 bytes and serves one direction of one connection only."""
        self._sends = _Numbers()
        self._receives = _Numbers()
        self._algorithm = AES256(send_key)
        self._received = AES256(receive_key)
        self._maker = AESGCM(send_key)
        self._checker = AESGCM(receive_key)

    def tag(self, payload: Buffers) -> bytes:
        """The tag of the next frame to send. The buffers are not joined."""
        nonce = self._sends.take()
        if len(payload) == 1:  # the same tag by one call, where setting up a cipher costs more than a small frame
            return self._maker.encrypt(nonce, b"", payload[0])
        cipher = Cipher(self._algorithm, GCM(nonce)).encryptor()
        for buffer in payload:
            cipher.authenticate_additional_data(buffer)
        cipher.finalize()
        return cipher.tag

    def sealed(self, frame: Buffers) -> Buffers:
        """The next frame to send, header included, with its tag."""
        first = memoryview(frame[0])[FRAME_HEADER.size :]
        if len(frame) == 1:
            return [b"".join((FRAME_HEADER.pack(len(first) + TAG_BYTES), first, self.tag([first])))]
        payload: Buffers = [first, *(memoryview(buffer).cast("B") for buffer in frame[1:])]
        return [FRAME_HEADER.pack(sum(map(len, payload)) + TAG_BYTES), *payload, self.tag(payload)]

    def check(self, frame: memoryview) -> memoryview:
        """The payload of the next frame that came (without its header); raises CorruptionError on a wrong tag."""
        payload, tag = frame[:-TAG_BYTES], frame[-TAG_BYTES:]
        try:
            self._checker.decrypt(self._receives.take(), tag, payload)
        except InvalidTag:
            raise _wrong_tag(len(frame)) from None
        return payload

    def passing(self) -> PassingFrame:
        """For the next frame that comes, where its bytes are thrown away as they come."""
        return PassingFrame(Cipher(self._received, GCM(self._receives.take())).encryptor())


class PassingFrame:
    """The tag of a frame that nobody keeps."""

    def __init__(self, cipher: AEADEncryptionContext) -> None:
        self._cipher = cipher
        self._last = b""
        self._bytes = 0

    def add(self, part: memoryview) -> None:
        """Its next bytes (without the header)."""
        self._bytes += len(part)
        if len(part) < TAG_BYTES:
            part, self._last = memoryview(self._last + part), b""
        self._cipher.authenticate_additional_data(self._last)
        self._cipher.authenticate_additional_data(part[:-TAG_BYTES])
        self._last = bytes(part[-TAG_BYTES:])

    def check(self) -> None:
        """All of it has come; raises CorruptionError on a wrong tag."""
        self._cipher.finalize()
        if not bytes_eq(self._cipher.tag, self._last):
            raise _wrong_tag(self._bytes)


def _wrong_tag(size: int) -> CorruptionError:
    return CorruptionError(
        f"the tag of a frame of {size} bytes is wrong: somebody changed, repeated or left out a frame on its way; use "
        "TLS where that can happen (security.tls_certificate)"
    )


class _Numbers:
    """The nonces of one direction, each once."""

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> bytes:
        number = self._next
        self._next = number + 1
        return number.to_bytes(NONCE_BYTES, "big")
