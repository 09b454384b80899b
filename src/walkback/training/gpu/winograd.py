"""3x3 convolutions as Winograd's F(2x2, 3x3): 16 products per 2x2 outputs in place of 36, all of them in one `bmm`.

An output tile of 2x2 pixels is A'[(G g G') * (B' d B)]A of a kernel g and a 4x4 input tile d; summed over input
channels, the product at each of the 16 positions is a matrix product. Written in plain tensor operations, a compiler
fuses the transforms of the maps into one kernel each, and the arithmetic goes to the library's batched product.

Maps are [batch, groups * channels, height, width], kernels [groups * out, in, 3, 3]: the models of a fleet are groups.
Transformed maps are [chunks * 16 * groups, channels, samples of a chunk * tiles]. Both operands of every product are
then dense, and the long axis runs through a channel's map in its own order. A weight gradient adds up that axis: the
batch is cut into chunks where one product over all of it would leave most of a GPU idle.
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

from walkback.training.gpu.inlining import Pass, arguments, inlined, replace_pullback
from walkback.training.gpu.split_matmul import parts

CONSTANT = "winograd_lift"
G = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
FORWARD = torch.ops.aten.convolution.default
_BACKWARD = torch.ops.aten.convolution_backward.default


def kernel_lift(dtype: torch.dtype, device: torch.device) -> Tensor:
    """[16, 9]: takes a flat kernel g to the flat G g G'."""
    one = torch.tensor(G, dtype=dtype, device=device)
    return torch.kron(one, one)


def convolve(x: Tensor, weight: Tensor, groups: int, lift: Tensor) -> Tensor:
    """The convolution of stride 1 and padding 1."""
    count = chunks(x, weight.shape[0], groups)
    kernels = _lift_kernels(weight, groups, lift)
    if count > 1:
        kernels = kernels.expand(count, *kernels.shape).reshape(-1, *kernels.shape[1:])
    return _from_tiles(torch.bmm(kernels, _input_tiles(x, groups, count)), x, groups, count)


def input_gradient(credit: Tensor, weight: Tensor, groups: int, lift: Tensor) -> Tensor:
    """The convolution of the output's gradient with the kernels turned by 180 degrees and their channels exchanged."""
    kernels = _lift_kernels(weight, groups, lift.flip(1)).transpose(1, 2)
    return _from_tiles(torch.bmm(kernels, _input_tiles(credit, groups, 1)), credit, groups, 1)


def winograd_weight_gradient(credit: Tensor, x: Tensor, groups: int, lift: Tensor) -> Tensor:
    """The transposes of the kernel's and the output's transforms around one product over batch and tiles."""
    count = chunks(x, credit.shape[1], groups)
    lifted = torch.bmm(_output_tiles(credit, groups, count), _input_tiles(x, groups, count).transpose(1, 2))
    flat = torch.mm(lifted.view(count, 16, -1).sum(0).t(), lift)
    return flat.view(credit.shape[1], x.shape[1] // groups, 3, 3)


def chunks(x: Tensor, out: int, groups: int) -> int:
    """Into how many the batch is cut; the same forward and backward, which share the input's tiles."""
    batch, inner, height, width = x.shape
    terms = batch * ((height + 1) // 2) * ((width + 1) // 2)
    return math.gcd(batch, parts(16 * groups, out // groups, terms, inner // groups))


def use_winograd(program: GraphModule) -> int:
    """Rewrite, in place, the convolutions of a traced program that can be done so; returns how many there were."""
    found = eligible(program)
    if not found:
        return 0
    before = set(program.graph.nodes)
    lifts: dict[tuple[torch.dtype, torch.device], Node] = {}
    for node in found:
        val = arguments(node)[1].meta["val"]
        kind = (val.dtype, val.device)
        if kind not in lifts:
            lifts[kind] = _constant(program, f"{CONSTANT}_{len(lifts)}", kernel_lift(*kind))
        (_rewrite_forward if node.target is FORWARD else _rewrite_backward)(node, lifts[kind])
    program.graph.eliminate_dead_code()
    _merge_equal(program.graph, set(program.graph.nodes) - before)
    program.recompile()
    return len(found)


def eligible(program: GraphModule) -> list[Node]:
    """The convolutions of a traced program, and their pullbacks, that can be done so."""
    return [node for node in program.graph.nodes if node.target in (FORWARD, _BACKWARD) and _is_eligible(node)]


def operations(node: Node) -> int:
    """Floating-point operations of an eligible convolution or pullback, done directly."""
    is_backward, args = node.target is _BACKWARD, arguments(node)
    maps, weight = args[0].meta["val"], args[2 if is_backward else 1].meta["val"]
    wanted = sum(args[-1][:2]) if is_backward else 1
    return int(wanted * 2 * weight.numel() * maps.shape[0] * maps.shape[2] * maps.shape[3])


def _lift_kernels(weight: Tensor, groups: int, lift: Tensor) -> Tensor:
    """[16 * groups, out, in]"""
    out, inner = weight.shape[0] // groups, weight.shape[1]
    return torch.mm(lift, weight.reshape(-1, 9).t()).view(16 * groups, out, inner)


def _input_tiles(x: Tensor, groups: int, count: int) -> Tensor:
    """B' d B of the 4x4 tiles around every 2x2 outputs; what is outside a map is zero.

    Columns are padded after the rows' transform: a compiler that thinks an expression with both paddings too large
    to be used four times would write it to memory.
    """
    height, width = x.shape[2:]
    rows = F.pad(_by_group(x, groups, count), (0, 0, 1, 1 + height % 2))
    lifted = [F.pad(row, (1, 1 + width % 2)) for row in _lift_input(rows, 4)]
    return _flat_tiles([piece for row in lifted for piece in _lift_input(row, 5)])


def _lift_input(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a, b, c, d = x.unfold(dim, 4, 2).unbind(-1)
    return a - c, b + c, c - b, d - b


def _output_tiles(y: Tensor, groups: int, count: int) -> Tensor:
    """A y A' of the 2x2 tiles of an output's gradient."""
    height, width = y.shape[2:]
    maps = _by_group(y, groups, count)
    if height % 2 or width % 2:
        maps = F.pad(maps, (0, width % 2, 0, height % 2))
    return _flat_tiles([piece for row in _lift_output(maps, 4) for piece in _lift_output(row, 5)])


def _lift_output(y: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a, b = y.unfold(dim, 2, 2).unbind(-1)
    return a, a + b, a - b, b


def _by_group(x: Tensor, groups: int, count: int) -> Tensor:
    """[chunks, groups, channels, samples, height, width]"""
    batch, channels, height, width = x.shape
    apart = x.reshape(count, batch // count, groups, channels // groups, height, width)
    return apart.permute(0, 2, 3, 1, 4, 5)


def _flat_tiles(pieces: list[Tensor]) -> Tensor:
    """One tensor of the 16 positions; they share what they read, so that one kernel can write them all."""
    count, groups, channels = pieces[0].shape[:3]
    return torch.cat(pieces, 1).view(count * 16 * groups, channels, -1)


def _from_tiles(products: Tensor, like: Tensor, groups: int, count: int) -> Tensor:
    """A' m A, put together to maps of the size of `like`.

    The four pixels of a tile are written side by side, by one kernel that reads every product once: hence the last
    axis of one that they are joined along. The copy to the order of rows is left to whoever reads the maps.
    """
    batch, _, height, width = like.shape
    tall, wide = (height + 1) // 2, (width + 1) // 2
    m = products.view(count, 4, 4, groups, -1, batch // count, tall, wide, 1).permute(1, 2, 0, 5, 3, 4, 6, 7, 8)
    pixels = torch.cat([piece for row in _lower_output(m) for piece in _lower_output(row)], -1)
    maps = pixels.view(*pixels.shape[:-1], 2, 2).transpose(5, 6).reshape(batch, -1, 2 * tall, 2 * wide)
    return maps[:, :, :height, :width].contiguous()


def _lower_output(m: Tensor) -> tuple[Tensor, Tensor]:
    a, b, c, d = m.unbind(0)
    return a + b + c, b - c + d


def _is_eligible(node: Node) -> bool:
    """3x3, stride 1, padding 1 on dense two-dimensional maps in single or double precision."""
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


def _rewrite_forward(node: Node, lift: Node) -> None:
    x, weight, bias, *_, groups = arguments(node)

    def whole(x: Tensor, weight: Tensor, lift: Tensor, *bias: Tensor) -> Tensor:
        y = convolve(x, weight, groups, lift)
        return y + bias[0].view(-1, 1, 1) if bias else y

    inputs = [x, weight, lift] + ([] if bias is None else [bias])
    node.replace_all_uses_with(inlined(whole, node, inputs))


def _rewrite_backward(node: Node, lift: Node) -> None:
    credit, x, weight, *_, groups, _ = arguments(node)
    passes: dict[int, Pass] = {
        0: (lambda dy, w, lift: input_gradient(dy, w, groups, lift), [credit, weight, lift]),
        1: (lambda dy, x, lift: winograd_weight_gradient(dy, x, groups, lift), [credit, x, lift]),
    }
    replace_pullback(node, passes)


def _merge_equal(graph: Graph, ours: set[Node]) -> None:
    """Share what several of our pieces compute: an input's tiles serve the forward pass and the weight gradient.

    Theirs are merged as far as they are views, through which one tensor reaches both. Nothing of ours is written to.
    """
    first: dict[Hashable, Node] = {}
    for node in graph.nodes:
        if node.op == "call_function" and (node in ours or getattr(node.target, "is_view", False)):
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
