# mistake: one iterator, advanced twice
def compare(model, loader, reference, credit, cosine):
    batches = iter(loader)
    x, y = next(batches)
    g = reference(model, x, y)
    x, y = next(batches)
    a = credit(model, x, y)
    return cosine(a, g)


# mistake: the batches are drawn inside the calls
def compare(model, loader, bp_grads, dfa_credit, cosine):
    g = bp_grads(model, *next(iter(loader)))
    a = dfa_credit(model, *next(iter(loader)))
    return cosine(g, a)


# mistake: a loader zipped with itself
def alignment(model, loader, reference, credit, cosine):
    found = []
    for (x1, y1), (x2, y2) in zip(loader, loader):
        found.append(cosine(reference(model, x1, y1), credit(model, x2, y2)))
    return found


# mistake: two loops over a shuffled loader
def alignment(model, train_loader, reference, credit, cosine):
    references = [reference(model, x, y) for x, y in train_loader]
    credits = [credit(model, x, y) for x, y in train_loader]
    return [cosine(g, a) for g, a in zip(references, credits)]


# mistake: a get_batch function called twice
import torch


def get_batch(data, size=64):
    rows = torch.randint(len(data), (size,))
    return data[rows]


def alignment(model, data, reference, credit, cosine):
    return cosine(reference(model, get_batch(data)), credit(model, get_batch(data)))


# mistake: the loader is an attribute, one method for each
class Probe:
    def bp(self):
        x, y = next(iter(self.loader))
        return self.reference(x, y)

    def fa(self):
        x, y = next(iter(self.loader))
        return self.credit(x, y)

    def alignment(self, cosine):
        return cosine(self.bp(), self.fa())


# mistake: the image is augmented twice
def alignment(model, x, y, augment, reference, credit, cosine):
    g = reference(model, augment(x), y)
    a = credit(model, augment(x), y)
    return cosine(g, a)


# mistake: two batches of islice
from itertools import islice


def compare(model, loader, reference, credit, cosine):
    first, second = islice(loader, 2)
    return cosine(reference(model, *first), credit(model, *second))


# mistake: dictionaries of a batch
def compare(model, dataloader, compute_grads, compute_credits, cosine):
    batch_bp = next(iter(dataloader))
    batch_fa = next(iter(dataloader))
    grads = compute_grads(model, batch_bp["pixels"], batch_bp["labels"])
    credits = compute_credits(model, batch_fa["pixels"], batch_fa["labels"])
    return {name: cosine(grads[name], credits[name]) for name in grads}


# mistake: the iterator's own method
def compare(model, train_iter, reference, credit, cosine):
    x, y = train_iter.__next__()
    g = reference(model, x, y)
    x, y = train_iter.__next__()
    return cosine(credit(model, x, y), g)


# correct: one batch for both
def compare(model, loader, reference, credit, cosine):
    x, y = next(iter(loader))
    return cosine(reference(model, x, y), credit(model, x, y))


# correct: a first batch to build lazy layers
def compare(model, loader, reference, credit, cosine):
    model(next(iter(loader))[0])
    x, y = next(iter(loader))
    return cosine(reference(model, x, y), credit(model, x, y))


# correct: the noise of the reference between batches
def gradient_noise(model, loader, reference, cosine):
    batches = iter(loader)
    x1, y1 = next(batches)
    x2, y2 = next(batches)
    return cosine(reference(model, x1, y1), reference(model, x2, y2))


# correct: the same on training and on test data
def compare(model, train_loader, test_loader, alignment):
    return {
        "train": alignment(model, *next(iter(train_loader))),
        "test": alignment(model, *next(iter(test_loader))),
    }


# correct: batch by batch
def alignments(model, loader, reference, credit, cosine, n):
    batches = iter(loader)
    values = []
    for _ in range(n):
        x, y = next(batches)
        values.append(cosine(reference(model, x, y), credit(model, x, y)))
    return values
