"""Record the tensor operations of a forward pass, and run them again with gradients of their own.

The reference gradient must be the derivative of the function that a model computes, whatever its code does on the way
back. So the ATen calls of an ordinary forward pass are recorded below autograd, where custom backward passes and
backward hooks do not exist, and are called again with autograd's own formulas; `detach` is the identity there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

Alias = tuple[Any, ...]
"""What identifies a tensor's memory: tensors with the same alias hold the same numbers."""


@dataclass(frozen=True)
class Ref:
    """A tensor on the tape, by its number."""

    number: int


@dataclass(frozen=True)
class Operation:
    """One recorded ATen call."""

    function: Any
    arguments: tuple[Any, ...]
    """The flattened arguments, with a `Ref` in place of each tensor."""
    spec: TreeSpec
    outputs: tuple[int | None, ...]
    """The numbers of its results, None where a result is no tensor."""
    drawn: tuple[Tensor, ...] = ()
    """The results of a random operation: it gives these again."""

    @property
    def inputs(self) -> list[int]:
        return [argument.number for argument in self.arguments if isinstance(argument, Ref)]

    @property
    def is_mutable(self) -> bool:
        """Whether it changes a tensor in place."""
        return _is_mutable(self.function)

    @property
    def name(self) -> str:
        """The operation's name in torch, as in `round` or `where`."""
        return str(self.function.overloadpacket.__name__)


@dataclass
class Tape:
    """The operations of one forward pass."""

    operations: list[Operation] = field(default_factory=list)
    external: dict[int, Tensor] = field(default_factory=dict)
    """Tensors that were not made by an operation: inputs, parameters, buffers, constants."""
    producer: dict[int, tuple[int, int]] = field(default_factory=dict)
    """For each number, the operation that made it and which of its results it is."""
    dtypes: dict[int, torch.dtype] = field(default_factory=dict)
    memory: dict[int, Any] = field(default_factory=dict)
    """For each number, which memory it lies in; views of one tensor share it."""
    _numbers: dict[Alias, int] = field(default_factory=dict)
    _origins: dict[Alias, int] = field(default_factory=dict)
    """The numbers of external tensors; an operation that changes one in place gives it another number."""
    _alive: list[Tensor] = field(default_factory=list)
    """Keeps memory from being freed and used again, which would make two tensors look like one."""

    def number(self, tensor: Tensor) -> int:
        """The number of a tensor; one that is not on the tape is added as external."""
        alias = alias_of(tensor)
        if alias not in self._numbers:
            number = self._new(tensor, alias)
            self.external[number] = tensor.detach()
            self._origins[alias] = number
        return self._numbers[alias]

    def origin(self, tensor: Tensor) -> int | None:
        """The number of an external tensor before any change in place, or None if it is not on the tape."""
        return self._origins.get(alias_of(tensor))

    @property
    def is_float(self) -> Mapping[int, bool]:
        return {number: dtype.is_floating_point for number, dtype in self.dtypes.items()}

    def casts_below(self, dtype: torch.dtype) -> bool:
        """Whether an operation turns this floating-point type into a narrower one."""
        return any(
            any(self.dtypes[number] == dtype for number in op.inputs) and any(map(self._is_narrower(dtype), op.outputs))
            for op in self.operations
        )

    def _is_narrower(self, dtype: torch.dtype) -> Callable[[int | None], bool]:
        def found(number: int | None) -> bool:
            kind = None if number is None else self.dtypes[number]
            return kind is not None and kind.is_floating_point and kind.itemsize < dtype.itemsize

        return found

    def find(self, tensor: Tensor) -> int | None:
        """The number of a tensor, or None if it is not on the tape."""
        return self._numbers.get(alias_of(tensor))

    def _new(self, tensor: Tensor, alias: Alias) -> int:
        number = len(self.dtypes)
        self.dtypes[number] = tensor.dtype
        self.memory[number] = alias[:2] if alias[0] == "object" else alias[0]
        self._numbers[alias] = number
        self._alive.append(tensor)
        return number

    def keep_original(self, tensor: Tensor) -> None:
        """An external tensor is about to be changed in place: later replays start from a copy of its present value."""
        number = self.number(tensor)
        if number in self.external:
            self.external[number] = tensor.detach().clone()

    def add(
        self, function: Any, arguments: Sequence[Any], spec: TreeSpec, results: Sequence[Any], is_random: bool
    ) -> None:
        """Add an operation that was just called."""
        numbers: list[int | None] = []
        for place, result in enumerate(results):
            if not isinstance(result, Tensor):
                numbers.append(None)
                continue
            number = self._new(result, alias_of(result))
            self.producer[number] = (len(self.operations), place)
            numbers.append(number)
        drawn: tuple[Tensor, ...] = ()
        if is_random:
            drawn = tuple(result.detach().clone() for result in results if isinstance(result, Tensor))
        self.operations.append(Operation(function, tuple(arguments), spec, tuple(numbers), drawn))

    def replay(
        self,
        *,
        given: Mapping[int, Tensor] | None = None,
        added: Mapping[int, Tensor] | None = None,
        tracked: Collection[int] = (),
        lift: torch.dtype | None = None,
        until: int | None = None,
    ) -> dict[int, Tensor]:
        """Call the recorded operations again and return the tensors by number.

        `given` replaces external tensors (parameters that need gradients, for instance). `added` is added to the
        tensors of these numbers as soon as they are made, and gradients flow to the `tracked` ones. With `lift`, casts
        to a narrower floating-point type are casts to this one. The replay ends once it has made `until`.
        """
        mutated = {number for op in self.operations if op.is_mutable for number in op.inputs}
        values: dict[int, Tensor] = {
            number: tensor.clone() if number in mutated else tensor for number, tensor in self.external.items()
        }
        values.update({n: tensor.clone() if n in mutated else tensor for n, tensor in (given or {}).items()})
        extra = added or {}

        def store(number: int, value: Tensor) -> None:
            value = value + extra[number] if number in extra else value
            values[number] = value if value.requires_grad or number not in tracked else value.requires_grad_()

        for number in {*extra, *tracked} & values.keys():
            store(number, values[number])
        end = len(self.operations) if until is None else self.producer[until][0] + 1
        for op in self.operations[:end]:
            flat = [values[a.number] if isinstance(a, Ref) else a for a in op.arguments]
            for made, result in zip(op.outputs, _results(op, flat, lift), strict=True):
                if made is not None:
                    store(made, result)
        return values


def _results(op: Operation, flat: list[Any], lift: torch.dtype | None) -> list[Any]:
    args, kwargs = tree_unflatten(flat, op.spec)
    if op.drawn:
        if op.is_mutable:
            args[0].copy_(op.drawn[0])
            return [args[0]]
        return list(op.drawn)
    if lift is not None:
        kwargs = _lifted(kwargs, lift)
    return tree_flatten(op.function(*args, **kwargs))[0]


def _lifted(kwargs: dict[str, Any], lift: torch.dtype) -> dict[str, Any]:
    dtype = kwargs.get("dtype")
    narrow = isinstance(dtype, torch.dtype) and dtype.is_floating_point and dtype.itemsize < lift.itemsize
    return {**kwargs, "dtype": lift} if narrow else kwargs


def alias_of(tensor: Tensor) -> Alias:
    """Identifies a tensor's numbers by their place in memory: autograd wraps one tensor in several objects."""
    if tensor.layout != torch.strided:
        return ("object", id(tensor))
    storage = tensor.untyped_storage()._cdata
    return (storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.is_conj())


def _is_mutable(function: Any) -> bool:
    return bool(function._schema.is_mutable)


def is_identity(function: Any, arguments: Sequence[Any], results: Sequence[Any]) -> bool:
    """Whether a call returns its first tensor unchanged, as `detach` does: it is no operation then."""
    if _is_mutable(function) or len(results) != 1 or not isinstance(results[0], Tensor):
        return False
    first = next((a for a in arguments if isinstance(a, Tensor)), None)
    return first is not None and alias_of(first) == alias_of(results[0])


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, tape: Tape):
        super().__init__()  # type: ignore[no-untyped-call]
        self._tape = tape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flat, spec = tree_flatten((args, kwargs or {}))
        tensors = [leaf for leaf in flat if isinstance(leaf, Tensor)]
        if _is_mutable(func):
            for tensor in tensors:
                self._tape.keep_original(tensor)
        arguments = [Ref(self._tape.number(leaf)) if isinstance(leaf, Tensor) else leaf for leaf in flat]
        may_draw = torch.Tag.nondeterministic_seeded in func.tags
        before = _generator_states(flat) if may_draw else []
        output = func(*args, **(kwargs or {}))
        results = tree_flatten(output)[0]
        if not is_identity(func, flat, results):
            # Attention with a dropout of 0 is tagged as random, too: whether numbers were drawn is seen afterwards.
            self._tape.add(func, arguments, spec, results, may_draw and _generator_states(flat) != before)
        return output


def _generator_states(arguments: Sequence[Any]) -> list[bytes]:
    """The states of the generators that an operation with these arguments may draw from."""
    given = [argument for argument in arguments if isinstance(argument, torch.Generator)]
    devices = {argument.device for argument in arguments if isinstance(argument, Tensor)}
    own = [torch.default_generator, *(torch.cuda.default_generators[d.index] for d in devices if d.type == "cuda")]
    return [generator.get_state().numpy().tobytes() for generator in [*given, *own]]


class _Adder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds a tensor to one result of one operation, counted as the recorder counts them."""

    def __init__(self, place: tuple[int, int], name: str, addend: Tensor):
        super().__init__()  # type: ignore[no-untyped-call]
        self._place, self._name, self._addend = place, name, addend
        self._index = 0
        self.done = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flat = tree_flatten((args, kwargs or {}))[0]
        output = func(*args, **(kwargs or {}))
        results, spec = tree_flatten(output)
        if is_identity(func, flat, results):
            return output
        index, self._index = self._index, self._index + 1
        if index != self._place[0] or func.overloadpacket.__name__ != self._name:
            return output
        chosen = results[self._place[1]]
        if not isinstance(chosen, Tensor) or chosen.shape != self._addend.shape:
            return output
        self.done = True
        if _is_mutable(func):
            chosen.add_(self._addend)
            return output
        results[self._place[1]] = chosen + self._addend
        return tree_unflatten(results, spec)


@contextmanager
def record() -> Iterator[Tape]:
    """Record every operation inside the `with` block."""
    tape = Tape()
    with _eager(), _Recorder(tape):
        yield tape


@contextmanager
def adding(tape: Tape, number: int, addend: Tensor) -> Iterator[Callable[[], bool]]:
    """While the recorded code runs again, add `addend` to the tensor that has this number on the tape.

    The yielded function says whether that tensor was made again: the code may have taken another way.
    """
    index, place = tape.producer[number]
    adder = _Adder((index, place), tape.operations[index].name, addend)
    with _eager(), adder:
        yield lambda: adder.done


@contextmanager
def _eager() -> Iterator[None]:
    """Compiled parts of a model run eagerly, so that their operations are seen."""
    if "torch._dynamo" not in sys.modules:  # Nothing is compiled, and importing the compiler takes seconds.
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
