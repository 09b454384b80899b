# mistake: two loaders of the test set
from torch.utils.data import DataLoader
from torchvision.datasets import CIFAR10


def loaders(root, transform):
    train = CIFAR10(root, train=True, transform=transform)
    test = CIFAR10(root, train=False, transform=transform)
    train_loader = DataLoader(train, 128, shuffle=True)
    val_loader = DataLoader(test, 256)
    test_loader = DataLoader(test, 256)
    return train_loader, val_loader, test_loader


# mistake: a chained assignment
from torchvision.datasets import MNIST

train_set = MNIST("data", train=True)
val_set = test_set = MNIST("data", train=False)


# mistake: arrays by tuple assignment
def arrays(x_train, y_train, x_test, y_test):
    x_val, y_val = x_test, y_test
    return x_train, y_train, x_val, y_val, x_test, y_test


# mistake: a Hugging Face split loaded twice
from datasets import load_dataset


def splits():
    train = load_dataset("cifar10", split="train")
    validation = load_dataset("cifar10", split="test")
    test = load_dataset("cifar10", split="test")
    return train, validation, test


# mistake: keys of a dictionary
from torch.utils.data import DataLoader


def loaders(train_set, test_set):
    return {"train": DataLoader(train_set), "val": DataLoader(test_set), "test": DataLoader(test_set)}


# mistake: a Lightning data module
import lightning as L


class Data(L.LightningDataModule):
    def test_dataloader(self):
        return self.loader(self.test_set)

    def val_dataloader(self):
        return self.test_dataloader()


# mistake: validation_data of Keras
def fit(model, x_train, y_train, x_test, y_test):
    model.fit(x_train, y_train, epochs=10, validation_data=(x_test, y_test))
    return model.evaluate(x_test, y_test)


# mistake: the test loader passed for validation
def run(trainer, model, train_loader, test_loader):
    trainer.fit(model, train_dataloaders=train_loader, val_dataloaders=test_loader)
    return trainer.test(model, test_loader)


# mistake: one key of a dataset read twice
def splits(data):
    train, dev, test = data["train"], data["test"], data["test"]
    return train, dev, test


# mistake: attributes, the second made from the first
class Experiment:
    def __init__(self, test_data, batch_size, make_loader):
        self.test_data = test_data
        self.valid_data = self.test_data
        self.valid_loader = make_loader(self.valid_data, batch_size)


# correct: a held-out part of the training set
from torch.utils.data import DataLoader, random_split


def loaders(train, test):
    train, val = random_split(train, [0.9, 0.1])
    return DataLoader(train, 128), DataLoader(val, 256), DataLoader(test, 256)


# correct: disjoint halves of the test data
from torch.utils.data import Subset


def halves(full_test):
    val_set = Subset(full_test, range(5000))
    test_set = Subset(full_test, range(5000, 10000))
    return val_set, test_set


# correct: both numbers start at zero
def start():
    val_acc = test_acc = 0.0
    val_loss, test_loss = [], []
    return val_acc, test_acc, val_loss, test_loss


# correct: the same transform for both
from torchvision import transforms


def transforms_of(mean, std):
    test_transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean, std)])
    val_transform = test_transform
    return val_transform, test_transform


# correct: three splits of a Hugging Face dataset
from datasets import load_dataset


def splits():
    return {
        "train": load_dataset("mnist", split="train[:90%]"),
        "val": load_dataset("mnist", split="train[90%:]"),
        "test": load_dataset("mnist", split="test"),
    }
