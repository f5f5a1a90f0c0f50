"""Jobs: functions whose calls exclude each other, in the shape of the function they wrap.

A `Job` looks like a function to whoever inspects it (signature, code, coroutine or not), so that
web frameworks, task queues and schedulers take it for one. It is a descriptor as a function is:
through an instance it is bound, with `run` and `call` bound too.
"""

from __future__ import annotations

import functools
import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from joblock.client.callables import is_async
from joblock.protocol.job import Outcome, Terms, Verdict, key_of, not_run
from joblock.values.shown import shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Self

    from joblock.client.aio import AsyncJobLockModel, AsyncJobLocks
    from joblock.client.sync import JobLockModel, JobLocks
    from joblock.values.records import JobLock

P = ParamSpec("P")
T = TypeVar("T")


def check_function(function: Any, *, coroutine: bool) -> None:
    """Refuse, when it is decorated, what a job of that client cannot run."""
    inner = plain_function(function)
    if not callable(inner):
        raise TypeError(f"a job wraps a function; got {shown(function)}")
    inner = inspect.unwrap(inner)
    body = _body(inner)
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise TypeError(
            f"{shown(function)} is a generator: its body would run after the lease was given back; "
            "take the lease inside it, with `with locks.lock(...)`"
        )
    if coroutine and not is_async(inner):
        raise TypeError(
            f"{shown(function)} is a plain function: decorate it with the job of JobLocks, "
            "or make it a coroutine function"
        )
    if not coroutine and is_async(inner):
        raise TypeError(
            f"{shown(function)} is a coroutine function: decorate it with the job of AsyncJobLocks"
        )


def refuse_async(**options: Any) -> None:
    """What computes an option from the arguments of a call is called, and not awaited."""
    for name, option in options.items():
        if callable(option) and is_async(option):
            raise TypeError(
                f"{name}= is computed by a plain function of the call's arguments, also for a "
                f"coroutine function; got the coroutine function {shown(option)}"
            )


def plain_function(function: Any) -> Any:
    """The function in a staticmethod or classmethod, or itself."""
    # A bound method has a __func__ as well, and needs what it is bound to.
    wrapped = isinstance(function, staticmethod | classmethod)
    return cast("Any", function).__func__ if wrapped else function


def _body(function: Any) -> Any:
    """What runs when it is called: of an object or a partial of one, its type's ``__call__``."""
    while isinstance(function, functools.partial):
        function = cast("Any", function).func
    if isinstance(function, type) or hasattr(function, "__code__") or hasattr(function, "__func__"):
        return function
    return getattr(cast("Any", type(function)), "__call__", function)  # noqa: B004 - which one


def default_name(function: Any) -> str:
    """The name of a job that was given none: its module and qualified name."""
    inner = plain_function(function)
    name = getattr(inner, "__qualname__", None)
    if name is None:
        raise ValueError(f"{shown(function)} has no name of its own: pass name=")
    return f"{inner.__module__}.{name}"


class _Function:
    """What makes an object pass as the function it wraps; see `inspect._signature_is_functionlike`.

    Besides a name it needs these four, which functools does not copy; and whoever asks for its
    class is told what `inspect.isfunction` wants to hear (APScheduler names a function by it).
    """

    __code__: CodeType
    __defaults__: tuple[Any, ...] | None
    __kwdefaults__: dict[str, Any] | None
    __name__: str
    __qualname__: str

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return FunctionType

    def _wear(self, function: Any) -> None:
        # Not every callable has a name.
        self.__name__ = self.__qualname__ = type(function).__name__
        functools.update_wrapper(cast("Any", self), function)
        plain = inspect.unwrap(function)
        while isinstance(plain, functools.partial):
            plain = cast("Any", plain).func
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            setattr(self, name, getattr(plain, name, None))

    def __getattr__(self, name: str) -> Any:
        # Made when asked for: a method is bound anew at each call.
        if name != "__signature__":
            raise AttributeError(f"a job has no attribute {name!r}")
        return self._signature()

    def _signature(self) -> inspect.Signature:
        raise NotImplementedError


class _Face(_Function):
    """A method of a job that passes as the job's function too, and is pickled with its job."""

    def __init__(self, job: BaseJob[Any], method: Callable[..., Any]) -> None:
        self._wear(cast("Any", job).__wrapped__)
        self._job: Any = job
        self._method = method
        self._name = method.__name__
        self.__qualname__ = f"{job.__qualname__}.{method.__name__}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._method(self._job, *args, **kwargs)

    def _signature(self) -> inspect.Signature:
        returned = inspect.signature(self._job.__wrapped__).return_annotation
        return inspect.signature(self._job).replace(return_annotation=returned)

    def __reduce__(self) -> Any:
        return getattr, (self._job, self._name)

    def __repr__(self) -> str:
        return f"<{self._name} of {self._job!r}>"


class _FaceOf:
    """The descriptor behind `function_like`: one face for each job that is asked for it."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.__func__ = method
        self.__doc__ = method.__doc__

    def __get__(self, job: BaseJob[Any] | None, owner: type) -> Any:
        if job is None:
            return self.__func__
        face = vars(job)[self.__func__.__name__] = _Face(job, self.__func__)
        return face


def function_like(method: Callable[P, T]) -> Callable[P, T]:
    """Let a method of a job have the signature of the job's function, for frameworks that look."""
    return cast("Callable[P, T]", _FaceOf(method))


class BaseJob(_Function, Generic[P]):
    """What the jobs of both clients share."""

    def __init__(self, client: Any, terms: Terms, function: Any) -> None:
        # Worn first: whatever attributes the function has, these are the job's own.
        self._wear(plain_function(function))
        # What a call returns is not what the function does: web frameworks make a schema of it.
        self.__annotations__ = {**getattr(self, "__annotations__", {}), "return": Outcome}
        self._client = client
        self._terms = terms
        self._function = function
        self._bound: tuple[Any, ...] = ()

    def __get__(self, instance: Any, owner: type | None = None) -> Self:
        descriptor = self._function
        if isinstance(descriptor, staticmethod):
            return self._bind()
        if isinstance(descriptor, classmethod):
            return self._bind(owner if instance is None else type(instance))
        return self if instance is None else self._bind(instance)

    def _bind(self, *bound: Any) -> Self:
        job = object.__new__(type(self))
        job.__dict__ = {**self.__dict__, "_bound": bound}
        job.__dict__.pop("call", None)  # the face of the job it was copied from
        return job

    def __reduce__(self) -> Any:
        # Pickled as a function is: by name, or as an attribute of what it is bound to.
        return (getattr, (self._bound[0], self.__name__)) if self._bound else self.__qualname__

    def _signature(self) -> inspect.Signature:
        signature = inspect.signature(plain_function(self._function))
        parameters = list(signature.parameters.values())
        parameters = parameters[len(self._bound) :]
        return signature.replace(parameters=parameters, return_annotation=Outcome)

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The key that a call with these arguments would lock, without the client's prefix."""
        return key_of(self._terms, (*self._bound, *args), kwargs)

    def _flow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args = (*self._bound, *args)
        function = plain_function(self._function)
        work = functools.partial(function, *args, **kwargs)
        return self._client.job_flow(self._terms, work, args, kwargs)

    def _value(self, verdict: Verdict, args: Any, kwargs: Any) -> Any:
        if not verdict.outcome.ran:
            key = key_of(self._terms, (*self._bound, *args), kwargs)
            raise not_run(self._client.prefix, key, verdict)
        return verdict.outcome.value

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.__qualname__}>"


class Job(BaseJob[P], Generic[P, T]):
    """A job of the sync client: calling it runs it under its lease, and gives an Outcome."""

    _client: JobLocks

    def run(self, *args: P.args, **kwargs: P.kwargs) -> Outcome:
        """Run it if its lease is to be had; see `joblock.JobLocks.job`."""
        return self._verdict(args, kwargs).outcome

    __call__ = run

    @function_like
    def call(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it and return its bare value; raises LockNotAcquired if it did not run."""
        return cast("T", self._value(self._verdict(args, kwargs), args, kwargs))

    def peek(self, *args: P.args, **kwargs: P.kwargs) -> JobLock | None:
        """The lease that stands in the way of a call with these arguments, or None."""
        return self._model().peek(self.key(*args, **kwargs))

    def release(self, *args: P.args, **kwargs: P.kwargs) -> tuple[JobLock, ...]:
        """Break the lease of a call with these arguments, its grace included."""
        return self._model().delete(self.key(*args, **kwargs), why="released through its job")

    def _model(self) -> JobLockModel:
        return self._client.model

    def _verdict(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Verdict:
        verdict = self._client.drive(self._flow(args, kwargs))
        if verdict.error is not None:
            raise verdict.error
        return verdict


class AsyncJob(BaseJob[P], Generic[P, T]):
    """A job of the asyncio client: awaiting a call runs it under its lease."""

    _client: AsyncJobLocks

    async def run(self, *args: P.args, **kwargs: P.kwargs) -> Outcome:
        """Run it if its lease is to be had; see `joblock.AsyncJobLocks.job`."""
        return (await self._verdict(args, kwargs)).outcome

    __call__ = run

    @function_like
    async def call(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it and return its bare value; raises LockNotAcquired if it did not run."""
        return cast("T", self._value(await self._verdict(args, kwargs), args, kwargs))

    async def peek(self, *args: P.args, **kwargs: P.kwargs) -> JobLock | None:
        """The lease that stands in the way of a call with these arguments, or None."""
        return await self._model().peek(self.key(*args, **kwargs))

    async def release(self, *args: P.args, **kwargs: P.kwargs) -> tuple[JobLock, ...]:
        """Break the lease of a call with these arguments, its grace included."""
        return await self._model().delete(self.key(*args, **kwargs), why="released through its job")

    def _model(self) -> AsyncJobLockModel:
        return self._client.model

    async def _verdict(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Verdict:
        verdict = await self._client.drive(self._flow(args, kwargs))
        if verdict.error is not None:
            raise verdict.error
        return verdict
