from torch.utils.data import random_split
from torchvision import datasets
from torchvision.datasets import ImageFolder


class Data:
    def __init__(self, root, transform):
        whole = datasets.MNIST(root, train=True, transform=transform)
        self.train_set, self.val_set = random_split(whole, [50_000, 10_000])
        self.test_set = datasets.MNIST(root, train=False, transform=transform)


def folders(root, draw, test_transform, val_acc):
    val = ImageFolder(root + "/val")
    test = ImageFolder(root + "/test")
    val_samples = draw(100)
    test_samples = draw(100)
    val_transform = test_transform
    return val, test, val_samples, test_samples, val_transform, val_acc
