import torch


def measure_gradients(model, x, y, loss_fn):
    was_training = model.training
    model.eval()
    loss = loss_fn(model(x), y)
    grads = torch.autograd.grad(loss, list(model.parameters()))
    model.train(was_training)
    return grads


def alignment(net, x):
    net.eval()
    net(x).sum().backward()
    found = x.grad
    net.train()
    return found


def evaluate(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean()


def train_with_alignment_loss(model, x, optimiser):
    model.train()
    model(x).sum().backward()
    optimiser.step()
