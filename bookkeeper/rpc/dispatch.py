"""From a frame to a call of the handler, and from its result or error to the frame of an answer.

Arrives: whole frames of one connection. Leaves: answers. Errors of :mod:`bookkeeper.errors` travel as they are;
anything else is logged with its traceback and answered as a permanent Fault ``internal``. What is no message at all
raises CorruptionError, and the caller closes the connection.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bookkeeper.errors import (
    BookkeeperError,
    CorruptionError,
    IncompatibleError,
    InvalidInputError,
    NotAdmittedError,
    OverloadedError,
    UnauthorizedError,
)
from bookkeeper.rpc.admission import Admitted
from bookkeeper.rpc.envelope import MessageKind, MessageStart, MethodCodec, method_codec, read_start, unknown_method
from bookkeeper.rpc.faults import internal_fault, to_fault
from bookkeeper.rpc.messages import PROTOCOL_VERSION, Fault, Hello
from bookkeeper.rpc.rights import Caller, refuse_call, refuse_foreign_source
from bookkeeper.rpc.schema import load_contract
from bookkeeper.rpc.wire import Buffers

LOG = logging.getLogger(__name__)

HELLO = "hello"

_CALL = threading.local()


def caller() -> Caller | None:
    """Who made the call that this thread answers now; None outside a call."""
    found: Caller | None = getattr(_CALL, "caller", None)
    return found


@dataclass(slots=True)
class Conversation:
    """What is remembered between the frames of one connection: where from, as whom it was let in (None: it was not yet)
    and who (None before ``hello``).
    """

    peer: str
    hello: Hello | None = None
    admitted: Admitted | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Buffers to send (None = nothing), and whether to close afterwards."""

    buffers: Buffers | None
    close: bool = False


class Dispatcher:
    """The methods of one service, each with its codec and its handler's function."""

    def __init__(
        self, service: str, handler: object, hello: Hello, frame_bytes_max: int, concurrency: Mapping[str, int]
    ) -> None:
        """Raises InvalidInputError when the handler lacks a method, or a bound names none."""
        names = load_contract().services[service]
        missing = [name for name in names if name != HELLO and not callable(getattr(handler, name, None))]
        unknown = set(concurrency) - set(names)
        if missing or unknown:
            raise InvalidInputError(
                f"{type(handler).__name__} lacks {missing} of {service}, bounds that name no method: {sorted(unknown)}"
            )
        self._service = service
        self._hello = hello
        self._frame_bytes_max = frame_bytes_max
        self._codecs = {name: method_codec(service, name) for name in names}
        self._functions: dict[str, Callable[..., Any]] = {
            name: getattr(handler, name) for name in names if name != HELLO
        }
        self._gates = {name: threading.BoundedSemaphore(count) for name, count in concurrency.items()}

    def respond(self, frame: memoryview, conversation: Conversation) -> Answer:
        """Make the call that the frame holds; raises CorruptionError when it holds none."""
        start = read_start(frame)
        if start.kind not in (MessageKind.CALL, MessageKind.ONEWAY):
            raise CorruptionError(f"a {start.kind.name} in place of a call")
        codec = self._codecs.get(start.method)
        if codec is None:
            LOG.warning("%s: there is no method %s.%s", conversation.peer, self._service, start.method)
            return Answer(unknown_method(start) if start.kind is MessageKind.CALL else None, conversation.hello is None)
        try:
            arguments = codec.read_call(frame, start)
        except CorruptionError as error:
            if codec.oneway:
                raise
            LOG.warning("%s: %s; closed", conversation.peer, error)
            return Answer(self._fault(codec, start, to_fault(InvalidInputError(error.message))), close=True)
        if start.method == HELLO:
            return self._greet(codec, start, arguments[0], conversation)
        if conversation.hello is None:
            early = IncompatibleError(f"the first call must be {HELLO}, not {start.method}")
            LOG.warning("%s: %s; closed", conversation.peer, early)
            return Answer(None if codec.oneway else self._fault(codec, start, to_fault(early)), close=True)
        return Answer(self._run(codec, start, arguments, conversation))

    def _greet(self, codec: MethodCodec, start: MessageStart, hello: Hello, conversation: Conversation) -> Answer:
        if hello.protocol_version != PROTOCOL_VERSION:
            error = IncompatibleError(
                f"{self._hello.role} of cluster {self._hello.cluster_name} speaks protocol {PROTOCOL_VERSION}, "
                f"not {hello.protocol_version}; upgrade the older side"
            )
            LOG.warning("%s: %s; closed", conversation.peer, error)
            return Answer(self._fault(codec, start, to_fault(error)), close=True)
        try:
            refuse_pretender(hello, conversation.admitted)
        except NotAdmittedError as error:
            LOG.warning("%s: %s; closed", conversation.peer, error)
            return Answer(self._fault(codec, start, to_fault(error)), close=True)
        conversation.hello = hello
        return Answer(codec.success(start.sequence, self._hello, self._frame_bytes_max))

    def _run(
        self, codec: MethodCodec, start: MessageStart, arguments: Sequence[Any], conversation: Conversation
    ) -> Buffers | None:
        try:
            secret = conversation.admitted.secret if conversation.admitted is not None else None
            if secret is not None:
                refuse_call(secret.kind, self._service, codec.name, secret.holder)
            if conversation.hello is not None:
                _CALL.caller = Caller(conversation.hello, secret)
                refuse_foreign_source(_CALL.caller, self._service, codec.name, arguments)
            result = self._gated(codec.name, arguments)
            return None if codec.oneway else codec.success(start.sequence, result, self._frame_bytes_max)
        except BookkeeperError as error:
            fault = to_fault(error)
            loud = codec.oneway or isinstance(error, UnauthorizedError)
            LOG.log(logging.WARNING if loud else logging.DEBUG, "%s.%s: %s", self._service, codec.name, error)
        except Exception as error:
            fault = internal_fault(error, f"{self._service}.{codec.name}")
            LOG.exception("%s: %s.%s failed unexpectedly", conversation.peer, self._service, codec.name)
        finally:
            _CALL.caller = None
        return None if codec.oneway else self._fault(codec, start, fault)

    def _gated(self, method: str, arguments: Sequence[Any]) -> Any:
        gate = self._gates.get(method)
        if gate is None:
            return self._functions[method](*arguments)
        if not gate.acquire(blocking=False):
            raise OverloadedError(f"too many calls of {method} at once; back off")
        try:
            return self._functions[method](*arguments)
        finally:
            gate.release()

    def _fault(self, codec: MethodCodec, start: MessageStart, fault: Fault) -> Buffers:
        return codec.fault(start.sequence, fault, self._frame_bytes_max)


def refuse_pretender(hello: Hello, admitted: Admitted | None) -> None:
    """Raise NotAdmittedError when somebody says other things of itself than its handshake and its secret say."""
    if admitted is None:
        return
    if hello.role != admitted.role:
        raise NotAdmittedError(f"it says that it is a {hello.role}, and came as a {admitted.role}")
    if hello.instance_id != admitted.instance_id:
        told, shown = hello.instance_id or "none", admitted.instance_id or "none"
        raise NotAdmittedError(f"it says that it is instance {told}, and came as {shown}")
    secret = admitted.secret
    if secret is not None and secret.holder_instance_id and secret.holder_instance_id != hello.instance_id:
        raise NotAdmittedError(
            f"secret {secret.id} was made for {secret.holder}, instance {secret.holder_instance_id}, and instance "
            f"{hello.instance_id or 'none'} ({hello.cluster_name}) uses it"
        )
