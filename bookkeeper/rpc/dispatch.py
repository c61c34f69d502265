"""Turns frames into calls of the handler, and their results and errors into answers.

The dispatcher judges a call by its head (caller, method, size) before the server receives or parses the arguments.
Errors of :mod:`bookkeeper.errors` keep their class at the caller. Any other exception is logged with its traceback and
answered as a permanent Fault ``internal``. A frame that is no message raises CorruptionError, and the server closes the
connection.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

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
from bookkeeper.rpc.contract.tables import SERVICES
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


class _CurrentCall(threading.local):
    """The call that a thread answers now."""

    caller: Caller | None = None
    memory: CallMemory | None = None

    def begin(self, caller: Caller | None, memory: CallMemory) -> None:
        self.caller, self.memory = caller, memory

    def end(self) -> None:
        self.caller = self.memory = None


_CALL = _CurrentCall()


def caller() -> Caller | None:
    """The caller of the call that this thread answers now; None outside a call."""
    return _CALL.caller


def secret_holder() -> str | None:
    """The holder of the secret with which the current call of this thread came: an instance, else the id of the secret.
    None: the caller showed no secret, or there is no call.
    """
    found = caller()
    secret = None if found is None else found.secret
    return None if secret is None else secret.holder_instance_id or secret.id


def count_call_memory(size: int) -> None:
    """Count ``size`` more bytes for the call that this thread answers, until its answer. Raises OverloadedError."""
    memory = _CALL.memory
    if memory is not None:
        memory.take(size)


class CallMemory:
    """The bytes that one call takes besides its frame; the account of its connection counts them (None: no count)."""

    def __init__(self, account: Account | None) -> None:
        self._account = account
        self._bytes = 0

    def take(self, size: int) -> None:
        """Count ``size`` more bytes. Raises OverloadedError."""
        if self._account is not None:
            self._account.take(size)
            self._bytes += size

    def give_back(self) -> None:
        """Stop counting: the call is answered."""
        if self._account is not None:
            self._account.give_back(self._bytes)


class CallerState(Struct):
    """The caller of one connection: its address, its hello (None before the call ``hello``), the result of its
    handshake (None before its end), and the account that counts the memory of its messages.
    """

    peer: str
    hello: Hello | None = None
    admitted: Admitted | None = None
    account: Account | None = None

    def admit(self, admitted: Admitted, account: Account) -> None:
        """Record the end of the handshake."""
        self.admitted, self.account = admitted, account

    def greet(self, hello: Hello) -> None:
        """Record the first call."""
        self.hello = hello

    @property
    def secret(self) -> Secret | None:
        """The secret that the caller proved; None: the server asks for none."""
        return self.admitted.secret if self.admitted is not None else None


class ServedService(Struct, frozen=True):
    """A service of the contract and the handler that has its methods (:mod:`bookkeeper.rpc.contract.services`).

    ``concurrency`` limits the calls of single methods; above the limit callers get OverloadedError. A method that waits
    for calls to servers of the same kind needs a limit, or all threads of two servers may wait for each other.
    """

    name: str
    handler: object
    concurrency: Mapping[str, int] = field(default_factory=dict)


class Dispatcher:
    """The methods of one service, each with its handler's function. A codec is made at the first call of its method."""

    def __init__(self, service: ServedService, hello: Hello, frame_bytes_max: int) -> None:
        """Raises InvalidInputError when the handler lacks a method, or a limit names no method."""
        handler, concurrency = service.handler, service.concurrency
        names = SERVICES[service.name]
        missing = [name for name in names if name != HELLO and not callable(getattr(handler, name, None))]
        unknown = set(concurrency) - set(names)
        if missing or unknown:
            raise InvalidInputError(
                f"{type(handler).__name__} does not fit {service.name}: methods that it lacks: {missing}, "
                f"limits that name no method: {sorted(unknown)}"
            )
        self._service = service.name
        self._hello = hello
        self._frame_bytes_max = frame_bytes_max
        self._call_bytes_max = {name: call_bytes_max(service.name, name, frame_bytes_max) for name in names}
        self._functions: dict[str, Callable[..., Any]] = {
            name: getattr(handler, name) for name in names if name != HELLO
        }
        self._call_limits = {name: threading.BoundedSemaphore(count) for name, count in concurrency.items()}

    def judge_head(self, head: memoryview, size: int, state: CallerState) -> Answer | None:
        """The refusal of a call of ``size`` bytes that begins with ``head``; None: the call is allowed. Raises
        CorruptionError when it is no call.
        """
        return self._judge_call(read_start(head), size, state)

    def refuse(self, head: memoryview, error: BookkeeperError) -> Answer:
        """The answer to a call that the server can't receive or answer; raises CorruptionError when it is no call."""
        start = read_start(head)
        codec = method_codec(self._service, start.method)
        LOG.debug("%s.%s: %s", self._service, codec.name, error)
        return Answer(None if codec.oneway else self._fault(codec, start, to_fault(error)))

    def respond(self, frame: memoryview, state: CallerState) -> Answer:
        """Run the call in the frame; raises CorruptionError when there is none."""
        start = read_start(frame)
        refusal = self._judge_call(start, len(frame), state)
        if refusal is not None:
            return refusal
        codec = method_codec(self._service, start.method)
        try:
            arguments = codec.read_call(frame, start)
        except CorruptionError as error:
            if codec.oneway:
                raise
            LOG.warning("%s: %s; closed", state.peer, error)
            return Answer(self._fault(codec, start, to_fault(InvalidInputError(error.message))), close=True)
        if start.method == HELLO:
            return self._greet(codec, start, arguments[0], state)
        return Answer(self._run(codec, start, arguments, state))

    def _judge_call(self, start: MessageStart, size: int, state: CallerState) -> Answer | None:
        """The refusal of a call, whatever its arguments are; None: the call is allowed."""
        if start.kind not in (MessageKind.CALL, MessageKind.ONEWAY):
            raise CorruptionError(f"a {start.kind.name} in place of a call")
        if start.method not in self._call_bytes_max:
            LOG.warning("%s: there is no method %s.%s", state.peer, self._service, start.method)
            return Answer(unknown_method(start) if start.kind is MessageKind.CALL else None, state.hello is None)
        try:
            refuse_call_before_hello(start.method, state)
            refuse_unauthorized_call(self._service, start.method, state)
            refuse_large(start.method, size, self._call_bytes_max[start.method])
        except BookkeeperError as error:
            close = isinstance(error, IncompatibleError)
            codec = method_codec(self._service, start.method)
            LOG.warning("%s: %s.%s: %s%s", state.peer, self._service, codec.name, error, "; closed" * close)
            return Answer(None if codec.oneway else self._fault(codec, start, to_fault(error)), close)
        return None

    def _greet(self, codec: MethodCodec, start: MessageStart, hello: Hello, state: CallerState) -> Answer:
        if hello.protocol_version != PROTOCOL_VERSION:
            error = IncompatibleError(
                f"{self._hello.role} of cluster {self._hello.cluster_name} speaks protocol {PROTOCOL_VERSION}, "
                f"not {hello.protocol_version}; upgrade the older side"
            )
            LOG.warning("%s: %s; closed", state.peer, error)
            return Answer(self._fault(codec, start, to_fault(error)), close=True)
        try:
            refuse_contradicting_hello(hello, state.admitted)
        except NotAdmittedError as error:
            LOG.warning("%s: %s; closed", state.peer, error)
            return Answer(self._fault(codec, start, to_fault(error)), close=True)
        state.greet(hello)
        return Answer(codec.success(start.sequence, self._hello, self._frame_bytes_max))

    def _run(
        self, codec: MethodCodec, start: MessageStart, arguments: Sequence[Any], state: CallerState
    ) -> Buffers | None:
        caller = None if state.hello is None else Caller(state.hello, state.secret)
        memory = CallMemory(state.account)
        _CALL.begin(caller, memory)
        try:
            if caller is not None:
                refuse_foreign_source(caller, self._service, codec.name, arguments)
            result = self._call_limited(codec.name, arguments)
            return None if codec.oneway else codec.success(start.sequence, result, self._frame_bytes_max)
        except BookkeeperError as error:
            fault = to_fault(error)
            is_warning = codec.oneway or isinstance(error, UnauthorizedError)
            LOG.log(logging.WARNING if is_warning else logging.DEBUG, "%s.%s: %s", self._service, codec.name, error)
        except Exception as error:
            fault = internal_fault(error, f"{self._service}.{codec.name}")
            LOG.exception("%s: %s.%s failed unexpectedly", state.peer, self._service, codec.name)
        finally:
            _CALL.end()
            memory.give_back()
        return None if codec.oneway else self._fault(codec, start, fault)

    def _call_limited(self, method: str, arguments: Sequence[Any]) -> Any:
        limit = self._call_limits.get(method)
        if limit is None:
            return self._functions[method](*arguments)
        if not limit.acquire(blocking=False):
            raise OverloadedError(f"too many calls of {method} at once; back off")
        try:
            return self._functions[method](*arguments)
        finally:
            limit.release()

    def _fault(self, codec: MethodCodec, start: MessageStart, fault: Fault) -> Buffers:
        return codec.fault(start.sequence, fault, self._frame_bytes_max)


def refuse_call_before_hello(method: str, state: CallerState) -> None:
    """Raise IncompatibleError when a connection begins with another call than ``hello``."""
    if state.hello is None and method != HELLO:
        raise IncompatibleError(f"the first call must be {HELLO}, not {method}")


def refuse_unauthorized_call(service: str, method: str, state: CallerState) -> None:
    """Raise UnauthorizedError unless the secret of the caller allows the method."""
    secret = state.secret
    if secret is not None and method != HELLO:
        refuse_call(secret.kind, service, method, secret.holder)


def refuse_large(method: str, size: int, bytes_max: int) -> None:
    """Raise InvalidInputError when a call has more bytes than its method takes."""
    if size > bytes_max:
        raise InvalidInputError(f"a call of {method} has {size} bytes, at most {bytes_max} are allowed: send less")


def refuse_contradicting_hello(hello: Hello, admitted: Admitted | None) -> None:
    """Raise NotAdmittedError when a hello contradicts the handshake or the secret of its connection."""
    if admitted is None:
        return
    if hello.role != admitted.role:
        raise NotAdmittedError(f"its hello says that it is a {hello.role}, and its handshake a {admitted.role}")
    if hello.instance_id != admitted.instance_id:
        in_hello, in_handshake = hello.instance_id or "none", admitted.instance_id or "none"
        raise NotAdmittedError(f"its hello says that it is instance {in_hello}, and its handshake {in_handshake}")
    secret = admitted.secret
    if secret is not None and secret.holder_instance_id and secret.holder_instance_id != hello.instance_id:
        raise NotAdmittedError(
            f"secret {secret.id} was made for {secret.holder}, instance {secret.holder_instance_id}, and instance "
            f"{hello.instance_id or 'none'} ({hello.cluster_name}) uses it"
        )
