"""What a module's own code calls, replaced where a training step needs another form of it.

While a part of a module runs, torch's functions come here first. Linears and convolutions are handed to the rule, which
may replace their backward pass. Dropout uses masks that were drawn outside the step; BatchNorm uses the statistics of
the batch and leaves its running ones alone (the step moves them); attention is computed by its formula, as fused
kernels cannot be mapped over models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from walkback.core.errors import InputError
from walkback.nets.network import Convolution, Leaves, Linear, plain_linear

MASK = "each.dropout."
"""The names of dropout masks begin with it, then come the part of the network and the mask's number."""


class Operations(TorchFunctionMode):
    """Active while one part of a module runs."""

    def __init__(
        self,
        part: str,
        leaves: Mapping[str, Tensor],
        *,
        linear: Linear = plain_linear,
        masks: Leaves | None = None,
        moments: Leaves | None = None,
    ):
        """`part` is "stem", "blocks.<l>" or "head", `leaves` are its parameters and buffers by name within the part.

        Without `masks` dropout is the identity; `moments` gets the batch's means and variances.
        """
        super().__init__()
        self.part, self.is_idle = part, False
        """While idle, what is computed is not used: there is no dropout, and no moments are kept."""
        self._linear = linear
        self._masks, self._moments = masks, moments
        self._count = 0
        self._names = {id(tensor): name for name, tensor in leaves.items()}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        replaced = _REPLACED.get(func)
        if replaced is None:
            return func(*args, **(kwargs or {}))
        return replaced(self, *args, **(kwargs or {}))

    def enter(self, part: str) -> None:
        """The next part of the module begins."""
        self.part, self._count = part, 0

    def name_of(self, tensor: Any) -> str | None:
        """The name of a parameter or buffer of this part; None for any other value."""
        return self._names.get(id(tensor))

    def apply_layer(
        self,
        plain: Callable[[], Tensor],
        form: str,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        how: Convolution | None = None,
    ) -> Tensor:
        """Apply a layer by the rule's function where its weight is a parameter of the part, otherwise as torch does."""
        name = self.name_of(weight)
        if name is None or self._linear is plain_linear:
            return plain()
        found: Tensor = self._linear(name.removesuffix(".weight"), x, weight, bias, *([how] if how else []))
        return found

    def mask(self, shape: tuple[int, ...], p: float) -> Tensor | None:
        """The next dropout mask, scaled to keep the mean; None where there is no dropout."""
        if self._masks is None or self.is_idle or p == 0:
            return None
        name = f"{MASK}{self.part}.{self._count}"
        self._count += 1
        return self.take_mask(name, shape, p)

    def take_mask(self, name: str, shape: tuple[int, ...], p: float) -> Tensor:
        assert self._masks is not None
        return self._masks[name] / (1 - p) if p < 1 else torch.zeros_like(self._masks[name])

    def keep_moments(self, running_mean: Any, running_var: Any, mean: Tensor, var: Tensor, momentum: Any) -> None:
        if self.is_idle or self._moments is None:
            return
        for buffer, value in ((running_mean, mean), (running_var, var)):
            name = self.name_of(buffer)
            if name is not None:
                self._moments[f"{self.part}.{name}"] = value.detach()


def _linear(ops: Operations, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return ops.apply_layer(lambda: F.linear(input, weight, bias), "linear", input, weight, bias)


def _conv2d(
    ops: Operations,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    # In numbers: mapped over models, "same" loses the groups.
    dilated, sides, x = _pair(dilation), padding, input
    if padding == "valid":
        sides = 0
    elif padding == "same":
        totals = [d * (size - 1) for d, size in zip(dilated, weight.shape[-2:], strict=True)]
        (top, bottom), (left, right) = ((total // 2, total - total // 2) for total in totals)
        x, sides = F.pad(input, (left, right, top, bottom)), 0
    how = Convolution(_pair(stride), _pair(sides), dilated, groups)

    def plain() -> Tensor:
        return plain_linear("", x, weight, bias, how)

    return ops.apply_layer(plain, "conv2d", x, weight, bias, how)


def _pair(value: Any) -> tuple[int, int]:
    both = (value, value) if isinstance(value, int) else tuple(value) * (2 // len(value))
    return int(both[0]), int(both[1])


def _addmm(ops: Operations, input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    def plain() -> Tensor:
        return torch.addmm(input, mat1, mat2, beta=beta, alpha=alpha)

    return ops.apply_layer(plain, "conv1d", mat1, mat2, input) if beta == alpha == 1 else plain()


def _matmul(ops: Operations, input: Tensor, other: Tensor) -> Tensor:
    return ops.apply_layer(lambda: torch.matmul(input, other), "conv1d", input, other, None)


def _dropout(ops: Operations, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    mask = ops.mask(tuple(input.shape), p) if training else None
    return input if mask is None else input * mask


def _channel_dropout(
    ops: Operations, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    mask = ops.mask(shape, p) if training else None
    return input if mask is None else input * mask


def _batch_norm(
    ops: Operations,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    axes = [0, *range(2, input.ndim)]
    shape = (-1, *(1,) * (input.ndim - 2))
    if training:
        mean = input.mean(axes)
        centred = input - mean.reshape(shape)
        var = centred.square().mean(axes)
        count = input.numel() // input.shape[1]
        ops.keep_moments(running_mean, running_var, mean, var * (count / max(count - 1, 1)), momentum)
    else:
        assert running_mean is not None
        assert running_var is not None
        centred, var = input - running_mean.reshape(shape), running_var
    scale = (var + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    found = centred * scale.reshape(shape)
    return found if bias is None else found + bias.reshape(shape)


def _attention(
    ops: Operations,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    weights = _attention_weights(query, key, attn_mask, is_causal, scale)
    mask = ops.mask(tuple(weights.shape), dropout_p)
    mixed: Tensor = (weights if mask is None else weights * mask) @ value
    return mixed


def _attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None = None
) -> Tensor:
    scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.mT
    if is_causal:
        places = [torch.arange(size, device=query.device) for size in scores.shape[-2:]]
        mask = places[0][:, None] >= places[1]
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1)


def _multi_head_attention(
    ops: Operations,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """`nn.MultiheadAttention`, on [tokens, samples, features]."""
    odd = bias_k is not None or add_zero_attn or use_separate_proj_weight or query.ndim != 3
    if odd or in_proj_weight is None or any(value is not None for value in others.values()):
        raise InputError(
            "nn.MultiheadAttention is supported with batched inputs, one width for query, key and value, and without "
            "add_bias_kv and add_zero_attn."
        )
    width = query.shape[-1]
    if query is key and key is value:
        q, k, v = _linear(ops, query, in_proj_weight, in_proj_bias).chunk(3, -1)
    else:
        biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        inputs = zip((query, key, value), in_proj_weight.chunk(3), biases, strict=True)
        q, k, v = (_linear(ops, each, weight, bias) for each, weight, bias in inputs)

    def heads(x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[1], num_heads, width // num_heads).permute(1, 2, 0, 3)

    mask = attn_mask
    if mask is not None and mask.ndim == 3:
        mask = mask.reshape(-1, num_heads, *mask.shape[1:])
    if key_padding_mask is not None:
        padding = key_padding_mask[:, None, None, :]
        if padding.dtype == torch.bool:
            padding = torch.zeros_like(padding, dtype=query.dtype).masked_fill(padding, -math.inf)
        mask = padding if mask is None else _additive(mask, query.dtype) + padding
    elif mask is not None and mask.dtype == torch.bool:
        mask = ~mask  # Here true means that a pair is left out.
    weights = _attention_weights(heads(q), heads(k), mask, is_causal and mask is None)
    dropped = ops.mask(tuple(weights.shape), dropout_p if training else 0.0)
    used = weights if dropped is None else weights * dropped
    mixed = (used @ heads(v)).permute(2, 0, 1, 3).reshape(query.shape)
    shown = (used.mean(1) if average_attn_weights else used) if need_weights else None
    return _linear(ops, mixed, out_proj_weight, out_proj_bias), shown


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask whose true entries are left out, as one that is added to the scores."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf) if mask.dtype == torch.bool else mask


LAYER_FUNCTIONS = {
    F.linear: "linear",
    F.conv2d: "conv2d",
    torch.addmm: "conv1d",
    torch.matmul: "conv1d",
    Tensor.matmul: "conv1d",
    Tensor.__matmul__: "conv1d",
    F.multi_head_attention_forward: "linear",
}
"""Functions through which rules with per-layer feedback reach a weight, and the form that it has there."""
_REPLACED: dict[Any, Callable[..., Any]] = {
    F.linear: _linear,
    F.conv2d: _conv2d,
    torch.addmm: _addmm,
    torch.matmul: _matmul,
    Tensor.matmul: _matmul,
    Tensor.__matmul__: _matmul,
    F.dropout: _dropout,
    F.dropout1d: _channel_dropout,
    F.dropout2d: _channel_dropout,
    F.dropout3d: _channel_dropout,
    F.batch_norm: _batch_norm,
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: _multi_head_attention,
}


class OperationsScout(Operations):
    """Records what one part of a module calls, and draws its dropout masks."""

    def __init__(
        self, part: str, leaves: Mapping[str, Tensor], samples: int, dtype: torch.dtype, generator: torch.Generator
    ):
        super().__init__(part, leaves, masks={}, moments={})
        self.samples, self._dtype, self._generator = samples, dtype, generator
        self.masks: dict[str, tuple[tuple[int, ...], float]] = {}
        """By name, a mask's shape for one sample and its share of zeros."""
        self.drawn: Leaves = {}
        self.moments: dict[str, float | None] = {}
        """By the buffer's name, the momentum of its running average."""
        self.layers: dict[str, tuple[str, tuple[int, ...], int]] = {}
        """By the weight's name, a layer's form, its weight's shape and its groups."""
        self.problems: dict[str, str] = {}
        """Weights that are used by something else than a layer, and by what."""
        self.random = ""
        """A function that drew random numbers."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._note_uses(func, (*args, *(kwargs or {}).values()))
        before = torch.default_generator.get_state()
        found = super().__torch_function__(func, types, args, kwargs)
        if not self.is_idle and not torch.equal(before, torch.default_generator.get_state()):
            self.random = self.random or str(getattr(func, "__name__", func))
        return found

    def _note_uses(self, func: Any, values: tuple[Any, ...]) -> None:
        name = str(getattr(func, "__name__", func))
        if name == "__get__":  # A property: `.T` computes something of the weight, `.shape` does not.
            name = str(getattr(getattr(func, "__self__", None), "__name__", name))
        if func in LAYER_FUNCTIONS or name in _HARMLESS:
            return
        for given in values:
            for value in given if isinstance(given, list | tuple) else (given,):
                leaf = self.name_of(value)
                if leaf is not None and value.ndim > 1:
                    self.problems.setdefault(leaf, name)

    def apply_layer(
        self,
        plain: Callable[[], Tensor],
        form: str,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        how: Convolution | None = None,
    ) -> Tensor:
        name = self.name_of(weight)
        if name is not None and not self.is_idle:
            if form == "conv1d" and weight.ndim != 2:
                self.problems.setdefault(name, "matmul")
            elif self.layers.get(name, (form,))[0] != form:
                self.problems.setdefault(name, "two kinds of layer")
            else:
                self.layers[name] = form, tuple(weight.shape), how.groups if how else 1
        elif weight.requires_grad and name is None and form != "conv1d" and not self.is_idle:
            self.problems.setdefault("a weight that is computed from others", form)
        return plain()

    def take_mask(self, name: str, shape: tuple[int, ...], p: float) -> Tensor:
        if len(shape) < 2 or shape[0] != self.samples:
            raise InputError(
                f"Dropout acts on a tensor of shape {shape} for {self.samples} samples; its first axis must be the "
                "samples, so that each has masks of its own."
            )
        self.masks[name] = shape[1:], p
        self.drawn[name] = (torch.rand(shape, generator=self._generator, dtype=torch.float64) >= p).to(self._dtype)
        return self.drawn[name] / (1 - p) if p < 1 else torch.zeros_like(self.drawn[name])

    def keep_moments(self, running_mean: Any, running_var: Any, mean: Tensor, var: Tensor, momentum: Any) -> None:
        for buffer in (running_mean, running_var):
            name = self.name_of(buffer)
            if name is not None and not self.is_idle:
                self.moments[f"{self.part}.{name}"] = momentum


_HARMLESS = {
    *("shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "is_nested", "layout", "size", "dim", "numel"),
    *("is_floating_point", "stride", "embedding", "add", "__add__", "__radd__", "sub", "mul", "__mul__", "__rmul__"),
    *("layer_norm", "expand", "to", "type_as"),
}
"""Functions that a parameter with several axes may go through beside layers: credit passes them exactly."""
