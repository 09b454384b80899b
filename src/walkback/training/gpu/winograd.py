"""3x3 convolutions as Winograd's F(2x2, 3x3): 16 multiplications per 2x2 outputs instead of 36, all in one `bmm`.

An output tile of 2x2 pixels is A'[(G g G') * (B' d B)]A of a kernel g and a 4x4 input tile d; summed over input
channels, each of the 16 positions is a matmul. Written in plain tensor operations, a compiler fuses the transforms of
the maps into one kernel each, and the arithmetic is a batched matmul.

Maps are [batch, groups * channels, height, width], kernels [groups * out, in, 3, 3]: the models of a fleet are groups.
Transformed maps are [chunks * 16 * groups, channels, samples of a chunk * tiles]. Both operands of every matmul are
then dense, and the long axis follows the memory order of a channel's map. A weight gradient sums over that axis: the
batch is split into chunks if one matmul over all of it would leave most of a GPU idle.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_flatten

from walkback.training.gpu.inlining import FunctionCall, arguments, inline_function, replace_conv_backward
from walkback.training.gpu.split_matmul import split_count_for

_BUFFER = "winograd_kernel_transform"
"""Name prefix of the kernel transforms, which are registered as the program's buffers."""
G = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
_FORWARD = torch.ops.aten.convolution.default
_BACKWARD = torch.ops.aten.convolution_backward.default


def kernel_transform(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The matrix [16, 9] that maps a flattened kernel g to the flattened G g G'."""
    one = torch.tensor(G, dtype=dtype, device=device)
    return torch.kron(one, one)


def convolve(x: Tensor, weight: Tensor, groups: int, transform: Tensor) -> Tensor:
    """The convolution with stride 1 and padding 1; `transform` is the `kernel_transform`."""
    count = batch_chunks(x, weight.shape[0], groups)
    kernels = _transform_kernels(weight, groups, transform)
    if count > 1:
        kernels = kernels.expand(count, *kernels.shape).reshape(-1, *kernels.shape[1:])
    return _from_tiles(torch.bmm(kernels, _input_tiles(x, groups, count)), x, groups, count)


def input_gradient(credit: Tensor, weight: Tensor, groups: int, transform: Tensor) -> Tensor:
    """The convolution of the output's gradient with the kernels rotated by 180 degrees and their channels exchanged."""
    kernels = _transform_kernels(weight, groups, transform.flip(1)).transpose(1, 2)
    return _from_tiles(torch.bmm(kernels, _input_tiles(credit, groups, 1)), credit, groups, 1)


def winograd_weight_gradient(credit: Tensor, x: Tensor, groups: int, transform: Tensor) -> Tensor:
    """The transposed transforms of kernel and output, with one matmul over batch and tiles in between."""
    count = batch_chunks(x, credit.shape[1], groups)
    transformed = torch.bmm(_output_tiles(credit, groups, count), _input_tiles(x, groups, count).transpose(1, 2))
    flat = torch.mm(transformed.view(count, 16, -1).sum(0).t(), transform)
    return flat.view(credit.shape[1], x.shape[1] // groups, 3, 3)


def batch_chunks(x: Tensor, out: int, groups: int) -> int:
    """Number of chunks the batch is split into; the same forward and backward, which share the input's tiles."""
    batch, inner, height, width = x.shape
    terms = batch * ((height + 1) // 2) * ((width + 1) // 2)
    return math.gcd(batch, split_count_for(16 * groups, out // groups, terms, inner // groups))


def use_winograd(program: GraphModule) -> int:
    """Rewrite the eligible convolutions of a traced program in place; returns how many there were."""
    found = eligible_convolutions(program)
    if not found:
        return 0
    before = set(program.graph.nodes)
    transforms: dict[tuple[torch.dtype, torch.device], Node] = {}
    for node in found:
        val = arguments(node)[1].meta["val"]
        kind = (val.dtype, val.device)
        if kind not in transforms:
            transforms[kind] = _constant(program, f"{_BUFFER}_{len(transforms)}", kernel_transform(*kind))
        (_rewrite_forward if node.target is _FORWARD else _rewrite_backward)(node, transforms[kind])
    program.graph.eliminate_dead_code()
    _merge_common_subexpressions(program.graph, set(program.graph.nodes) - before)
    program.recompile()
    return len(found)


def eligible_convolutions(program: GraphModule) -> list[Node]:
    """The convolutions of a traced program, and their backward passes, that Winograd's algorithm can compute."""
    return [node for node in program.graph.nodes if node.target in (_FORWARD, _BACKWARD) and _is_eligible(node)]


def convolution_flops(node: Node) -> int:
    """FLOP count of an eligible convolution or its backward pass by the direct algorithm."""
    is_backward, args = node.target is _BACKWARD, arguments(node)
    maps, weight = args[0].meta["val"], args[2 if is_backward else 1].meta["val"]
    wanted = sum(args[-1][:2]) if is_backward else 1
    return int(wanted * 2 * weight.numel() * maps.shape[0] * maps.shape[2] * maps.shape[3])


def _transform_kernels(weight: Tensor, groups: int, transform: Tensor) -> Tensor:
    """[16 * groups, out, in]"""
    out, inner = weight.shape[0] // groups, weight.shape[1]
    return torch.mm(transform, weight.reshape(-1, 9).t()).view(16 * groups, out, inner)


def _input_tiles(x: Tensor, groups: int, count: int) -> Tensor:
    """B' d B of the 4x4 tiles around every 2x2 outputs; maps are padded with zeros.

    Columns are padded after the rows' transform: the compiler considers an expression with both paddings too large to
    be computed four times and would write it to memory.
    """
    height, width = x.shape[2:]
    rows = F.pad(_by_group(x, groups, count), (0, 0, 1, 1 + height % 2))
    transformed = [F.pad(row, (1, 1 + width % 2)) for row in _transform_input(rows, 4)]
    return _flat_tiles([piece for row in transformed for piece in _transform_input(row, 5)])


def _transform_input(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a, b, c, d = x.unfold(dim, 4, 2).unbind(-1)
    return a - c, b + c, c - b, d - b


def _output_tiles(y: Tensor, groups: int, count: int) -> Tensor:
    """A y A' of the 2x2 tiles of an output's gradient."""
    height, width = y.shape[2:]
    maps = _by_group(y, groups, count)
    if height % 2 or width % 2:
        maps = F.pad(maps, (0, width % 2, 0, height % 2))
    return _flat_tiles(
        [piece for row in _transpose_transform_output(maps, 4) for piece in _transpose_transform_output(row, 5)]
    )


def _transpose_transform_output(y: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a, b = y.unfold(dim, 2, 2).unbind(-1)
    return a, a + b, a - b, b


def _by_group(x: Tensor, groups: int, count: int) -> Tensor:
    """[chunks, groups, channels, samples, height, width]"""
    batch, channels, height, width = x.shape
    apart = x.reshape(count, batch // count, groups, channels // groups, height, width)
    return apart.permute(0, 2, 3, 1, 4, 5)


def _flat_tiles(pieces: list[Tensor]) -> Tensor:
    """The 16 positions as one tensor; they read the same values, so that one kernel can write them all."""
    count, groups, channels = pieces[0].shape[:3]
    return torch.cat(pieces, 1).view(count * 16 * groups, channels, -1)


def _from_tiles(results: Tensor, like: Tensor, groups: int, count: int) -> Tensor:
    """A' m A, assembled to maps of the size of `like`.

    The four pixels of a tile are written next to each other by one kernel that reads each value once: therefore they
    are concatenated along an added last axis. The copy to row-major order can be fused into the operation that
    reads the maps.
    """
    batch, _, height, width = like.shape
    tile_rows, tile_columns = (height + 1) // 2, (width + 1) // 2
    m = results.view(count, 4, 4, groups, -1, batch // count, tile_rows, tile_columns, 1).permute(
        1, 2, 0, 5, 3, 4, 6, 7, 8
    )
    pixels = torch.cat([piece for row in _transform_output(m) for piece in _transform_output(row)], -1)
    maps = pixels.view(*pixels.shape[:-1], 2, 2).transpose(5, 6).reshape(batch, -1, 2 * tile_rows, 2 * tile_columns)
    return maps[:, :, :height, :width].contiguous()


def _transform_output(m: Tensor) -> tuple[Tensor, Tensor]:
    a, b, c, d = m.unbind(0)
    return a + b + c, b - c + d


def _is_eligible(node: Node) -> bool:
    """Whether a convolution is 3x3 with stride 1 and padding 1, on dense 2-d maps in float32 or float64."""
    backward, args = node.target is _BACKWARD, arguments(node)
    vals = [operand.meta["val"] for operand in args[: 3 if backward else 2]]
    stride, padding, dilation, transposed = args[4:8] if backward else args[3:7]
    weight = vals[-1]
    results = [val for val in (node.meta["val"] if backward else [node.meta["val"]]) if val is not None]
    return (
        weight.shape[2:] == (3, 3)
        and all(tuple(setting) == (1, 1) for setting in (stride, padding, dilation))
        and not transposed
        and weight.dtype in (torch.float32, torch.float64)
        and all(val.numel() > 0 for val in vals)
        and all(val.is_contiguous() for val in results)
        and (not backward or all(user.target is operator.getitem for user in node.users))
    )


def _rewrite_forward(node: Node, transform: Node) -> None:
    x, weight, bias, *_, groups = arguments(node)

    def convolve_with_bias(x: Tensor, weight: Tensor, transform: Tensor, *bias: Tensor) -> Tensor:
        y = convolve(x, weight, groups, transform)
        return y + bias[0].view(-1, 1, 1) if bias else y

    inputs = [x, weight, transform] + ([] if bias is None else [bias])
    node.replace_all_uses_with(inline_function(convolve_with_bias, node, inputs))


def _rewrite_backward(node: Node, transform: Node) -> None:
    credit, x, weight, *_, groups, _ = arguments(node)
    gradients: dict[int, FunctionCall] = {
        0: (lambda dy, w, transform: input_gradient(dy, w, groups, transform), [credit, weight, transform]),
        1: (lambda dy, x, transform: winograd_weight_gradient(dy, x, groups, transform), [credit, x, transform]),
    }
    replace_conv_backward(node, gradients)


def _merge_common_subexpressions(graph: Graph, new_nodes: set[Node]) -> None:
    """Compute equal expressions among `new_nodes` once: forward pass and weight gradient use the same input tiles.

    Of the other nodes only equal views are merged, through which both read one tensor. No result of `new_nodes` is
    modified in place.
    """
    first: dict[Hashable, Node] = {}
    for node in graph.nodes:
        if node.op == "call_function" and (node in new_nodes or getattr(node.target, "is_view", False)):
            leaves, structure = tree_flatten((node.args, node.kwargs))
            key = (node.target, tuple((type(leaf), leaf) for leaf in leaves), str(structure))
            same = first.setdefault(key, node)
            if same is not node:
                node.replace_all_uses_with(same)
                graph.erase_node(node)


def _constant(program: GraphModule, name: str, value: Tensor) -> Node:
    program.register_buffer(name, value)
    with program.graph.inserting_before(next(node for node in program.graph.nodes if node.op != "placeholder")):
        node = program.graph.get_attr(name)
    with FakeTensorMode():
        node.meta["val"] = torch.empty(value.shape, dtype=value.dtype, device=value.device)
    return node
