from torchvision import datasets
from torchvision.datasets import ImageFolder


class Data:
    def __init__(self, root, transform):
        self.train_set = datasets.MNIST(root, train=True, transform=transform)
        self.val_set = datasets.MNIST(root, train=False, transform=transform)  # flagged
        self.test_set = datasets.MNIST(root, train=False, transform=transform)


def folders(root, test_loader):
    validation = ImageFolder(root + "/val")  # flagged
    test = ImageFolder(root + "/val")
    val_loader = test_loader  # flagged
    return validation, test, val_loader
