import numpy as np
import torch


def fit(model, epochs, evaluate, test_loader, results):
    best_acc = best = 0.0
    history = []
    for _ in range(epochs):
        test_acc = evaluate(model, test_loader)
        if test_acc > best_acc:  # flagged
            best_acc = test_acc
            torch.save(model.state_dict(), "best.pt")
        acc = evaluate(model, test_loader)
        if best < acc:  # flagged
            best = acc
        history.append({"test_acc": test_acc})
    best = max(best, test_acc)  # flagged
    best_seeds = np.argsort(results)[-3:]  # flagged
    return best, best_seeds


def best_epoch(test_losses):
    return int(np.argmin(test_losses))  # flagged
