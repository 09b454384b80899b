import torch


def measure_gradients(model, x, y, loss_fn):  # flagged
    loss = loss_fn(model(x), y)
    return torch.autograd.grad(loss, list(model.parameters()))


def alignment(net, batch, credit, cosine):
    net.train()  # flagged
    x, y = batch
    loss = net(x).sum()
    loss.backward()
    return cosine(x.grad, credit(net, y))


class Gauge:
    def __init__(self, model):
        self.dfa_model = model

    def measure_alignment(self, x, y, loss_fn):  # flagged
        loss_fn(self.dfa_model(x), y).backward()
        return x.grad
