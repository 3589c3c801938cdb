"""Image models of the zoo, from torchvision and timm where they have them."""

from functools import partial
from typing import Sequence

import timm.models.nasnet
import timm.models.resnet
import torch
import torchvision.models.densenet
import torchvision.models.inception
import torchvision.models.mobilenetv2
import torchvision.models.vgg
from torch import nn
from torchvision.models.inception import BasicConv2d

from .sizes import CLASSES, IMAGE, INCEPTION_IMAGE, LENET_IMAGE, NASNET_IMAGE
from .spec import Published, Spec, classification_loss, images, sgd

TINY_CLASSES = 10


class Vgg(nn.Module):
    """VGG with torchvision's features and a classifier of any width."""

    def __init__(self, layers: Sequence, hidden: int, classes: int):
        super().__init__()
        self.features = torchvision.models.vgg.make_layers(layers)
        channels = next(size for size in reversed(layers) if size != "M")
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(channels * 49, hidden), nn.ReLU(), nn.Dropout(),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(),
            nn.Linear(hidden, classes),
        )  # fmt: skip

    def forward(self, image):
        return self.classifier(self.avgpool(self.features(image)).flatten(1))


class AlexNet(nn.Module):
    """The one-tower AlexNet (Krizhevsky 2014) as torchvision builds it, with widths to choose."""

    def __init__(self, widths: Sequence[int], hidden: int, classes: int):
        super().__init__()
        a, b, c, d, e = widths
        self.features = nn.Sequential(
            nn.Conv2d(3, a, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(a, b, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(b, c, 3, padding=1), nn.ReLU(),
            nn.Conv2d(c, d, 3, padding=1), nn.ReLU(),
            nn.Conv2d(d, e, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(e * 36, hidden), nn.ReLU(),
            nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, classes),
        )  # fmt: skip

    def forward(self, image):
        return self.classifier(self.avgpool(self.features(image)).flatten(1))


class LeNet5(nn.Module):
    """LeNet-5 (LeCun 1998) with plain average pooling and every map of C3 connected."""

    def __init__(self, maps: int, wide: int, hidden: int, classes: int):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, maps, 5), nn.Tanh(), nn.AvgPool2d(2),
            nn.Conv2d(maps, wide, 5), nn.Tanh(), nn.AvgPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Linear(wide * 25, hidden), nn.Tanh(),
            nn.Linear(hidden, 84), nn.Tanh(),
            nn.Linear(84, classes),
        )  # fmt: skip

    def forward(self, image):
        return self.classifier(self.features(image).flatten(1))


class ThinConv(BasicConv2d):
    """Inception's convolution with a sixteenth of the channels; the image keeps its three."""

    divisor = 16

    def __init__(self, in_channels: int, out_channels: int, **options):
        if in_channels > 3:
            in_channels //= self.divisor
        super().__init__(in_channels, out_channels // self.divisor, **options)


def inception_v3(classes: int = CLASSES) -> nn.Module:
    return torchvision.models.inception.Inception3(num_classes=classes, init_weights=False)


def inception_v3_tiny() -> nn.Module:
    """One block of each kind, thin, for 107 pixels: the auxiliary head then sees one position."""
    kinds = torchvision.models.inception
    blocks = [ThinConv] + [
        partial(kind, conv_block=ThinConv)
        for kind in (
            kinds.InceptionA, kinds.InceptionB, kinds.InceptionC,
            kinds.InceptionD, kinds.InceptionE, kinds.InceptionAux,
        )  # fmt: skip
    ]
    model = kinds.Inception3(TINY_CLASSES, init_weights=False, inception_blocks=blocks)
    for repeated in ("Mixed_5d", "Mixed_6c", "Mixed_6d", "Mixed_6e", "Mixed_7c"):
        setattr(model, repeated, nn.Identity())
    model.AuxLogits.conv1 = ThinConv(128, 768, kernel_size=1)
    model.AuxLogits.fc = nn.Linear(768 // ThinConv.divisor, TINY_CLASSES)
    model.fc = nn.Linear(2048 // ThinConv.divisor, TINY_CLASSES)
    return model


def inception_loss(model: nn.Module, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """The auxiliary head counts 0.4, as in torchvision's and TensorFlow's training."""
    logits, auxiliary = model(image)
    cross_entropy = nn.functional.cross_entropy
    return cross_entropy(logits, label) + 0.4 * cross_entropy(auxiliary, label)


class FirstInput(nn.Module):
    """Stands for a dropped NASNet cell, which has two inputs."""

    def forward(self, x, x_previous):
        return x


def nasnet(stem: int, features: int, classes: int, dropped: Sequence[int] = ()) -> nn.Module:
    model = timm.models.nasnet.NASNetALarge(classes, stem_size=stem, num_features=features)
    for cell in dropped:
        setattr(model, f"cell_{cell}", FirstInput())
    return model


def resnet(layers: Sequence[int], width: int = 64, classes: int = CLASSES) -> nn.Module:
    return timm.models.resnet.ResNet(
        timm.models.resnet.Bottleneck, layers, classes, zero_init_last=False,
        channels=tuple(width * 2**stage for stage in range(4)),
    )  # fmt: skip


def _classifier(name, factory, image, classes, optimizer, note, published=None, loss=classification_loss,
                channels=3):  # fmt: skip
    return Spec(name, factory, images(image, classes, channels), loss, optimizer, note, published)


TORCHVISION = "torchvision's documentation"
VGG16_LAYERS = torchvision.models.vgg.cfgs["D"]
VGG19_LAYERS = torchvision.models.vgg.cfgs["E"]


def specs() -> list[Spec]:
    densenet = torchvision.models.densenet.DenseNet
    mobilenet = torchvision.models.mobilenetv2.MobileNetV2
    result = []

    def add(name, full, tiny, image, tiny_image, optimizer, note, published, **options):
        classes = options.pop("classes", CLASSES)
        result.append(
            _classifier(name, full, image, classes, optimizer, note, published, **options))
        result.append(
            _classifier(f"{name}-tiny", tiny, tiny_image, TINY_CLASSES, optimizer,
                        f"{tiny_image} pixels", **options))  # fmt: skip

    def add_resnet(name, layers, tiny_layers, published):
        add(name, partial(resnet, layers), partial(resnet, tiny_layers, 4, TINY_CLASSES), IMAGE, 32,
            sgd(0.1), f"{IMAGE} pixels; bottlenecks {list(layers)}", published)  # fmt: skip

    add("vgg16", partial(Vgg, VGG16_LAYERS, 4096, CLASSES),
        partial(Vgg, [8, 8, "M", 16, "M"], 32, TINY_CLASSES), IMAGE, 32,
        sgd(0.01, 5e-4), f"{IMAGE} pixels", Published(138357544, TORCHVISION))  # fmt: skip
    add("vgg19", partial(Vgg, VGG19_LAYERS, 4096, CLASSES),
        partial(Vgg, [8, "M", 16, "M"], 32, TINY_CLASSES), IMAGE, 32,
        sgd(0.01, 5e-4), f"{IMAGE} pixels", Published(143667240, TORCHVISION))  # fmt: skip
    add_resnet("resnet50", (3, 4, 6, 3), (1, 1, 1, 1), Published(25557032, TORCHVISION))
    add_resnet("resnet101", (3, 4, 23, 3), (1, 1, 1, 2), Published(44549160, TORCHVISION))
    add_resnet("resnet152", (3, 8, 36, 3), (1, 2, 1, 1), Published(60192808, TORCHVISION))
    add_resnet("resnet200", (3, 24, 36, 3), (1, 1, 2, 1),
               Published(64_670_000, "timm's table of results, 64.67M", 1e-4))  # fmt: skip
    add("inception_v3", inception_v3, inception_v3_tiny, INCEPTION_IMAGE, 107, sgd(0.045),
        f"{INCEPTION_IMAGE} pixels; trained with its auxiliary head, whose loss counts 0.4",
        Published(27161264, TORCHVISION), loss=inception_loss)  # fmt: skip
    add("mobilenet_v2", mobilenet,
        partial(mobilenet, TINY_CLASSES, 0.1, [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]]),
        IMAGE, 32, sgd(0.045, 4e-5), f"{IMAGE} pixels", Published(3504872, TORCHVISION))  # fmt: skip
    add("nasnet_a_large", partial(nasnet, 96, 4032, CLASSES),
        partial(nasnet, 8, 192, TINY_CLASSES, [*range(2, 6), *range(8, 12), *range(14, 18)]),
        NASNET_IMAGE, 64, sgd(0.1), f"{NASNET_IMAGE} pixels; 6 cells a stage, 4032 features",
        Published(88_750_000, "timm's table of results, 88.75M", 1e-4))  # fmt: skip
    add("densenet121", densenet, partial(densenet, 4, (2, 2, 2, 2), 8, num_classes=TINY_CLASSES),
        IMAGE, 32, sgd(0.1), f"{IMAGE} pixels", Published(7978856, TORCHVISION))  # fmt: skip
    add("alexnet", partial(AlexNet, (64, 192, 384, 256, 256), 4096, CLASSES),
        partial(AlexNet, (8, 12, 16, 12, 12), 32, TINY_CLASSES), IMAGE, 64, sgd(0.01, 5e-4),
        f"{IMAGE} pixels", Published(61100840, TORCHVISION))  # fmt: skip
    add("lenet5", partial(LeNet5, 6, 16, 120, 10), partial(LeNet5, 3, 4, 12, TINY_CLASSES),
        LENET_IMAGE, LENET_IMAGE, sgd(0.01, 0.0), f"{LENET_IMAGE} pixels, one channel",
        Published(60000, "LeCun 1998, whose C3 is sparsely connected", 0.03),
        classes=10, channels=1)  # fmt: skip
    return result
