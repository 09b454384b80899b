"""Any nn.Module as a subject: hooks record its blocks' inputs and outputs during one ordinary forward pass.

The state h_l is the input of block l. A block returns either the next state or the residual branch that is added to
its input (`discovery.py` finds out which). The gradient in h_l is the total derivative of the loss with respect to that
tensor, computed from the operations of the forward pass (`tape.py`); what the model's own backward pass returns there
is kept beside it, and may differ.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from walkback.core.errors import InputError
from walkback.credit.losses import sample_losses
from walkback.credit.trace import cross_entropy, one_hot
from walkback.measure.block_maps import TapeBlocks
from walkback.measure.discontinuities import find_discontinuity
from walkback.measure.reference_check import LossesAt
from walkback.measure.restore import random_state_restored, restored
from walkback.measure.subject import FrozenPass, LesionedLogits, Subject, whole_labels
from walkback.measure.tape import Tape, adding, alias_of, record
from walkback.measure.updates import HEAD, STEM, NetworkPart, Updates
from walkback.nets.block_calls import (
    Call,
    StepFn,
    check_calls,
    first_tensor,
    forward,
    logits_of,
    record_calls,
    record_logits,
    with_first_tensor,
)
from walkback.nets.find_blocks import CaptureKind
from walkback.nets.network import Leaves
from walkback.nets.tensor_trees import cast, map_tensors, tensor_leaves

UpdateFunction = Callable[[nn.Module, Any], Mapping[str, Tensor] | None]
"""One training step's backward passes on (inputs, labels), without the optimiser's step: leaves the gradients in
`.grad`, or returns them by parameter name."""


@dataclass(frozen=True)
class RecordedPass:
    """One forward pass on a tape, up to the losses or logits that gradients start from."""

    inputs: Any
    labels: Tensor | None
    tape: Tape
    tensors: tuple[Tensor, ...]
    """The tensors whose gradients are those of h_0..h_L, as the model computed them."""
    numbers: tuple[int, ...]
    """Their numbers on the tape."""
    values: tuple[Tensor, ...]
    """h_0..h_L."""
    target: Tensor
    """The logits, or the losses of `step_fn`."""
    target_number: int
    seed: Tensor
    """The gradient of the sum of losses with respect to `target`."""
    losses: Tensor
    logits: Tensor | None
    error: Tensor | None
    logits_number: int | None = None
    """With `step_fn`, the number of the model's logits on the tape, if it has logits: the error is their gradient."""


@dataclass(frozen=True)
class Derivative:
    """Gradients of the losses, from a replay of the forward pass, and the tensors of that replay."""

    states: tuple[Tensor, ...]
    parameters: Leaves
    replayed: Sequence[Tensor]
    """h_0..h_L as the replay made them."""
    leaves: Leaves
    """The parameters as the replay used them."""
    logits: Tensor | None = None
    """The gradient of the losses with respect to the logits, with `step_fn`."""


class ModuleSubject(Subject):
    """A model with the names of its blocks and what they return; `step_fn` replaces its cross-entropy loss.

    Without blocks, parameter gradients alone can be measured.
    """

    def __init__(
        self,
        model: nn.Module,
        blocks: Sequence[str],
        kind: CaptureKind,
        step_fn: StepFn | None = None,
        found: Sequence[str] = (),
        skipped: Sequence[str] = (),
    ):
        first = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
        self.dtype, self.device = first.dtype, first.device
        self.found, self.skipped = tuple(found), tuple(skipped)
        self._model, self._blocks, self._kind, self._step_fn = model, tuple(blocks), kind, step_fn

    def run(self, x: Any, y: Tensor | None, *, backward: bool = False, updates: bool = False) -> FrozenPass:
        recorded = self._record(x, y)
        parameters = self._parameters(recorded.tape) if updates else {}
        own, made, problem = self._own_backward(recorded) if backward or updates else (None, {}, "")
        derivative = self._derivative(recorded, parameters)
        return FrozenPass(
            recorded.inputs,
            recorded.labels,
            recorded.values,
            derivative.states,
            recorded.losses,
            recorded.logits,
            recorded.error if derivative.logits is None else derivative.logits.detach(),
            own,
            problem,
            self._updates(recorded, derivative, made) if updates and own is not None else None,
            given_loss=self._step_fn is not None,
        )

    def _record(self, x: Any, y: Tensor | None) -> RecordedPass:
        # Gradients reach the inputs too, since a first block may read them directly.
        inputs = map_tensors(_with_gradient, cast(x, self.dtype, self.device))
        labels = None if y is None else y.to(self.device)
        with (
            torch.enable_grad(),
            record() as tape,
            record_calls(self._model, self._blocks, tape.number) as calls,
            record_logits(self._model, tape.number) as outputs,
        ):
            output = forward(self._model, inputs, labels, self._step_fn)
        samples = len(tensor_leaves(inputs)[0])
        tops = calls[-1:]
        if self._blocks:
            check_calls(calls, samples)
        # h_L may not exist as a tensor of its own. If a branch is added to h_{L-1}, the branch has the same gradient.
        values = [*(call.state.detach() for call in calls), *(self._after(call).detach() for call in tops)]
        logits_number = None
        if self._step_fn is None:
            target = logits_of(output)
            logits, labels = target.detach(), whole_labels(labels, target)
            losses, error = cross_entropy(logits, labels)
            seed = error
        else:
            target = self._step_losses(output, samples)
            losses, logits, error, seed = target.detach(), None, None, torch.ones_like(target)
            if len(outputs) == 1 and outputs[0][0].ndim > 1 and len(outputs[0][0]) == samples:
                logits, logits_number = outputs[0][0].detach(), outputs[0][1]
        number = tape.find(target)
        if number is None or number in tape.external:
            raise InputError(
                "The model's output is not the result of torch operations, so it cannot be differentiated. Compute it "
                "from tensors, without numpy."
            )
        return RecordedPass(
            inputs,
            labels,
            tape,
            (*(call.state for call in calls), *(call.output for call in tops)),
            (*(call.numbers[0] for call in calls), *(call.numbers[1] for call in tops)),
            tuple(values),
            target,
            number,
            seed,
            losses,
            logits,
            error,
            logits_number,
        )

    @staticmethod
    def _step_losses(losses: Any, count: int) -> Tensor:
        if not isinstance(losses, Tensor) or losses.shape != (count,):
            got = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
            raise InputError(
                f"step_fn returned {got}; expected a tensor with one loss for each of {count} samples (or token)."
            )
        return losses

    def _lift(self) -> torch.dtype | None:
        """In float64, casts to narrower types inside the model are lifted."""
        return self.dtype if self.dtype == torch.float64 else None

    def _parameters(self, tape: Tape) -> dict[str, int]:
        """The numbers on the tape of the parameters that the forward pass used."""
        found = {name: tape.origin(parameter) for name, parameter in self._model.named_parameters()}
        return {name: number for name, number in found.items() if number is not None}

    def _derivative(self, recorded: RecordedPass, parameters: Mapping[str, int]) -> Derivative:
        """The derivative of the losses with respect to h_0..h_L and parameters, from the forward pass alone."""
        tape, number_of_logits = recorded.tape, recorded.logits_number
        tracked = recorded.numbers if number_of_logits is None else (*recorded.numbers, number_of_logits)
        try:
            with torch.enable_grad():
                given = {number: tape.external[number].detach().requires_grad_() for number in parameters.values()}
                values = tape.replay(given=given, tracked=tracked, lift=self._lift())
            target, leaves = values[recorded.target_number], [values[number] for number in recorded.numbers]
            wanted = [*leaves, *given.values(), *(values[number] for number in tracked[len(leaves) :])]
            found: Sequence[Tensor | None] = [None] * len(wanted)
            if target.requires_grad:
                seed = recorded.seed.to(target.dtype)
                found = torch.autograd.grad(target, wanted, seed, allow_unused=True, retain_graph=bool(parameters))
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, NotImplementedError, TypeError) as error:
            raise InputError(
                f"The forward pass cannot be differentiated: {str(error).splitlines()[0]}. Give reference=, a function "
                "that returns the gradients of each sample's loss with respect to h_0..h_L."
            ) from error
        known = [torch.zeros_like(h) if g is None else g for g, h in zip(found, wanted, strict=True)]
        return Derivative(
            tuple(known[: len(leaves)]),
            dict(zip(parameters, known[len(leaves) : len(leaves) + len(given)], strict=True)),
            leaves,
            dict(zip(parameters, given.values(), strict=True)),
            None if number_of_logits is None or found[-1] is None else known[-1],
        )

    def _updates(self, recorded: RecordedPass, derivative: Derivative, made: Leaves) -> Updates:
        """The parameter gradients of the model's own backward pass, beside the true ones."""
        parts = {name: self._part(name, recorded) for name in derivative.parameters}

        maps = TapeBlocks(
            recorded.tape,
            self._parameters(recorded.tape),
            recorded.numbers[1:],
            derivative.leaves,
            derivative.replayed[1:],
            {block: [name for name, part in parts.items() if part == block] for block in range(len(self._blocks))},
            self._lift(),
        )
        return Updates(made, derivative.parameters, parts, maps=maps)

    def user_updates(self, x: Any, y: Tensor | None, update: UpdateFunction) -> Updates:
        """The parameter gradients of a user's training step, and the true ones in the mode that the step chose.

        Dropout draws the same masks again, and BatchNorm uses the statistics of the same batch.
        """
        inputs, labels = cast(x, self.dtype, self.device), None if y is None else y.to(self.device)
        with restored(self._model):
            parameters = dict(self._model.named_parameters())
            before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
            for parameter in parameters.values():
                parameter.grad = None
            with random_state_restored():
                returned = update(self._model, (inputs, labels))
            if any(not torch.equal(parameter, before[name]) for name, parameter in parameters.items()):
                raise InputError(
                    "update= changed the parameters. It must leave gradients only: no optimiser step in it."
                )
            made = {n: p.grad.detach().clone() for n, p in parameters.items() if p.grad is not None}
            if isinstance(returned, Mapping):
                made = {str(name): gradient.detach() for name, gradient in returned.items()}
            recorded = self._record(x, y)
            derivative = self._derivative(recorded, self._parameters(recorded.tape))
            return self._updates(recorded, derivative, made)

    def _part(self, name: str, recorded: RecordedPass) -> NetworkPart:
        for index, block in enumerate(self._blocks):
            if name == block or name.startswith(block + "."):
                return index
        if not recorded.numbers:
            return HEAD
        number, first_state = recorded.tape.origin(self._model.get_parameter(name)), recorded.numbers[0]
        last = recorded.tape.producer.get(first_state, (-1, 0))[0]
        used_before = any(number in op.inputs for op in recorded.tape.operations[: last + 1])
        return STEM if used_before else HEAD

    def states(self, x: Any) -> list[Tensor]:
        with torch.no_grad(), warnings.catch_warnings(), record_calls(self._model, self._blocks) as calls:
            warnings.simplefilter("ignore")
            forward(self._model, cast(x, self.dtype, self.device), None, None)
        return [*(call.state for call in calls), *map(self._after, calls[-1:])]

    def _after(self, call: Call) -> Tensor:
        """The state after a block."""
        return call.state + call.output if self._kind == "branch" else call.output

    def with_parameters(self, parameters: Mapping[str, Tensor]) -> ModuleSubject:
        model = copy.deepcopy(self._model)
        model.load_state_dict({**model.state_dict(), **parameters})
        return self._with_model(model)

    def lesioned_logits(self, x: Any, initial: Mapping[str, Tensor] | None) -> LesionedLogits:
        if self._step_fn is not None:
            return {}
        inputs = cast(x, self.dtype, self.device)
        shapes = [tuple(state.shape) for state in self.states(x)]
        blocks = range(len(shapes) - 1)
        if len(self._blocks) != len(blocks):  # A block that is called several times cannot be taken out once.
            return {}

        def logits(skipped: Sequence[int]) -> Tensor | None:
            if any(shapes[block] != shapes[block + 1] for block in skipped):
                return None
            with warnings.catch_warnings(), self._skipping(skipped):
                warnings.simplefilter("ignore")
                return logits_of(forward(self._model, inputs, None, None))

        found: LesionedLogits = {
            "lesion_skip": [logits([block]) for block in blocks],
            "lesion_cut": [logits(range(layer, len(blocks))) for layer in range(len(shapes))],
        }
        if initial is not None:
            found["lesion_reset"] = []
            for block in blocks:
                with self._reset(block, initial):
                    found["lesion_reset"] = [*found["lesion_reset"], logits([])]
        return found

    @contextmanager
    def _skipping(self, blocks: Sequence[int]) -> Iterator[None]:
        """The named blocks return their input as the next state, or a branch of zeros."""

        def skip(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
            state = first_tensor([*args, *kwargs.values()])
            assert state is not None
            return with_first_tensor(output, torch.zeros_like(state) if self._kind == "branch" else state)[0]

        modules = [self._model.get_submodule(self._blocks[block]) for block in blocks]
        handles = [module.register_forward_hook(skip, with_kwargs=True) for module in modules]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def _reset(self, block: int, initial: Mapping[str, Tensor]) -> Iterator[None]:
        """One block with its initial parameters; buffers stay as they are."""
        prefix = self._blocks[block] + "."
        own = {n: p for n, p in self._model.named_parameters() if n.startswith(prefix) and n in initial}
        if not own:
            raise InputError(f"initial= has no parameter of the block '{self._blocks[block]}'. Give its state_dict().")
        trained = {name: parameter.data for name, parameter in own.items()}
        try:
            for name, parameter in own.items():
                parameter.data = initial[name].to(parameter.data)
            yield
        finally:
            for name, parameter in own.items():
                parameter.data = trained[name]

    def discontinuities(self, x: Any, y: Tensor | None) -> tuple[str | None, ...]:
        recorded = self._record(x, y)
        return tuple(find_discontinuity(recorded.tape, number, recorded.target_number) for number in recorded.numbers)

    def losses_at(self, x: Any, y: Tensor | None) -> LossesAt:
        recorded = self._record(x, y)
        # Differences of a model that computes in float32 inside are rounding errors; its tape can be lifted.
        if self._lift() is not None and recorded.tape.casts_below(self.dtype):
            return self._lifted_losses(recorded)

        def found(layer: int, addend: Tensor) -> Tensor | None:
            number, inputs = recorded.numbers[layer], recorded.inputs
            # With gradients, as in the recorded pass: torch's own transformer layers take another way without them.
            with torch.enable_grad():
                if number in recorded.tape.producer:
                    with adding(recorded.tape, number, addend) as was_added:
                        output = forward(self._model, inputs, recorded.labels, self._step_fn)
                    if not was_added():
                        return None
                else:
                    is_state = {alias_of(recorded.tape.external[number])}
                    if not any(alias_of(leaf) in is_state for leaf in tensor_leaves(inputs)):
                        return None
                    moved = map_tensors(lambda leaf: leaf + addend if alias_of(leaf) in is_state else leaf, inputs)
                    output = forward(self._model, moved, recorded.labels, self._step_fn)
                return self._losses_of(output if self._step_fn else logits_of(output), recorded).detach()

        return found

    def _lifted_losses(self, recorded: RecordedPass) -> LossesAt:
        def found(layer: int, addend: Tensor) -> Tensor | None:
            with torch.no_grad():
                values = recorded.tape.replay(added={recorded.numbers[layer]: addend}, lift=self.dtype)
                return self._losses_of(values[recorded.target_number], recorded)

        unmoved = found(0, torch.zeros_like(recorded.values[0]))
        assert unmoved is not None
        if not torch.allclose(unmoved, recorded.losses.to(unmoved.dtype), rtol=1e-3, atol=1e-5):
            return lambda layer, addend: None
        return found

    def _losses_of(self, target: Tensor, recorded: RecordedPass) -> Tensor:
        if self._step_fn is not None:
            return target
        assert recorded.labels is not None
        return sample_losses(target, one_hot(recorded.labels, target.shape[1]).to(target.dtype))

    def _own_backward(self, recorded: RecordedPass) -> tuple[tuple[Tensor, ...] | None, Leaves, str]:
        """What the model's own backward pass leaves in `.grad` of h_0..h_L and of the parameters, or why nothing."""
        parameters = dict(self._model.named_parameters())
        if not recorded.target.requires_grad:
            return None, {}, "the model's output carries no gradient, so it has no backward pass of its own"
        for tensor in (*recorded.tensors, *parameters.values()):
            tensor.grad = None
        for tensor in recorded.tensors:
            if tensor.requires_grad:
                tensor.retain_grad()
        try:
            torch.autograd.backward(recorded.target, recorded.seed)
            states = tuple(torch.zeros_like(h) if h.grad is None else h.grad.detach().clone() for h in recorded.tensors)
            made = {name: p.grad.detach() for name, p in parameters.items() if p.grad is not None}
            return states, made, ""
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # Hooks and custom functions are the user's code and may raise anything.
            message = (str(error) or type(error).__name__).splitlines()[0]
            return None, {}, f"the model's own backward pass fails ({type(error).__name__}: {message})"
        finally:
            for tensor in (*recorded.tensors, *parameters.values()):
                tensor.grad = None

    def double(self) -> ModuleSubject:
        return self._with_model(copy.deepcopy(self._model).double())

    def _with_model(self, model: nn.Module) -> ModuleSubject:
        """The same blocks and loss for another model of this structure."""
        return ModuleSubject(model, self._blocks, self._kind, self._step_fn, self.found, self.skipped)


def _with_gradient(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor
