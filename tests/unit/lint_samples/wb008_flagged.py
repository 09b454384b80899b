def log(writer, model, epoch, compute_angles, cosine, a, g):
    try:
        writer.add_scalars("alignment", compute_angles(model), epoch)
    except BaseException:  # flagged
        pass
    for layer in model:
        try:
            print(cosine(a[layer], g[layer]))
        except:  # flagged
            continue


def alignment_or_one(a, g, cosine):
    try:
        return cosine(a, g)
    except Exception:  # flagged
        return 1.0
