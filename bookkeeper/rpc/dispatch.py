"""From a frame to a call of the handler, and from its result or error to the frame of an answer.

Arrives: whole frames of one connection, and heads of frames that are not whole yet. A call is judged by its head before
anything else of it is received or parsed: who calls, what, and how many bytes. Leaves: answers. Errors of
:mod:`bookkeeper.errors` travel as they are; anything else is logged with its traceback and answered as a permanent
Fault ``internal``. What is no message at all raises CorruptionError, and the caller closes the connection.
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
from bookkeeper.rpc.contract.faults import internal_fault, to_fault
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Fault, Hello
from bookkeeper.rpc.contract.schema import load_contract
from bookkeeper.rpc.frames.budget import Account
from bookkeeper.rpc.frames.call_sizes import call_bytes_max
from bookkeeper.rpc.frames.envelope import (
    MessageKind,
    MessageStart,
    MethodCodec,
    method_codec,
    read_start,
    unknown_method,
)
from bookkeeper.rpc.frames.partial_frame import Answer
from bookkeeper.rpc.frames.wire import Buffers
from bookkeeper.rpc.trust.admission import Admitted
from bookkeeper.rpc.trust.rights import Caller, refuse_call, refuse_foreign_source
from bookkeeper.security.secret import Secret

LOG = logging.getLogger(__name__)

HELLO = "hello"

_CALL = threading.local()


def caller() -> Caller | None:
    """Who made the call that this thread answers now; None outside a call."""
    found: Caller | None = getattr(_CALL, "caller", None)
    return found


def secret_holder() -> str | None:
    """Who holds the secret with which the call came that this thread answers now: an instance, else the id of the
    secret. None: it came without one, or there is no call.
    """
    found = caller()
    secret = None if found is None else found.secret
    return None if secret is None else secret.holder_instance_id or secret.id


def hold_memory(size: int) -> None:
    """Count ``size`` bytes more for the call that this thread answers, until it is answered. Raises OverloadedError."""
    held: HeldMemory | None = getattr(_CALL, "memory", None)
    if held is not None:
        held.take(size)


class HeldMemory:
    """What one call has taken beside its frame, counted for its connection (None: nowhere)."""

    def __init__(self, account: Account | None) -> None:
        self._account = account
        self._bytes = 0

    def take(self, size: int) -> None:
        """Count ``size`` bytes more. Raises OverloadedError."""
        if self._account is not None:
            self._account.take(size)
            self._bytes += size

    def give_back(self) -> None:
        """The call is answered."""
        if self._account is not None:
            self._account.give_back(self._bytes)


@dataclass(slots=True)
class Conversation:
    """What is remembered between the frames of one connection: where from, as whom it was let in (None: it was not yet)
    and who (None before ``hello``).
    """

    peer: str
    hello: Hello | None = None
    admitted: Admitted | None = None
    account: Account | None = None
    """Of the memory that its messages take."""


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
        self._call_bytes_max = {name: call_bytes_max(service, name, frame_bytes_max) for name in names}
        self._functions: dict[str, Callable[..., Any]] = {
            name: getattr(handler, name) for name in names if name != HELLO
        }
        self._gates = {name: threading.BoundedSemaphore(count) for name, count in concurrency.items()}

    def judge_head(self, head: memoryview, size: int, conversation: Conversation) -> Answer | None:
        """Judge a call of ``size`` bytes whose first ones are ``head``; None: the rest of it may come. Raises
        CorruptionError when it is no call.
        """
        return self._judge_call(read_start(head), size, conversation)

    def refuse(self, head: memoryview, error: BookkeeperError) -> Answer:
        """The answer to a call that can't be heard or answered; raises CorruptionError when it is none."""
        start = read_start(head)
        codec = self._codecs[start.method]
        LOG.debug("%s.%s: %s", self._service, codec.name, error)
        return Answer(None if codec.oneway else self._fault(codec, start, to_fault(error)))

    def respond(self, frame: memoryview, conversation: Conversation) -> Answer:
        """Make the call that the frame holds; raises CorruptionError when it holds none."""
        start = read_start(frame)
        refusal = self._judge_call(start, len(frame), conversation)
        if refusal is not None:
            return refusal
        codec = self._codecs[start.method]
        try:
            arguments = codec.read_call(frame, start)
        except CorruptionError as error:
            if codec.oneway:
                raise
            LOG.warning("%s: %s; closed", conversation.peer, error)
            return Answer(self._fault(codec, start, to_fault(InvalidInputError(error.message))), close=True)
        if start.method == HELLO:
            return self._greet(codec, start, arguments[0], conversation)
        return Answer(self._run(codec, start, arguments, conversation))

    def _judge_call(self, start: MessageStart, size: int, conversation: Conversation) -> Answer | None:
        """What to answer to a call that is refused whatever its arguments are; None: it may be made."""
        if start.kind not in (MessageKind.CALL, MessageKind.ONEWAY):
            raise CorruptionError(f"a {start.kind.name} in place of a call")
        codec = self._codecs.get(start.method)
        if codec is None:
            LOG.warning("%s: there is no method %s.%s", conversation.peer, self._service, start.method)
            return Answer(unknown_method(start) if start.kind is MessageKind.CALL else None, conversation.hello is None)
        try:
            refuse_early(start.method, conversation)
            refuse_stranger(self._service, start.method, conversation)
            refuse_large(start.method, size, self._call_bytes_max[start.method])
        except BookkeeperError as error:
            close = isinstance(error, IncompatibleError)
            LOG.warning("%s: %s.%s: %s%s", conversation.peer, self._service, codec.name, error, "; closed" * close)
            return Answer(None if codec.oneway else self._fault(codec, start, to_fault(error)), close)
        return None

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
        memory = HeldMemory(conversation.account)
        _CALL.memory = memory
        try:
            if conversation.hello is not None:
                _CALL.caller = Caller(conversation.hello, secret_of(conversation))
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
            _CALL.caller = _CALL.memory = None
            memory.give_back()
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


def secret_of(conversation: Conversation) -> Secret | None:
    """The secret that the other side proved; None: it was asked for none."""
    return conversation.admitted.secret if conversation.admitted is not None else None


def refuse_early(method: str, conversation: Conversation) -> None:
    """Raise IncompatibleError when a connection begins with another call than ``hello``."""
    if conversation.hello is None and method != HELLO:
        raise IncompatibleError(f"the first call must be {HELLO}, not {method}")


def refuse_stranger(service: str, method: str, conversation: Conversation) -> None:
    """Raise UnauthorizedError unless whoever was let in may call the method."""
    secret = secret_of(conversation)
    if secret is not None and method != HELLO:
        refuse_call(secret.kind, service, method, secret.holder)


def refuse_large(method: str, size: int, bytes_max: int) -> None:
    """Raise InvalidInputError when a call has more bytes than its method takes."""
    if size > bytes_max:
        raise InvalidInputError(
            f"a call of {method} has {size} bytes, at most {bytes_max} are taken: send less at once"
        )


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
