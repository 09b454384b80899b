# mistake: norms of gradients over a loader
import torch


def compute_gradient_norms(model, loader, criterion):
    norms = []
    for x, y in loader:
        model.zero_grad()
        criterion(model(x), y).backward()
        norms.append([p.grad.norm().item() for p in model.parameters()])
    return torch.tensor(norms).mean(0)


# mistake: train(True) before measuring
import torch


def reference_gradient(net, x, y, loss_fn):
    net.train(True)
    return torch.autograd.grad(loss_fn(net(x), y), net.hidden)


# mistake: eval comes after the gradient
import torch


def measure_alignment(model, x, y, loss_fn, credit, cosine):
    grads = torch.autograd.grad(loss_fn(model(x), y), list(model.parameters()))
    model.eval()
    return [cosine(g, c) for g, c in zip(grads, credit(model, x, y))]


# mistake: another model is put into eval mode
import torch


def alignment_with_teacher(student, teacher, x, loss_fn, cosine):
    teacher.eval()
    loss = loss_fn(student(x), teacher(x))
    grads = torch.autograd.grad(loss, list(student.parameters()))
    return [cosine(g, d) for g, d in zip(grads, student.deltas)]


# mistake: the gradient is taken in a helper
import torch


def bp_grads(model, x, y, loss_fn):
    loss = loss_fn(model(x), y)
    return torch.autograd.grad(loss, list(model.parameters()))


def measure_alignment(model, x, y, loss_fn, updates, cosine):
    return [cosine(g, u) for g, u in zip(bp_grads(model, x, y, loss_fn), updates)]


# mistake: a method that uses self.net
class AlignmentProbe:
    def __init__(self, net, loss_fn, cosine):
        self.net, self.loss_fn, self.cosine = net, loss_fn, cosine

    def alignment(self, batch):
        x, y = batch
        self.net.zero_grad()
        self.loss_fn(self.net(x), y).backward()
        return {n: self.cosine(p.grad, self.net.fa[n]) for n, p in self.net.named_parameters()}


# mistake: functional_call with torch.func.grad
import torch
from torch.func import functional_call, grad


def measure_gradient(model, x, y, criterion):
    params = dict(model.named_parameters())

    def loss(p):
        return criterion(functional_call(model, p, (x,)), y)

    return {k: g.norm() for k, g in grad(loss)(params).items()}


# mistake: in a Lightning hook of training
import lightning as L


class Net(L.LightningModule):
    def training_step(self, batch, index):
        return self.loss(self(batch[0]), batch[1])

    def on_after_backward(self):
        for name, p in self.named_parameters():
            self.log(f"alignment/{name}", self.cosine(p.grad, self.credits[name]))


# mistake: chained requires_grad_().train()
import torch


def alignment_of(model, x, y, loss_fn, cosine, credits):
    model.requires_grad_(True).train()
    grads = torch.autograd.grad(loss_fn(model(x), y), list(model.parameters()))
    return [cosine(g, c) for g, c in zip(grads, credits)]


# mistake: gradients of hidden states kept with retain_grad
def hidden_gradient_norms(network, x, y, criterion):
    states = []
    h = x
    for block in network.blocks:
        h = block(h)
        h.retain_grad()
        states.append(h)
    criterion(network.head(h), y).backward()
    return [h.grad.norm(dim=-1).mean() for h in states]


# correct: eval first, the mode restored
import torch


def measure_alignment(model, x, y, loss_fn, credit, cosine):
    training = model.training
    model.eval()
    try:
        grads = torch.autograd.grad(loss_fn(model(x), y), list(model.parameters()))
    finally:
        model.train(training)
    return [cosine(g, c) for g, c in zip(grads, credit)]


# correct: train(False)
import torch


def reference_gradient(net, x, y, loss_fn):
    net.train(False)
    return torch.autograd.grad(loss_fn(net(x), y), net.hidden)


# correct: a context manager sets the mode
import contextlib

import torch


@contextlib.contextmanager
def evaluating(model):
    mode = model.training
    model.eval()
    yield model
    model.train(mode)


def gradient_norms(model, x, y, loss_fn):
    with evaluating(model):
        grads = torch.autograd.grad(loss_fn(model(x), y), list(model.parameters()))
    return [g.norm() for g in grads]


# correct: a training step that clips its gradients
import torch


def train_epoch(model, loader, loss_fn, optimiser):
    model.train()
    for x, y in loader:
        optimiser.zero_grad()
        loss_fn(model(x), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()


# correct: the caller puts the model into eval mode
import torch


def alignment(model, x, y, loss_fn, credits, cosine):
    grads = torch.autograd.grad(loss_fn(model(x), y), list(model.parameters()))
    return [cosine(g, c) for g, c in zip(grads, credits)]


def main(model, x, y, loss_fn, credits, cosine):
    model.eval()
    print(alignment(model, x, y, loss_fn, credits, cosine))
