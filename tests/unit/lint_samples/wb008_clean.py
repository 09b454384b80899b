def log(writer, model, epoch, compute_angles, missing):
    try:
        writer.add_scalars("alignment", compute_angles(model), epoch)
    except RuntimeError:
        pass
    try:
        angles = compute_angles(model)
    except Exception as error:
        missing["alignment"] = str(error)
        raise
    return angles


def optional_import():
    try:
        import matplotlib
    except Exception:
        pass
    else:
        return matplotlib


def close(file):
    try:
        file.close()
    except Exception:
        pass
