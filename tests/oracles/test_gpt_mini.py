"""gpt_mini and its token data: causality, a comparison with torch, DFA by token, the embedded task's optimum."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tiny
import walkback as wb
from walkback.core.errors import InputError
from walkback.data.catalog import DATA_SETS
from walkback.data.sets import shakespeare
from walkback.data.sets.markov import Markov
from walkback.measure.snapshot import unigram_entropy


def params_of(resolved):
    draws = torch.Generator().manual_seed(5)
    return {n: v + 0.1 * torch.randn(v.shape, generator=draws, dtype=v.dtype) for n, v in resolved.params().items()}


def case(method="bp"):
    resolved = tiny.resolved(method, arch=tiny.arch("gpt_mini"))
    data = resolved.source.load(None)
    return resolved, params_of(resolved), data.train_x[:8].double(), data.train_y[:8]


def test_a_token_is_predicted_from_itself_and_earlier_ones_only():
    resolved, params, x, _ = case()
    changed = x.clone()
    changed[:, 3] = (changed[:, 3] + 1) % 5
    before, after = resolved.net.forward(params, x), resolved.net.forward(params, changed)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


def test_the_blocks_are_those_of_torch():
    resolved, params, x, _ = case()
    net = resolved.net
    leaves = {n.removeprefix("blocks.0."): v for n, v in params.items() if n.startswith("blocks.0.")}
    block = torch.nn.TransformerEncoderLayer(
        net.d, net.heads, net.mlp_ratio * net.d, 0.0, F.gelu, batch_first=True, norm_first=True, dtype=torch.float64
    )
    names = {
        "self_attn.in_proj_weight": "qkv.weight", "self_attn.in_proj_bias": "qkv.bias",
        "self_attn.out_proj.weight": "proj.weight", "self_attn.out_proj.bias": "proj.bias",
        "linear1.weight": "fc1.weight", "linear1.bias": "fc1.bias",
        "linear2.weight": "fc2.weight", "linear2.bias": "fc2.bias",
        "norm1.weight": "norm1.weight", "norm1.bias": "norm1.bias",
        "norm2.weight": "norm2.weight", "norm2.bias": "norm2.bias",
    }  # fmt: skip
    block.load_state_dict({theirs: leaves[ours] for theirs, ours in names.items()})
    h = net.stem({n.removeprefix("stem."): v for n, v in params.items() if n.startswith("stem.")}, x)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(h.shape[1], dtype=torch.float64)
    torch.testing.assert_close(h + net.branch(leaves, h), block(h, src_mask=mask), rtol=1e-9, atol=1e-12)


def test_dfa_sends_each_tokens_error_to_that_token():
    from walkback.credit.trace import trace
    from walkback.nets.network import plain_linear

    resolved, params, x, y = case("dfa")
    traced = trace(resolved.net, params, x, y, [plain_linear] * resolved.net.depth, with_input=False)
    logits = resolved.net.forward(params, x)
    error = (logits.softmax(-1) - F.one_hot(y, 5)) / y.shape[1]
    torch.testing.assert_close(traced.error, error, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(traced.losses, tiny.sample_losses(logits, y), rtol=1e-10, atol=1e-12)
    rule = resolved.rule.bind({n: torch.tensor(v) for n, v in resolved.rule.knobs().items()})
    credits, _ = rule.credit(resolved.net, params, resolved.state(), traced, {})
    for layer, credit in enumerate(credits):
        torch.testing.assert_close(credit, error @ resolved.state()[f"B.{layer}"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["ep", "node_perturbation", "credit_bridge", "dfa:credit_tokens=cls"])
def test_rules_without_errors_of_tokens_are_refused(method):
    with pytest.raises(InputError, match="token"):
        tiny.resolved(method, arch=tiny.arch("gpt_mini"))


@pytest.mark.parametrize(("arch", "data"), [("resmlp", tiny.TOKEN_DATA), ("gpt_mini", tiny.DATA)])
def test_token_data_and_other_networks_do_not_fit(arch, data):
    with pytest.raises(InputError, match="label for each token"):
        tiny.resolved(arch=tiny.arch(arch), data=data)


def test_in_markov_no_single_token_says_anything_of_the_next_one():
    data = Markov(train=20_000, noise=0.0, length=8).load(None)
    following = data.train_y[:, 1:].flatten()
    for earlier in (data.train_x[:, 1:], data.train_x[:, :-1]):
        table = torch.zeros(12, 12)
        table.index_put_((earlier.long().flatten(), following), torch.ones(()), accumulate=True)
        shares = table / table.sum(1, keepdim=True)
        assert shares.max() < 1 / 12 + 0.02
    pairs = data.train_x[:, :-1].long() * 12 + data.train_x[:, 1:].long()
    both = torch.zeros(144, 12)
    both.index_put_((pairs.flatten(), following), torch.ones(()), accumulate=True)
    assert ((both > 0).sum(1) == 1).all(), "both together say all"


def test_unigram_entropy():
    assert unigram_entropy(torch.tensor([[0, 1], [2, 3]])) == pytest.approx(math.log(4))
    assert unigram_entropy(torch.tensor([[1, 1], [1, -100]])) == 0.0


def planted(tmp_path, monkeypatch, text: bytes):
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "shakespeare" / "input.txt").write_bytes(text)
    monkeypatch.setattr(shakespeare, "CHARACTERS", len(text))
    monkeypatch.setattr(shakespeare, "TEXT_SHA256", hashlib.sha256(text).hexdigest())


def test_shakespeare_is_cut_into_windows_that_do_not_overlap(tmp_path, monkeypatch):
    text = bytes(np.random.default_rng(0).integers(40, 105, 2000, dtype=np.uint8))
    planted(tmp_path, monkeypatch, text)
    source = DATA_SETS.get("shakespeare")(length=9)
    data = source.load(tmp_path)
    assert (len(data.train_x), len(data.test_x)) == (180, 20) == (source.train_size, 20)
    known = np.unique(np.frombuffer(text, dtype=np.uint8))
    joined = torch.cat([data.train_x.long(), data.train_y[:, -1:]], 1).flatten()
    assert known[joined.numpy()].tobytes() == text[:1800]
    assert torch.equal(data.train_x[:, 1:].long(), data.train_y[:, :-1])


def test_another_text_and_a_missing_one_are_refused(tmp_path):
    with pytest.raises(InputError, match="char-rnn"):
        DATA_SETS.get("shakespeare")().load(tmp_path)
    (tmp_path / "input.txt").write_text("to be")
    with pytest.raises(InputError, match="another text"):
        DATA_SETS.get("shakespeare")().load(tmp_path)


def test_own_windows_of_tokens_can_be_trained_on(tmp_path):
    draws = torch.Generator().manual_seed(0)
    windows = torch.randint(6, (96, 6), generator=draws)
    own = wb.tensors(windows[:64, :-1], windows[:64, 1:], windows[64:, :-1], windows[64:, 1:])
    assert (own.per_token, own.classes, own.input_shape) == (True, 6, (5,))
    (result,) = wb.train("dfa", arch=tiny.arch("gpt_mini"), data=own, epochs=1, batch=16, out=tmp_path, predict=False)
    assert result.test_loss > 0


@pytest.mark.parametrize("y", [torch.zeros(8, 4).long(), torch.zeros(8, 5), torch.zeros(8, 5).long() - 1])
def test_labels_of_tokens_must_fit_the_windows(y):
    x = torch.zeros(8, 5).long()
    with pytest.raises(InputError, match="for each token"):
        wb.tensors(x, y, x, y)
