import matplotlib.pyplot as plt
import numpy as np
import torch


def fit(model, epochs, evaluate, val_loader, test_loader, test_accs):
    best_acc = 0.0
    for _ in range(epochs):
        val_acc = evaluate(model, val_loader)
        if val_acc > best_acc:
            best_acc = val_acc
            torch.save(model.state_dict(), "best.pt")
        acc = evaluate(model, val_loader)
        best_acc = max(best_acc, acc)
    test_acc = evaluate(model, test_loader)
    if test_acc > 0.9:
        print("good")
    plt.ylim(0, max(test_accs))
    spread = max(test_accs) - min(test_accs)
    return test_acc, spread, np.argmax(model.best_guess)
