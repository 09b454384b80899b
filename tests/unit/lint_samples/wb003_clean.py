import torch
from torch.cuda.amp import GradScaler, autocast


def train(model, loader, loss_fn, optimiser):
    """With a loss scale, and the norm is taken after unscaling."""
    scaler = GradScaler()
    for x, y in loader:
        with autocast():
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimiser)
        print(sum(p.grad.norm() for p in model.parameters()))
        scaler.step(optimiser)


def brain_floats(model, x, y, loss_fn):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss_fn(model(x), y).backward()
    return [p.grad.norm() for p in model.parameters()]


def switched_off(model, x, y, loss_fn):
    with torch.autocast("cuda", enabled=False):
        loss_fn(model(x), y).backward()
    return [p.grad.norm() for p in model.parameters()]


def inference(model, x):
    with torch.autocast("cuda", dtype=torch.float16):
        return model(x).norm()
