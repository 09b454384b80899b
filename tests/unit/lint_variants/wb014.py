# mistake: max with a key function
def best_run(history):
    best = max(history, key=lambda r: r["test_acc"])
    return best["epoch"], best["test_acc"]


# mistake: np.max of the curve
import numpy as np


def final_number(test_accs):
    return np.max(test_accs)


# mistake: pandas idxmax
import pandas as pd


def pick(rows):
    df = pd.DataFrame(rows)
    return df.loc[df["test_accuracy"].idxmax()]


# mistake: sorted by test accuracy, the last taken
def top_seed(runs):
    return sorted(runs, key=lambda run: run.test_acc)[-1]


# mistake: the state with the lowest test loss is kept
import copy


def fit(model, epochs, train_epoch, evaluate, test_loader):
    best_loss, best_state = float("inf"), None
    for _ in range(epochs):
        train_epoch(model)
        test_loss = evaluate(model, test_loader)
        if test_loss < best_loss:
            best_loss, best_state = test_loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(best_state)


# mistake: a checkpoint callback monitors the test set
from lightning.pytorch.callbacks import ModelCheckpoint

checkpoint = ModelCheckpoint(monitor="test_acc", mode="max", save_top_k=1)

# mistake: a walrus in the condition
import torch


def run(model, loader_test, accuracy, epochs):
    best = 0.0
    for _ in range(epochs):
        if (acc := accuracy(model, loader_test)) > best:
            best = acc
            torch.save(model.state_dict(), "best.pt")
    return best


# mistake: a flag is_best
def epoch_end(state, model, evaluate, test_loader, save):
    test_acc = evaluate(model, test_loader)
    is_best = test_acc > state.best_acc
    if is_best:
        state.best_acc = test_acc
        save(model)


# mistake: the index of the maximum
def best_epoch(test_accuracies):
    return test_accuracies.index(max(test_accuracies))


# mistake: the largest of the seeds by heapq
import heapq
from operator import attrgetter


def top_three(runs):
    return heapq.nlargest(3, runs, key=attrgetter("test_acc"))


# correct: chosen by validation, the test result reported
def best_run(history):
    best = max(history, key=lambda r: r["val_acc"])
    return best["epoch"], best["test_acc"]


# correct: test accuracy at the best validation epoch
import numpy as np


def final_number(val_accs, test_accs):
    return test_accs[np.argmax(val_accs)]


# correct: a threshold in a test
def check(test_acc, test_accs):
    assert test_acc > 0.5
    assert min(test_accs) > 0.4
    if test_acc > 0.99:
        print("suspiciously good")


# correct: limits of a plot and a range
import matplotlib.pyplot as plt


def plot(test_accs):
    plt.plot(test_accs)
    plt.ylim(min(test_accs) - 0.01, max(test_accs) + 0.01)
    return f"{min(test_accs):.3f} to {max(test_accs):.3f}"


# correct: the class with the highest test logit
def predict(model, test_x):
    test_logits = model(test_x)
    return test_logits.argmax(1), test_logits.max(1).values
