"""A small BERT whose layers are trained by losses of their own, each with a detached input, under transformers' Trainer."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import walkback as wb

SIZES = {
    "tiny": {"width": 16, "train": 512, "epochs": 2},
    "small": {"width": 64, "train": 8192, "epochs": 10},
}
SIZE = SIZES[os.environ.get("SIZE", "small")]
LAYERS, LENGTH, CLASSES, WORDS, TEST, SEEDS = 3, 12, 4, 16, 1024, [0, 1, 2]
START, KEY = WORDS, WORDS + 1


def sentences(count, seed):
    """Random words after a start; the class is that of the word after the key."""
    draws = torch.Generator().manual_seed(seed)
    ids = torch.randint(WORDS, (count, LENGTH), generator=draws)
    places = torch.randint(1, LENGTH - 1, (count,), generator=draws)
    ids[:, 0] = START
    ids[torch.arange(count), places] = KEY
    return {"input_ids": ids, "labels": ids[torch.arange(count), places + 1] % CLASSES}


class Bert(BertForSequenceClassification):
    """With `local`, each layer's input is detached, and each state below the last has a head that learns the class."""

    def __init__(self, local=False):
        super().__init__(
            BertConfig(
                vocab_size=WORDS + 2, hidden_size=SIZE["width"], num_hidden_layers=LAYERS, num_attention_heads=2,
                intermediate_size=4 * SIZE["width"], max_position_embeddings=LENGTH, num_labels=CLASSES,
                hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            )
        )  # fmt: skip
        self.heads = nn.ParameterList(0.1 * torch.randn(SIZE["width"], CLASSES) for _ in range(LAYERS if local else 0))
        for layer in self.bert.encoder.layer if local else []:
            layer.register_forward_pre_hook(lambda _, inputs: (inputs[0].detach(), *inputs[1:]))


def local_losses(states, heads, labels):
    """The loss of each head, which reads the mean over the words of its state."""
    return [F.cross_entropy(h.mean(1) @ head, labels) for h, head in zip(states, heads, strict=False)]


def loss_of(model, inputs):
    output = model(**inputs, output_hidden_states=True)
    states = [model.bert.embeddings(inputs["input_ids"]), *output.hidden_states[1:]]
    return output.loss + sum(local_losses(states, model.heads, inputs["labels"]))


class LocalTrainer(Trainer):
    def compute_loss(self, model, inputs, **_):
        return loss_of(model, inputs)


@torch.no_grad()
def correct(model):
    model.eval()
    test = sentences(TEST, seed=3)
    return model.cpu()(**test).logits.argmax(1) == test["labels"]


def build(method):
    return Bert(local=method == "local")


def credit(seen, heads):
    states = [h.requires_grad_() for h in seen.states[:-1]]
    losses = local_losses(states, [head.to(states[0]) for head in heads], seen.y)
    return [*torch.autograd.grad(sum(losses) * len(seen.y), states), seen.reference[-1]]


def update(model, batch):
    loss_of(model, {**batch[0], "labels": batch[1]}).backward()


def train(job):
    model = build(job.method)
    job.freeze(model.bert.encoder)
    texts = sentences(SIZE["train"], seed=2)
    rows = [{name: each[index] for name, each in texts.items()} for index in range(SIZE["train"])]
    settings = TrainingArguments(
        output_dir="trainer", num_train_epochs=SIZE["epochs"], per_device_train_batch_size=32, learning_rate=1e-3,
        seed=job.seed, save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True,
        dataloader_pin_memory=False,
    )  # fmt: skip
    LocalTrainer(model, settings, train_dataset=rows).train()
    return wb.Trained(model, correct=correct(model), feedback=list(model.heads))


if __name__ == "__main__":
    print(wb.audit(train, methods=["local", "bp"], seeds=SEEDS, eval_batches=[sentences(TEST, seed=3)], build=build,
                   credit=credit, update=update, exact=[LAYERS], out="audit", resume=True,
                   describe={"data": "the word after the key", "recipe": f"AdamW 1e-3, {SIZE['epochs']} epochs"}))
