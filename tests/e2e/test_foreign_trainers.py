"""The examples under transformers' Trainer, in Lightning, and with converted layers: one command gives the table, pages
and cards; their credits by hand; kills; and the lines they add."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from example_program import EXAMPLES, added_lines, check_kills, load_example, run_program, stored_model
from walkback.core.measurements import Measurements
from walkback.runs import store

BERT, LIGHTNING, CONVERTED = "bert-local-losses", "lightning-learned-feedback", "converted-layers"
NEEDS = {BERT: ("transformers", "accelerate"), LIGHTNING: ("lightning",), CONVERTED: ()}
METHODS = {BERT: ("local", "bp"), LIGHTNING: ("dkp", "bp"), CONVERTED: ("fa", "usf", "bp")}
FROZEN = {BERT: "bert.encoder.", LIGHTNING: "blocks.", CONVERTED: "blocks."}
EVERY_EPOCH = """
import sys
sys.path.insert(0, {folder!r})
import after
import walkback as wb
print(wb.audit(after.train, methods=["fa", "usf", "bp"], seeds=after.SEEDS, build=after.build, out="audit",
               eval_batches=[after.images(after.TEST, seed=3)], resume=True, checkpoint_seconds=0.0, device="cpu"))
"""
"""The audit of the example with its own epochs, with a checkpoint after each."""


@pytest.mark.parametrize("name", NEEDS)
def test_it_is_the_researchers_code_and_at_most_fifteen_lines(name):
    assert 0 < len(added_lines(EXAMPLES / name)) <= 15


@pytest.fixture(scope="module", params=list(NEEDS))
def name(request):
    for module in NEEDS[request.param]:
        pytest.importorskip(module)
    return request.param


@pytest.fixture(scope="module")
def example(name):
    return load_example(EXAMPLES / name)


@pytest.fixture(scope="module")
def audited(name, tmp_path_factory):
    folder = tmp_path_factory.mktemp("example")
    (folder / "printed.txt").write_text(run_program(folder, EXAMPLES / name / "after.py"))
    return folder / "audit"


def untrained(name, example, method):
    return (example.LearnedFeedback if name == LIGHTNING else example.build)(method)


def bert_gradients(example, model, plain):
    """Each head's loss at its own state, the classifier's at the last one; and the classifier's through all layers."""
    test = example.sentences(example.TEST, seed=3)

    def states(net):
        found = [net.bert.embeddings(test["input_ids"])]
        for layer in net.bert.encoder.layer:
            output = layer(found[-1])
            found.append(output if isinstance(output, torch.Tensor) else output[0])
        loss = F.cross_entropy(net.classifier(net.bert.pooler(found[-1])), test["labels"], reduction="sum")
        return found, loss

    own, _ = states(model)
    credits = []
    for head, state in zip(model.heads, own, strict=False):
        loss = F.cross_entropy(state.mean(1) @ head, test["labels"], reduction="sum")
        credits += torch.autograd.grad(loss, state, retain_graph=True)
    found, loss = states(plain)
    true = torch.autograd.grad(loss, found)
    # Its classifier reads the first token, so that is where the credit is measured.
    return [each[:, 0] for each in (*credits, true[-1])], [each[:, 0] for each in true]


def feedback_gradients(example, model, plain):
    x, y = example.samples(example.TEST, seed=3)
    states = plain.states(x.double())
    logits = plain.head(states[-1])
    true = torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), states)
    error = (logits.softmax(1) - F.one_hot(y, logits.shape[1])).detach()
    return [error @ matrix for matrix in model.feedback], true


def converted_gradients(example, model, plain):
    x, y = example.images(example.TEST, seed=3)

    def gradients(net):
        states = [net.stem(x.double())]
        for block in net.blocks:
            states.append(block(states[-1]))
        logits = net.head(states[-1].mean((2, 3)))
        return torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), states)

    return gradients(model), gradients(plain)


GRADIENTS = {BERT: bert_gradients, LIGHTNING: feedback_gradients, CONVERTED: converted_gradients}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Warnings of transformers and of Lightning.
class TestAudit:
    def test_every_method_has_its_claims_over_three_seeds_and_pages(self, name, audited):
        table = json.loads((audited / "audit.json").read_text())
        assert [row["method"] for row in table["rows"]] == list(METHODS[name])
        for form in ("html", "md", "tex"):
            assert (audited / f"audit.{form}").is_file()
        for method in METHODS[name]:
            for seed in (0, 1, 2):
                card = json.loads((audited / f"{method}-s{seed}" / "report.json").read_text())
                assert card["claim"]["seeds"] == [0, 1, 2]
                assert len(card["claim"]["frozen"]["method_shell"]) == len(card["claim"]["bp_acc"]) == 3
                assert card["claims"]["depth"]["outcome"] != "not_made"
                assert (card["claims"]["alignment"]["outcome"] == "not_made") == (method == "bp")
                assert not [item for item in card["checklist"] if "[TODO]" in item["answer"]]

    def test_credits_are_those_by_hand(self, name, example, audited):
        for method in METHODS[name][:-1]:
            model = stored_model(untrained(name, example, method), audited / f"{method}-s1")
            plain = untrained(name, example, "bp").double().eval()
            # A converted layer holds the plain one as `layer`.
            weights = {
                key.replace(".layer.", ".") if name == CONVERTED else key: w for key, w in model.state_dict().items()
            }
            plain.load_state_dict({key: weights[key] for key in plain.state_dict()}, strict=name != BERT)
            credits, true = GRADIENTS[name](example, model, plain)
            by_hand = [
                F.cosine_similarity(a.flatten(1), g.flatten(1), eps=1e-300) for a, g in zip(credits, true, strict=True)
            ]
            arrays = Measurements.load(audited / f"{method}-s1" / "measurements.npz").arrays
            assert np.allclose(arrays["credit_cos"], torch.stack(by_hand).detach().numpy(), atol=1e-4)
            assert min(float(each.mean()) for each in by_hand) < 0.99

    def test_frozen_blocks_have_their_first_bits_and_the_rest_is_trained(self, name, example, audited):
        for method in METHODS[name]:
            torch.manual_seed(2)
            first = untrained(name, example, method).state_dict()
            last = store.open_run(audited / f"{method}-frozen-s2").params()
            changed = {key for key, value in first.items() if not np.array_equal(value.numpy(), last[key])}
            assert changed
            assert not [
                key for key in changed if key.startswith(FROZEN[name]) and "running" not in key and "num_" not in key
            ]

    def test_its_cards_are_confirmed(self, name, audited):
        path = f"{METHODS[name][0]}-s1"
        assert "VERIFY: confirmed" in run_program(audited, "-m", "walkback", "verify", path, path)

    def test_killed_at_three_moments_it_goes_on_to_the_same_bits_and_then_trains_nothing(self, name, audited, tmp_path):
        program = EXAMPLES / name / "after.py"
        if name == CONVERTED:
            program = tmp_path / "driver.py"
            program.write_text(EVERY_EPOCH.format(folder=str(EXAMPLES / name)))
        check_kills(tmp_path, program, audited, (audited.parent / "printed.txt").read_text(), seed=len(name))
