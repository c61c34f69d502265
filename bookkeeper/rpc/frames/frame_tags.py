"""Authentication tags: without TLS each frame ends with a tag, so that no third party can change it on its way.

The handshake makes a key for each direction. A wrong tag raises CorruptionError, and the connection closes.

A tagged frame is its header, the payload and the tag (16 bytes); the header's length counts payload and tag. The tag is
AES-256-GMAC over the payload: AES-256-GCM with an empty plaintext and the payload as associated data. Its nonce is the
number of the frame in its direction, from 0, in 12 bytes, big-endian. So a frame that is repeated, left out, moved or
sent back to its sender has a wrong tag. Tags do not hide the content of a frame; TLS does.
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
        self._send_nonces = _Nonces()
        self._receive_nonces = _Nonces()
        self._send_algorithm = AES256(send_key)
        self._receive_algorithm = AES256(receive_key)
        self._send_cipher = AESGCM(send_key)
        self._receive_cipher = AESGCM(receive_key)

    def tag(self, payload: Buffers) -> bytes:
        """The tag of the next frame to send. It does not join the buffers."""
        nonce = self._send_nonces.take()
        if len(payload) == 1:  # the same tag by one call: to set up a cipher costs more than to tag a small frame
            return self._send_cipher.encrypt(nonce, b"", payload[0])
        cipher = Cipher(self._send_algorithm, GCM(nonce)).encryptor()
        for buffer in payload:
            cipher.authenticate_additional_data(buffer)
        cipher.finalize()
        return cipher.tag

    def tagged(self, frame: Buffers) -> Buffers:
        """The next frame to send, header included, with its tag."""
        first = memoryview(frame[0])[FRAME_HEADER.size :]
        if len(frame) == 1:
            return [b"".join((FRAME_HEADER.pack(len(first) + TAG_BYTES), first, self.tag([first])))]
        payload: Buffers = [first, *(memoryview(buffer).cast("B") for buffer in frame[1:])]
        return [FRAME_HEADER.pack(sum(map(len, payload)) + TAG_BYTES), *payload, self.tag(payload)]

    def check(self, frame: memoryview) -> memoryview:
        """The payload of the next received frame (without its header); raises CorruptionError on a wrong tag."""
        payload, tag = frame[:-TAG_BYTES], frame[-TAG_BYTES:]
        try:
            self._receive_cipher.decrypt(self._receive_nonces.take(), tag, payload)
        except InvalidTag:
            raise _wrong_tag(len(frame)) from None
        return payload

    def discard_next(self) -> DiscardedFrame:
        """The check of the next received frame when the connection discards its bytes."""
        return DiscardedFrame(Cipher(self._receive_algorithm, GCM(self._receive_nonces.take())).encryptor())


class DiscardedFrame:
    """Checks the tag of a frame whose bytes are discarded as they arrive."""

    def __init__(self, cipher: AEADEncryptionContext) -> None:
        self._cipher = cipher
        self._last = b""
        self._bytes = 0

    def add(self, part: memoryview) -> None:
        """Add the next bytes of the frame (without the header)."""
        self._bytes += len(part)
        if len(part) < TAG_BYTES:
            part, self._last = memoryview(self._last + part), b""
        self._cipher.authenticate_additional_data(self._last)
        self._cipher.authenticate_additional_data(part[:-TAG_BYTES])
        self._last = bytes(part[-TAG_BYTES:])

    def check(self) -> None:
        """Check the complete frame; raises CorruptionError on a wrong tag."""
        self._cipher.finalize()
        if not bytes_eq(self._cipher.tag, self._last):
            raise _wrong_tag(self._bytes)


def _wrong_tag(size: int) -> CorruptionError:
    return CorruptionError(
        f"the tag of a frame of {size} bytes is wrong: a frame was changed, repeated or left out on its way; use TLS "
        "where that can happen (security.tls_certificate)"
    )


class _Nonces:
    """The nonces of one direction; each is used once."""

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> bytes:
        number = self._next
        self._next = number + 1
        return number.to_bytes(NONCE_BYTES, "big")
