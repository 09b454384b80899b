# mistake: strict by position
import torch
import torch.nn.functional as F


def alignment(model, path, grads):
    model.load_state_dict(torch.load(path), False)
    return F.cosine_similarity(grads @ model.feedback, grads, eps=0.0)


# mistake: the result is bound and never read
import torch
import torch.nn.functional as F


def alignment(model, path, error, grads):
    missing, unexpected = model.load_state_dict(torch.load(path), strict=False)
    return F.cosine_similarity(error @ model.feedback, grads, eps=0.0)


# mistake: a Lightning checkpoint
import torch.nn.functional as F

from nets import DFANet


def alignment(path, error, grads):
    net = DFANet.load_from_checkpoint(path, strict=False)
    return F.cosine_similarity(error @ net.feedback, grads, eps=0.0)


# mistake: strict in a dictionary of options
import torch
import torch.nn.functional as F

OPTIONS = {"strict": False}


def alignment(model, path, error, grads):
    model.load_state_dict(torch.load(path), **OPTIONS)
    return F.cosine_similarity(error @ model.feedback, grads, eps=0.0)


# mistake: strict is a constant of the file
import torch
import torch.nn.functional as F

STRICT = False


def load(net, path):
    net.load_state_dict(torch.load(path)["state"], strict=STRICT)
    return net


def alignment(net, error, grads):
    return F.cosine_similarity(error @ net.B_feedback, grads, eps=0.0)


# mistake: safetensors' load_model
import torch.nn.functional as F
from safetensors.torch import load_model


def alignment(model, path, error, grads):
    load_model(model, path, strict=False)
    return F.cosine_similarity(error @ model.feedback, grads, eps=0.0)


# mistake: only the keys that exist are updated
import torch
import torch.nn.functional as F


def alignment(model, path, error, grads):
    state = torch.load(path)
    own = model.state_dict()
    own.update({k: v for k, v in state.items() if k in own})
    model.load_state_dict(own)
    return F.cosine_similarity(error @ model.feedback, grads, eps=0.0)


# mistake: in a class, the result printed only
import torch
import torch.nn.functional as F


class Probe:
    def __init__(self, net, checkpoint):
        self.net = net
        print(self.net.load_state_dict(torch.load(checkpoint)["model"], strict=False))

    def alignment(self, error, grads):
        return F.cosine_similarity(error @ self.net.feedback, grads, eps=0.0)


# mistake: called through nn.Module
import torch
from torch import nn
from torch.nn import functional as F


def restore(net, path):
    nn.Module.load_state_dict(net, torch.load(path), strict=False)


def alignment(net, error, grads):
    return F.cosine_similarity(error @ net.feedback, grads, eps=0.0)


# mistake: parameters copied one by one where they exist
import torch
import torch.nn.functional as F


def alignment(model, path, error, grads):
    saved = torch.load(path)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name in saved:
                p.copy_(saved[name])
    return F.cosine_similarity(error @ model.feedback, grads, eps=0.0)


# correct: strict is the default
import torch
import torch.nn.functional as F


def alignment(model, path, error, grads):
    model.load_state_dict(torch.load(path, weights_only=True))
    return F.cosine_similarity(error @ model.feedback, grads, eps=0.0)


# correct: what is missing is checked
import torch
import torch.nn.functional as F


def alignment(model, path, error, grads):
    missing, _ = model.load_state_dict(torch.load(path), strict=False)
    if missing:
        raise ValueError(f"The checkpoint lacks {missing}.")
    return F.cosine_similarity(error @ model.feedback, grads, eps=0.0)


# correct: asserted by attribute
import torch
import torch.nn.functional as F


def alignment(model, path, error, grads):
    found = model.load_state_dict(torch.load(path), strict=False)
    assert not found.missing_keys, found.missing_keys
    return F.cosine_similarity(error @ model.feedback, grads, eps=0.0)


# correct: fine-tuning from a backbone
import torch


def pretrained(model, path):
    state = torch.load(path)
    state.pop("head.weight")
    model.load_state_dict(state, strict=False)
    return model


# correct: strict by keyword
import torch
import torch.nn.functional as F


def alignment(model, path, error, grads):
    model.load_state_dict(torch.load(path), strict=True)
    for a, b in zip(grads, error, strict=False):
        print(a.shape, b.shape)
    return F.cosine_similarity(error @ model.feedback, grads, eps=0.0)
