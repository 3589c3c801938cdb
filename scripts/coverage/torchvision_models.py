"""The classifiers, segmentation networks and video networks of torchvision, as list_models names them.

Images are small. A network of more than some 60 million parameters is made narrow where its class
takes widths (transformers, ConvNeXt, RegNet) or ends in wide linear layers (VGG); depths, kernels
and rates stay those of its name.
"""

from functools import partial

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torchvision.models import convnext, regnet, swin_transformer, vision_transformer
from torchvision.models.video import mvit
from torchvision.models.video import swin_transformer as video_swin

from entry import CLASSES, Entry, adamw, classification_loss, images, sgd

IMAGE = 32
LABELS = 4  # classes of a pixel

# Patch, layers and heads of vision transformers.
VIT = {"vit_b_16": (16, 12, 12), "vit_b_32": (32, 12, 12), "vit_l_16": (16, 24, 16),
       "vit_l_32": (32, 24, 16), "vit_h_14": (14, 32, 16)}  # fmt: skip
# Depths, heads and rate of stochastic depth; windows of 7, in version 2 of 8.
SWIN = {"t": ([2, 2, 6, 2], [3, 6, 12, 24], 0.2), "s": ([2, 2, 18, 2], [3, 6, 12, 24], 0.3),
        "b": ([2, 2, 18, 2], [4, 8, 16, 32], 0.5)}  # fmt: skip
# Blocks of the third stage and rate of stochastic depth.
CONVNEXT = {"tiny": (9, 0.1), "small": (27, 0.4), "base": (27, 0.5), "large": (27, 0.5)}
# Of the RegNets that are narrowed: depth, first width, its growth, the factor between stages, and
# the share of squeeze and excitation.
REGNET = {
    "regnet_y_16gf": (18, 200, 106.23, 2.48, 0.25), "regnet_y_32gf": (20, 232, 115.89, 2.53, 0.25),
    "regnet_y_128gf": (27, 456, 160.83, 2.52, 0.25), "regnet_x_16gf": (22, 216, 55.59, 2.1, None),
    "regnet_x_32gf": (23, 320, 69.86, 2.0, None),
}  # fmt: skip
REGNET_WIDTH = 32  # the first

# The sizes that classifiers need, where it is not IMAGE.
SIZES = {"alexnet": 64, "inception_v3": 299, "maxvit_t": 224, "vit_h_14": 56}
HEAVY = {"inception_v3", "maxvit_t", "densenet201", "densenet169", "densenet161", "resnet152",
         "resnext101_32x8d", "resnext101_64x4d", "wide_resnet101_2", "wide_resnet50_2",
         "regnet_y_128gf", "efficientnet_b5", "efficientnet_b6", "efficientnet_b7",
         "efficientnet_v2_m", "efficientnet_v2_l", "alexnet", "swin_v2_b", "swin_v2_s",
         "s3d", "swin3d_s", "swin3d_b", "mvit_v1_b", "mvit_v2_s", "deeplabv3_resnet101",
         "fcn_resnet101", "deeplabv3_resnet50", "fcn_resnet50"}  # fmt: skip
# Their initial values come from SciPy or take long, and are none of the step's business.
PLAIN_START = {"googlenet", "inception_v3"}


def entries() -> list[Entry]:
    models = torchvision.models
    # What list_models names of torchvision.models itself is what classifies.
    classifiers = models.list_models(module=models)
    segmenters = models.list_models(module=models.segmentation)
    videos = models.list_models(module=models.video)
    return (
        [_classifier(name) for name in classifiers]
        + [_segmenter(name) for name in segmenters]
        + [_video(name) for name in videos]
    )


def _classifier(name: str) -> Entry:
    size = SIZES.get(name, IMAGE)
    transformer = name.startswith(("vit", "swin", "maxvit", "convnext"))
    return Entry(
        f"torchvision/{name}", "classification", partial(build_classifier, name, size),
        images(size, size), auxiliary_loss if name in PLAIN_START else classification_loss,
        adamw if transformer else sgd, name in HEAVY,
    )  # fmt: skip


def build_classifier(name: str, size: int) -> nn.Module:
    if name in VIT:
        patch, layers, heads = VIT[name]
        return vision_transformer.VisionTransformer(
            size, patch, layers, heads, hidden_dim=4 * heads, mlp_dim=16 * heads,
            num_classes=CLASSES)  # fmt: skip
    if name.startswith("swin_"):
        return _swin(name)
    if name.startswith("convnext_"):
        return _convnext(*CONVNEXT[name.removeprefix("convnext_")])
    if name in REGNET:
        return _regnet(*REGNET[name])
    start = {"init_weights": False} if name in PLAIN_START else {}
    model = torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **start)
    if name.startswith("vgg"):
        wide = model.classifier
        wide[0] = nn.Linear(wide[0].in_features, 64)
        wide[3] = nn.Linear(64, 64)
        wide[6] = nn.Linear(64, CLASSES)
    return model


def _swin(name: str) -> nn.Module:
    second = name.startswith("swin_v2")
    depths, heads, rate = SWIN[name[-1]]
    window = [8, 8] if second else [7, 7]
    more = {}
    if second:
        more = {"block": swin_transformer.SwinTransformerBlockV2,
                "downsample_layer": swin_transformer.PatchMergingV2}  # fmt: skip
    return swin_transformer.SwinTransformer(
        [4, 4], 8 * heads[0], depths, heads, window, stochastic_depth_prob=rate,
        num_classes=CLASSES, **more)  # fmt: skip


def _convnext(third: int, rate: float) -> nn.Module:
    blocks = (3, 3, third, 3)
    widths = (16, 32, 64, 128, None)
    setting = [convnext.CNBlockConfig(w, widths[i + 1], blocks[i]) for i, w in enumerate(widths[:4])]
    return convnext.ConvNeXt(setting, stochastic_depth_prob=rate, num_classes=CLASSES)


def _regnet(depth: int, width: int, growth: float, factor: float, squeeze: float | None):
    params = regnet.BlockParams.from_init_params(
        depth=depth, w_0=REGNET_WIDTH, w_a=growth * REGNET_WIDTH / width, w_m=factor,
        group_width=8, se_ratio=squeeze)  # fmt: skip
    norm = partial(nn.BatchNorm2d, eps=1e-05, momentum=0.1)
    return regnet.RegNet(params, norm_layer=norm, num_classes=CLASSES)


def auxiliary_loss(model, image, label):
    """GoogLeNet and Inception classify at several depths while they train."""
    logits, *earlier = model(image)
    earlier = [F.cross_entropy(aux, label) for aux in earlier]
    return F.cross_entropy(logits, label) + 0.3 * sum(earlier)


def _segmenter(name: str) -> Entry:
    def build() -> nn.Module:
        return torchvision.models.get_model(
            name, weights=None, weights_backbone=None, num_classes=LABELS)

    def make_inputs(batch: int) -> tuple:
        side = IMAGE
        return torch.randn(batch, 3, side, side), torch.randint(0, LABELS, (batch, side, side))

    def loss(model, image, labels):
        return F.cross_entropy(model(image)["out"], labels)

    return Entry(f"torchvision/{name}", "segmentation", build, make_inputs, loss, sgd, name in HEAVY)


# Frames and side of a clip. S3D ends in a pool of 2 x 7 x 7, at a 32nd of the side.
CLIPS = {"s3d": (16, 224), "mvit_v1_b": (8, 64), "mvit_v2_s": (8, 64), "swin3d_t": (4, 64),
         "swin3d_s": (4, 64), "swin3d_b": (4, 64)}  # fmt: skip


def _of_size(make, spatial: tuple[int, int], temporal: int, **settings) -> nn.Module:
    return make(**settings | {"spatial_size": spatial, "temporal_size": temporal})


def _video(name: str) -> Entry:
    frames, side = CLIPS.get(name, (4, 32))

    def build() -> nn.Module:
        if name.startswith("swin3d"):
            depths, heads, _ = SWIN[name[-1]]
            return video_swin.SwinTransformer3d(
                [2, 4, 4], 8 * heads[0], depths, heads, [8, 7, 7], stochastic_depth_prob=0.1,
                num_classes=CLASSES)  # fmt: skip
        make = mvit._mvit
        if name.startswith("mvit"):
            # Those with names take the size of a clip from nobody.
            mvit._mvit = partial(_of_size, make, (side, side), frames)
        try:
            return torchvision.models.get_model(name, weights=None, num_classes=CLASSES)
        finally:
            mvit._mvit = make

    transformer = name.startswith(("mvit", "swin"))
    return Entry(
        f"torchvision/{name}", "video", build, images(frames, side, side), classification_loss,
        adamw if transformer else sgd, name in HEAVY,
    )  # fmt: skip
