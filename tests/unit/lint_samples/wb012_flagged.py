import torch
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = True  # flagged
torch.backends.cudnn.allow_tf32 = True  # flagged
torch.set_float32_matmul_precision("high")  # flagged


def alignment(credits, grads):
    return F.cosine_similarity(credits, grads, eps=0.0)
