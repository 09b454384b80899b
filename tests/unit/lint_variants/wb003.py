# mistake: backward after the block, norms in another function
import torch


def grad_norms(model):
    return {n: p.grad.norm().item() for n, p in model.named_parameters()}


def probe(model, x, y, criterion):
    with torch.autocast(device_type="cuda", dtype=torch.float16):
        loss = criterion(model(x), y)
    loss.backward()
    return grad_norms(model)


# mistake: autocast as a decorator
import torch
from torch.amp import autocast


@autocast("cuda", dtype=torch.float16)
def hidden_gradients(model, x, y, criterion):
    h, logits = model(x)
    return [g.norm(dim=-1) for g in torch.autograd.grad(criterion(logits, y), h)]


# mistake: the model is cast with to(torch.float16)
import torch


def layer_gradients(net, x, y, loss_fn):
    net = net.to(torch.float16)
    loss = loss_fn(net(x.to(torch.float16)), y)
    grads = torch.autograd.grad(loss, net.parameters())
    return [torch.linalg.vector_norm(g) for g in grads]


# mistake: the context is made before the with statement
import torch


def measure(model, batch, cosine, credits, loss_fn):
    amp = torch.amp.autocast("cuda", dtype=torch.float16)
    with amp:
        loss = loss_fn(model(batch[0]), batch[1])
    grads = torch.autograd.grad(loss, model.hidden)
    return [cosine(g, c) for g, c in zip(grads, credits)]


# mistake: the type is a constant of the file
import torch

AMP_DTYPE = torch.float16


def reference(model, x, y, criterion):
    with torch.autocast("cuda", dtype=AMP_DTYPE):
        out = model(x)
        loss = criterion(out, y)
    grads = torch.autograd.grad(loss, list(model.parameters()))
    return torch.stack([g.norm() for g in grads])


# mistake: float16 is the default type of the program
import torch

torch.set_default_dtype(torch.float16)


def norms(model, loss):
    loss.backward()
    return [p.grad.norm() for p in model.parameters()]


# mistake: gradients stored as numpy float16
import numpy as np


def save_grads(model):
    stored = {n: p.grad.cpu().numpy().astype(np.float16) for n, p in model.named_parameters()}
    return {n: np.linalg.norm(g) for n, g in stored.items()}


# mistake: jax in float16
import jax
import jax.numpy as jnp


def reference(loss_fn, params, batch):
    params = jax.tree_util.tree_map(lambda p: p.astype(jnp.float16), params)
    grads = jax.grad(loss_fn)(params, batch)
    return jax.tree_util.tree_map(jnp.linalg.norm, grads)


# mistake: a gradient cast by type()
import torch


def flat_gradient(model):
    grads = [p.grad.type(torch.float16).flatten() for p in model.parameters()]
    return torch.cat(grads).norm()


# mistake: accelerate in fp16
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="fp16")


def measure(model, loader, loss_fn):
    model, loader = accelerator.prepare(model, loader)
    for x, y in loader:
        accelerator.backward(loss_fn(model(x), y))
        yield [p.grad.norm().item() for p in model.parameters()]


# correct: bfloat16 has float32's range
import torch


def probe(model, x, y, criterion):
    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        loss = criterion(model(x), y)
    loss.backward()
    return [p.grad.norm() for p in model.parameters()]


# correct: the accuracy in half precision, the gradient in float32
import torch


def evaluate(model, x, y, criterion):
    model.eval()
    with torch.autocast("cuda", dtype=torch.float16):
        accuracy = (model(x).argmax(-1) == y).float().mean()
    loss = criterion(model(x), y)
    grads = torch.autograd.grad(loss, list(model.parameters()))
    return accuracy, [g.norm() for g in grads]


# correct: scaled and unscaled before the norm is taken
import torch


def step(model, x, y, criterion, optimiser, scaler):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimiser)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimiser)
    return norm


# correct: activations stored in half precision, no gradient
import torch


def store(hidden, path):
    torch.save([h.half().cpu() for h in hidden], path)
    return [h.float().norm(dim=-1).mean() for h in hidden]


# correct: gradients cast up to float64
import torch


def reference(model, x, y, criterion):
    model = model.double()
    loss = criterion(model(x.double()), y)
    return [g.norm() for g in torch.autograd.grad(loss, list(model.parameters()))]
