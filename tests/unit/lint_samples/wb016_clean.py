def compare(model, loader, test_loader, reference, credit, cosine):
    x, y = next(iter(loader))
    held_out = next(iter(test_loader))
    return cosine(credit(model, x, y), reference(model, x, y)), held_out


def many(model, loader, reference, credit, cosine):
    batches = iter(loader)
    for _ in range(8):
        x, y = next(batches)
        yield cosine(credit(model, x, y), reference(model, x, y))


def peek(loader):
    return next(iter(loader))[0].shape, next(iter(loader))[1].shape
