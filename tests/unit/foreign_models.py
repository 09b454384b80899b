"""Models in the style of other libraries and projects."""

from __future__ import annotations

import torch
from torch import nn

from walkback.nets.network import part


class Branch(nn.Module):
    """A residual branch, as the reference package's interface expects its blocks."""

    def __init__(self, d: int):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))

    def forward(self, h):
        return self.net(h)


class Reference(nn.Module):
    """The duck-typed interface of the reference package's README."""

    def __init__(self, d: int = 12, depth: int = 3, classes: int = 4, features: int = 6):
        super().__init__()
        self.embed = nn.Linear(features, d)
        self.blocks = nn.ModuleList(Branch(d) for _ in range(depth))
        self.out_ln, self.out_head = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, x, return_hidden=False):
        h = self.embed(x)
        hiddens = [h]
        for block in self.blocks:
            h = h + block(h)
            hiddens.append(h)
        logits = self.out_head(self.out_ln(h))
        return (logits, hiddens) if return_hidden else logits


class Whole(nn.Module):
    """A block that returns the next state."""

    def __init__(self, d: int):
        super().__init__()
        self.branch = Branch(d)

    def forward(self, h):
        return h + self.branch(h)


def sequential(d: int = 12) -> nn.Module:
    return nn.Sequential(nn.Linear(6, d), Whole(d), Whole(d), Whole(d), nn.LayerNorm(d), nn.Linear(d, 4))


class Tokens(nn.Module):
    """Integer tokens through torch's encoder layers; the head reads token 0, or the mean of all tokens."""

    def __init__(self, pooling: str = "cls", d: int = 8):
        super().__init__()
        self.embedding = nn.Embedding(11, d)
        layers = [nn.TransformerEncoderLayer(d, 2, 16, batch_first=True, norm_first=True) for _ in range(2)]
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(d, 4)
        self.pooling = pooling

    def forward(self, ids):
        h = self.embedding(ids)
        for layer in self.layers:
            h = layer(h)
        return self.head(h[:, 0] if self.pooling == "cls" else h.mean(1))


class Output(dict):
    """A dict with attributes, as `transformers` returns it."""

    def __getattr__(self, name):
        return self[name]


class TupleBlock(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.inner = Whole(d)

    def forward(self, hidden_states, mask=None):
        return (self.inner(hidden_states), mask)


class Dicts(nn.Module):
    """Keyword inputs, tuples between blocks, an output object with logits."""

    def __init__(self, d: int = 12):
        super().__init__()
        self.stem = nn.Linear(6, d)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(TupleBlock(d) for _ in range(3))})
        self.head = nn.Linear(d, 4)

    def forward(self, pixel_values=None, mask=None):
        h = self.stem(pixel_values)
        for block in self.encoder["layer"]:
            h = block(hidden_states=h, mask=mask)[0]
        return Output(logits=self.head(h), other=None)


class ConvBlock(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(channels), nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, h):
        return h + self.conv(torch.relu(self.norm(h)))


class Convolutions(nn.Module):
    """Two stages of blocks with BatchNorm and dropout, of different shapes, as in a ResNet."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.stage1 = nn.Sequential(ConvBlock(4), ConvBlock(4))
        self.stage2 = nn.Sequential(ConvBlock(4), ConvBlock(4))
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(4, 4)

    def forward(self, x):
        h = self.stage2(self.stage1(self.stem(x)))
        return self.head(self.drop(h.mean((2, 3))))


class InPlace(nn.Module):
    """A model whose blocks modify their input in place."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(12, 12)

        def forward(self, h):
            h += torch.tanh(self.inner(h))
            return h

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 12)
        self.layers = nn.ModuleList(InPlace.Block() for _ in range(3))
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        h = self.stem(x)
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


class Detached(Reference):
    """A model that runs its blocks under no_grad."""

    def forward(self, x, return_hidden=False):
        h = self.embed(x)
        hiddens = [h]
        for block in self.blocks:
            with torch.no_grad():
                f = block(h)
            h = h + f
            hiddens.append(h)
        logits = self.out_head(self.out_ln(h))
        return (logits, hiddens) if return_hidden else logits


class Attention(nn.Module):
    """Attention as `timm` writes it: one projection for query, key and value."""

    def __init__(self, d: int, heads: int = 2):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        n, tokens, d = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(mixed.transpose(1, 2).reshape(n, tokens, d))


class Mlp(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class ViTBlock(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.norm1, self.attn, self.norm2, self.mlp = nn.LayerNorm(d), Attention(d), nn.LayerNorm(d), Mlp(d)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbed(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.proj, self.norm = nn.Conv2d(3, d, 4, stride=4), nn.Identity()

    def forward(self, x):
        return self.norm(self.proj(x).flatten(2).transpose(1, 2))


class VisionTransformer(nn.Module):
    """A ViT in `timm`'s form, on 3 x 8 x 8 images: 4 patches of 4 x 4, read at the cls token or as a mean."""

    def __init__(self, pooling: str = "token", terminal_norm: bool = True, d: int = 16, depth: int = 3):
        super().__init__()
        self.global_pool = pooling
        self.patch_embed = PatchEmbed(d)
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, d)) if pooling == "token" else None
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 4 + (pooling == "token"), d))
        self.pos_drop, self.norm_pre = nn.Dropout(0.1), nn.Identity()
        self.blocks = nn.Sequential(*[ViTBlock(d) for _ in range(depth)])
        self.norm = nn.LayerNorm(d) if terminal_norm else nn.Identity()
        self.fc_norm, self.head_drop, self.head = nn.Identity(), nn.Dropout(0.1), nn.Linear(d, 4)

    def forward_features(self, x):
        x = self.patch_embed(x)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        return self.norm(self.blocks(self.norm_pre(self.pos_drop(x + self.pos_embed))))

    def forward(self, x):
        x = self.forward_features(x)
        x = x[:, 0] if self.global_pool == "token" else x.mean(dim=1)
        return self.head(self.head_drop(self.fc_norm(x)))


class GPT2Block(nn.Module):
    """A decoder block as `transformers` writes it: causal, with keywords, returning a tuple."""

    def __init__(self, d: int, positions: int):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(d, 3 * d), "c_proj": nn.Linear(d, d)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(d, 4 * d), "c_proj": nn.Linear(4 * d, d)})
        mask = torch.full((positions, positions), -torch.inf).triu(1)
        self.register_buffer("bias", mask, persistent=False)

    def forward(self, hidden_states, layer_past=None, attention_mask=None, use_cache=False):
        q, k, v = self.attn["c_attn"](self.ln_1(hidden_states)).chunk(3, dim=-1)
        weights = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + self.bias).softmax(-1)
        hidden_states = hidden_states + self.attn["c_proj"](weights @ v)
        inner = nn.functional.gelu(self.mlp["c_fc"](self.ln_2(hidden_states)), approximate="tanh")
        return (hidden_states + self.mlp["c_proj"](inner), None)


class GPT2Model(nn.Module):
    def __init__(self, terminal_norm: bool, d: int, depth: int, positions: int):
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(50, d), nn.Embedding(positions, d), nn.Dropout(0.1)
        self.h = nn.ModuleList(GPT2Block(d, positions) for _ in range(depth))
        self.ln_f = nn.LayerNorm(d) if terminal_norm else nn.Identity()

    def forward(self, input_ids, attention_mask=None):
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden = self.drop(self.wte(input_ids) + self.wpe(places))
        for block in self.h:
            hidden = block(hidden, layer_past=None, attention_mask=attention_mask)[0]
        return Output(last_hidden_state=self.ln_f(hidden), past_key_values=None)


class GPT2Classifier(nn.Module):
    """A GPT-2-style decoder whose last token is classified; keyword inputs, an output object."""

    def __init__(self, terminal_norm: bool = True, d: int = 16, depth: int = 3, positions: int = 6):
        super().__init__()
        self.transformer = GPT2Model(terminal_norm, d, depth, positions)
        self.score = nn.Linear(d, 4, bias=False)

    def forward(self, input_ids=None, attention_mask=None):
        hidden = self.transformer(input_ids, attention_mask=attention_mask).last_hidden_state
        return Output(loss=None, logits=self.score(hidden)[:, -1])


class Encoder(nn.Module):
    """torch's own pre-norm encoder with its final norm, on inputs [n, tokens, features]."""

    def __init__(self, terminal_norm: bool = True, d: int = 16, depth: int = 3, batch_first: bool = True):
        super().__init__()
        layer = nn.TransformerEncoderLayer(d, 2, 32, norm_first=True, batch_first=batch_first)
        norm = nn.LayerNorm(d) if terminal_norm else None
        self.stem = nn.Linear(6, d)
        self.encoder = nn.TransformerEncoder(layer, depth, norm=norm, enable_nested_tensor=False)
        self.head = nn.Linear(d, 4)

    def forward(self, x):
        h = self.encoder(self.stem(x))
        return self.head(h.mean(1) if h.ndim == 3 else h)


class BasicBlock(nn.Module):
    """A residual block as `torchvision` and `timm` write it, with a projection where the shape changes."""

    def __init__(self, fan_in: int, width: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, width, 3, stride, 1, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or fan_in != width:
            self.downsample = nn.Sequential(nn.Conv2d(fan_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet(nn.Module):
    """Three stages of two blocks, each stage at half the size and twice the width; no terminal norm unless asked for.

    The terminal norm is the BatchNorm that pre-activation ResNets end in.
    """

    def __init__(self, terminal_norm: bool = False, width: int = 4):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(2)
        self.layer1 = nn.Sequential(BasicBlock(width, width), BasicBlock(width, width))
        self.layer2 = nn.Sequential(BasicBlock(width, 2 * width, 2), BasicBlock(2 * width, 2 * width))
        self.layer3 = nn.Sequential(BasicBlock(2 * width, 4 * width, 2), BasicBlock(4 * width, 4 * width))
        self.final = nn.BatchNorm2d(4 * width) if terminal_norm else nn.Identity()
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(4 * width, 4)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.final(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def plain(terminal_norm: bool = True, d: int = 16) -> nn.Module:
    """A plain stack: no residuals, every block Linear + LeakyReLU in a Sequential of its own."""
    blocks = [nn.Sequential(nn.Linear(d, d), nn.LeakyReLU()) for _ in range(3)]
    norm = [nn.LayerNorm(d)] if terminal_norm else []
    return nn.Sequential(nn.Linear(6, d), *blocks, *norm, nn.Linear(d, 4))


class Part(nn.Module):
    """One part of a walkback network, with its leaves as parameters."""

    def __init__(self, function, leaves):
        super().__init__()
        self.function, self.leaves = function, nn.ModuleDict()
        for name, leaf in leaves.items():
            owner, _, last = name.rpartition(".")
            if (owner or "self") not in self.leaves:
                self.leaves[owner or "self"] = nn.ParameterDict()
            self.leaves[owner or "self"][last] = nn.Parameter(leaf.clone())

    def forward(self, h):
        named = {
            last if owner == "self" else f"{owner}.{last}": leaf
            for owner, leaves in self.leaves.items()
            for last, leaf in leaves.items()
        }
        return self.function(named, h)


class NetworkModule(nn.Module):
    """A walkback network as an nn.Module: stem, blocks that return the branch, head."""

    def __init__(self, net, params):
        super().__init__()
        self.stem = Part(net.stem, part(params, "stem"))
        self.blocks = nn.ModuleList(Part(net.branch, part(params, f"blocks.{index}")) for index in range(net.depth))
        self.head = Part(net.head, part(params, "head"))

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(h)


class Cancelling(nn.Module):
    """A head in which two huge terms cancel: exactly in exact arithmetic, to about a relative 1e-7 in float32.

    All weights of the huge terms are small integers, so that float64 represents them (nearly) without rounding.
    """

    def __init__(self, small: nn.Linear, size: float = 2.0**20):
        super().__init__()
        d = small.in_features
        draws = torch.Generator().manual_seed(5)
        first, second = (torch.randint(-3, 4, shape, generator=draws).float() for shape in ((d, d), (4, d)))
        self.small, self.size = small, size
        self.first, self.second, self.direct = (nn.Parameter(w) for w in (first, second, second @ first))

    def forward(self, h):
        linear = nn.functional.linear
        detour, direct = linear(linear(h, self.first), self.second), linear(h, self.direct)
        return self.small(h) + (self.size * detour - self.size * direct)


WRITERS = {
    Branch: ("net.3",),
    Whole: ("branch.net.3",),
    ViTBlock: ("attn.proj", "mlp.fc2"),
    GPT2Block: ("attn.c_proj", "mlp.c_proj"),
    nn.TransformerEncoderLayer: ("self_attn.out_proj", "linear2"),
    BasicBlock: ("bn2",),
    Part: ("leaves.w2",),
    nn.Sequential: ("0",),
}
"""For each kind of block, the modules whose output is added to the residual stream."""


def explode(blocks, factors) -> None:
    """Scale what each block adds to the residual stream by its factor."""
    with torch.no_grad():
        for block, factor in zip(blocks, factors, strict=True):
            for name in WRITERS[type(block)]:
                for parameter in block.get_submodule(name).parameters():
                    parameter.mul_(factor)
