import torch
import torch.nn.functional as F


def alignment(model, file, grads):
    model.load_state_dict(torch.load(file), strict=False)  # flagged
    return F.cosine_similarity(grads @ model.feedback, grads, eps=0.0)
