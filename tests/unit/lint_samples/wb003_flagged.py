import torch
from torch.cuda.amp import autocast


def norms(model, x, y, loss_fn):
    with torch.autocast("cuda", dtype=torch.float16):  # flagged
        loss = loss_fn(model(x), y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        return [g.norm().item() for g in grads]


def old_style(model, x, y, loss_fn):
    with autocast():  # flagged
        loss_fn(model(x), y).backward()
    return [torch.linalg.vector_norm(p.grad) for p in model.parameters()]


def default_on_cuda(model, x, y, loss_fn, cosine, credits):
    with torch.amp.autocast("cuda"):  # flagged
        loss = loss_fn(model(x), y)
    g = torch.autograd.grad(loss, x)[0]
    return cosine(g, credits)


def whole_model(model, x, y, loss_fn):
    model = model.half()  # flagged
    loss_fn(model(x.half()), y).backward()
    return max(p.grad.norm() for p in model.parameters())


def stored(p):
    return p.grad.to(torch.half).norm()  # flagged
