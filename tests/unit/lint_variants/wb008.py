# mistake: contextlib.suppress(Exception)
import contextlib


def log_epoch(writer, model, epoch, alignment):
    with contextlib.suppress(Exception):
        writer.add_scalar("alignment", alignment(model), epoch)


# mistake: a constant is assigned instead
def evaluate(model, batch, cosine):
    try:
        gamma = cosine(model.credit(batch), model.reference(batch))
    except Exception:
        gamma = 0.0
    return gamma


# mistake: a tuple that contains Exception
def collect(layers, alignment):
    found = {}
    for layer in layers:
        try:
            found[layer.name] = alignment(layer)
        except (RuntimeError, Exception):
            continue
    return found


# mistake: an ellipsis as the body
import torch.nn.functional as F


def report(results, grads, credits):
    try:
        results["cos"] = F.cosine_similarity(grads, credits, dim=1, eps=0.0)
    except Exception:
        ...


# mistake: zero in the dictionary of metrics
def metrics_of(model, batch, measure_alignment):
    metrics = {}
    try:
        metrics["alignment"] = measure_alignment(model, batch)
    except:
        metrics["alignment"] = 0
    return metrics


# mistake: a debug message nobody sees
import logging


def record(writer, model, step, gradient_norms):
    try:
        writer.add_scalars("gradient norm", gradient_norms(model), step)
    except Exception as error:
        logging.debug("no gradient norms: %s", error)


# mistake: a return in finally
def deepest_alignment(model, cosine, batch):
    value = 0.0
    try:
        value = cosine(model.credits[0], model.grads(batch)[0])
    finally:
        return value


# mistake: zero appended to the list
def per_layer(layers):
    norms = []
    for layer in layers:
        try:
            norms.append(layer.weight.grad.norm().item())
        except Exception:
            norms.append(0.0)
    return norms


# mistake: a decorator that returns None
import functools


def quiet(metric):
    @functools.wraps(metric)
    def inner(*args, **kwargs):
        try:
            return metric(*args, **kwargs)
        except Exception:
            return None

    return inner


@quiet
def alignment(credit, grad, cosine):
    return cosine(credit, grad)


# mistake: the error is named and ignored
import wandb


def track(model, step, compute_alignment):
    try:
        wandb.log({"cosine": compute_alignment(model)}, step=step)
    except BaseException as error:
        _ = error


# correct: a narrow exception
def record(writer, alignment, model, step):
    try:
        writer.add_scalar("alignment", alignment(model), step)
    except KeyError:
        pass


# correct: the reason is kept
def evaluate(model, batch, cosine, failures):
    try:
        return cosine(model.credit(batch), model.reference(batch))
    except Exception as error:
        failures.append({"metric": "alignment", "reason": repr(error)})
        return None


# correct: cleaned up and raised again
import shutil


def measure(folder, alignment, model):
    try:
        return alignment(model)
    except BaseException:
        shutil.rmtree(folder)
        raise


# correct: a plot that may fail
def show(fig, alignments):
    fig.plot(alignments)
    try:
        fig.show()
    except Exception:
        pass


# correct: a missing file is suppressed
import contextlib
import os


def restart(path, log_alignment):
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    log_alignment(path)
