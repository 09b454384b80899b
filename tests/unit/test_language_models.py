"""A foreign language model with per-token losses: logits and error of `step_fn`, token means, repeated windows."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import walkback as wb
from walkback.core.errors import InputError
from walkback.measure.inputs import regroup
from walkback.measure.module_subject import ModuleSubject

VOCABULARY, LENGTH, WIDTH = 7, 5, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix, self.out = nn.LayerNorm(WIDTH), nn.Linear(LENGTH, LENGTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, h):
        weights = torch.softmax(self.mix.weight.tril(), -1)
        return h + self.out(torch.tanh(weights @ self.norm(h)))


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        h = self.embed(tokens)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def token_losses(model, batch):
    x, y = batch
    return F.cross_entropy(model(x).transpose(1, 2), y, reduction="none")


def sample_losses(model, batch):
    return token_losses(model, batch).mean(1)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return LanguageModel()


@pytest.fixture(scope="module")
def windows():
    draws = torch.Generator().manual_seed(1)
    tokens = torch.randint(VOCABULARY, (1024, LENGTH + 1), generator=draws)
    return [(tokens[:, :-1], tokens[:, 1:])]


BLOCKS = ("blocks.0", "blocks.1", "blocks.2")


def test_losses_of_tokens_are_averaged_over_each_sample(model, windows):
    (x, y), = windows  # fmt: skip
    of_tokens, of_samples = (
        ModuleSubject(model, BLOCKS, "state", fn).run(x, y) for fn in (token_losses, sample_losses)
    )
    assert of_tokens.losses.shape == (1024,)
    assert torch.equal(of_tokens.losses, of_samples.losses)
    for one, other in zip(of_tokens.reference, of_samples.reference, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


def test_a_pass_with_step_fn_has_the_logits_and_their_error(model, windows):
    (x, y), = windows  # fmt: skip
    seen = ModuleSubject(model.double(), BLOCKS, "state", token_losses).run(x, y)
    model.float()
    assert seen.logits.shape == (1024, LENGTH, VOCABULARY) == seen.error.shape
    expected = (seen.logits.softmax(-1) - F.one_hot(y, VOCABULARY)) / LENGTH
    torch.testing.assert_close(seen.error, expected, rtol=1e-10, atol=1e-14)


def test_direct_feedback_of_a_language_model_can_be_measured(model, windows):
    """DFA by token: B^T times the error of each token."""
    draws = torch.Generator().manual_seed(3)
    feedback = [torch.randn(VOCABULARY, WIDTH, generator=draws) for _ in range(4)]

    def credit(seen):
        return [seen.error @ matrix.to(seen.error) for matrix in feedback]

    report = wb.diagnose(model, windows, step_fn=token_losses, distinct=False, credit=credit)
    seen = ModuleSubject(model, BLOCKS, "state", token_losses).run(*windows[0])
    by_token = [F.cosine_similarity(a, g, dim=-1).mean(1) for a, g in zip(credit(seen), seen.reference, strict=True)]
    found = torch.from_numpy(report.measurements.arrays["token_cos"]).float()
    torch.testing.assert_close(found, torch.stack(by_token).detach(), rtol=1e-3, atol=1e-3)


def test_a_loss_without_logits_has_no_error(windows):
    class Scalar(LanguageModel):
        def forward(self, tokens, targets):
            return {"loss": F.cross_entropy(super().forward(tokens).transpose(1, 2), targets, reduction="none").mean(1)}

    (x, y), = windows  # fmt: skip
    seen = ModuleSubject(Scalar(), BLOCKS, "state", lambda m, b: m(*b)["loss"]).run(x, y)
    assert seen.logits is None
    assert seen.error is None


def test_repeated_windows_are_refused_unless_distinct_is_false_and_then_counted_on_the_card(model, windows):
    (x, y), = windows  # fmt: skip
    twice = [(torch.cat([x[:300], x[:212]]), torch.cat([y[:300], y[:212]]))]
    with pytest.raises(InputError, match="distinct=False"):
        wb.diagnose(model, twice, step_fn=token_losses)
    repeats = regroup(twice, distinct=False).repeats
    assert repeats >= 212
    report = wb.diagnose(model, twice, step_fn=token_losses, distinct=False)
    assert any(f"{repeats} of 512" in line for line in report.to_json()["limits"])
