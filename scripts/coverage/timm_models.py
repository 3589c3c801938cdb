"""One network of each family of timm, the smallest there is, on small images.

Those that take widths and depths are made narrower and shallower still; their stages, heads, rates
and kinds of layers stay those of their names. timm's default is no dropout and no stochastic depth
unless a network's own settings have it.
"""

from functools import partial

import timm
from torch import nn

from entry import CLASSES, Entry, adamw, classification_loss, images, sgd

IMAGE = 64
SMALLEST = 32  # of convolutional networks, which divide the side by 32
VIT = {"embed_dim": 48, "depth": 2, "num_heads": 4}  # of plain vision transformers
SMALL = {"img_size": IMAGE}  # of those that must be told

# Convolutional networks of any image size, as they are.
CONVOLUTIONAL = (
    "resnet10t", "seresnet18", "ecaresnext26t_32x4d", "resnet50_gn", "resnetv2_18",
    "resnetv2_50d_evos", "densenet121", "densenetblur121d", "dla46_c", "dpn48b", "vovnet39a",
    "ese_vovnet19b_slim_dw", "eca_vovnet39b", "hrnet_w18_small", "res2net50_14w_8s", "resnest14d",
    "skresnet18", "legacy_seresnet18", "selecsls42b", "regnetx_002", "regnety_002", "regnetz_005",
    "rexnet_100", "rexnetr_100", "cspresnet50", "darknet17", "cs3darknet_s", "cspnext_tiny",
    "gernet_s", "repvgg_a0", "mobileone_s0", "gcresnext26ts", "eca_resnext26ts",
    "resnet50_clip_gap", "eca_nfnet_l0", "nf_regnet_b0", "nf_resnet26", "tresnet_m", "vgg11_bn",
    "xception41", "legacy_xception", "hgnet_tiny", "hgnetv2_b0", "lcnetv2_small", "starnet_s050",
    "mnasnet_small", "mobilenetv1_100", "mobilenetv2_035", "fbnetc_100", "spnasnet_100",
    "efficientnet_lite0", "efficientnet_b0", "efficientnetv2_rw_t", "tinynet_e", "mixnet_s",
    "mobilenetv3_small_050", "tf_mobilenetv3_small_minimal_100", "fbnetv3_b", "lcnet_035",
    "mobilenetv4_conv_small_035", "hardcorenas_a", "ghostnet_050",
    "repghostnet_050", "fasternet_t0", "rdnet_tiny",
)  # fmt: skip

# Networks with attention, mixing of tokens, state spaces or layer norms: the side of the image, and
# what to tell the constructor.
OTHERS = {
    "bat_resnext26ts": (256, {}),
    "beit_base_patch16_224": (64, SMALL | VIT),
    "beitv2_base_patch16_224": (64, SMALL | VIT),
    "botnet26t_256": (64, SMALL),
    "halonet26t": (256, {}),
    "ghostnetv2_100": (128, {}),
    "ghostnetv3_050": (128, {}),
    "lambda_resnet26t": (64, SMALL),
    "cait_xxs24_224": (64, SMALL | VIT),
    "coat_tiny": (64, SMALL | {"embed_dims": [32] * 4, "serial_depths": [1] * 4,
                               "parallel_depth": 1}),
    "coat_lite_tiny": (64, SMALL | {"embed_dims": [16, 32, 48, 64], "serial_depths": [1] * 4}),
    "convit_tiny": (64, SMALL | {"embed_dim": 8, "depth": 12}),
    "convmixer_768_32": (64, {}),
    "convnext_atto": (64, {}),
    "convnext_zepto_rms": (64, {}),
    "convnextv2_atto": (64, {}),
    "cpubone_nano": (64, {}),
    "crossvit_9_240": (240, {"embed_dim": [16, 32]}),
    "csatv2": (128, {}),
    "davit_tiny": (64, {"embed_dims": (16, 32, 48, 64), "num_heads": (1, 2, 3, 4)}),
    "deepseek_vit_412m": (112, {"img_size": 112} | VIT),
    "deit_tiny_patch16_224": (64, SMALL | VIT),
    "deit_tiny_distilled_patch16_224": (64, SMALL | VIT),
    "deit3_small_patch16_224": (64, SMALL | VIT),
    "edgenext_xx_small": (64, {}),
    "efficientformer_l1": (224, {}),
    "efficientformerv2_s0": (64, SMALL),
    "efficientvim_m1": (64, {}),
    "efficientvit_b0": (64, {}),
    "efficientvit_m0": (64, SMALL),
    "eva02_tiny_patch14_224": (56, {"img_size": 56} | VIT),
    "vit_medium_patch16_rope_reg1_gap_256": (64, SMALL | VIT),
    "vit_small_patch16_dinov3": (64, SMALL | VIT),
    "fastvit_t8": (64, {}),
    "fastvit_sa12": (64, {}),
    "focalnet_tiny_srf": (64, {}),
    "gcvit_xxtiny": (224, {"embed_dim": 16}),
    "gemma4_vit_167m": (96, {"img_size": 96} | VIT),
    "hiera_tiny_224": (64, SMALL | {"embed_dim": 16}),
    "hieradet_small": (64, {"embed_dim": 16}),
    "iformer_t": (64, {}),
    "inception_next_atto": (64, {}),
    "inception_resnet_v2": (96, {}),
    "inception_v3": (96, {}),
    "inception_v4": (96, {}),
    "levit_128s": (64, SMALL),
    "levit_conv_128s": (64, SMALL),
    "lowformer_b0": (64, {}),
    "mambaout_femto": (64, {}),
    "coatnet_pico_rw_224": (64, SMALL),
    "coatnet_rmlp_nano_rw_224": (64, SMALL),
    "maxvit_pico_rw_256": (64, SMALL),
    "maxvit_rmlp_pico_rw_256": (64, SMALL),
    "maxxvit_rmlp_nano_rw_256": (64, SMALL),
    "poolformer_s12": (64, {}),
    "poolformerv2_s12": (64, {}),
    "convformer_s18": (64, {}),
    "caformer_s18": (64, {}),
    "mixer_s32_224": (64, SMALL),
    "gmixer_12_224": (64, SMALL),
    "resmlp_12_224": (64, SMALL),
    "gmlp_ti16_224": (64, SMALL),
    "mobilenetv4_hybrid_medium_075": (64, {}),
    "mobilenetv5_300m": (64, {}),
    "mobilevit_xxs": (64, {}),
    "mobilevitv2_050": (64, {}),
    "mvitv2_tiny": (64, SMALL),
    "mvitv2_small_cls": (64, SMALL),
    "naflexvit_base_patch16_gap": (64, {}),
    "nasnetalarge": (96, {}),
    "nest_tiny": (64, SMALL),
    "nextvit_small": (64, {}),
    "pit_ti_224": (64, SMALL | {"base_dims": [8, 8, 8]}),
    "pnasnet5large": (96, {}),
    "pvt_v2_b0": (64, {}),
    "pvt_v2_b2_li": (64, {"embed_dims": (16, 32, 40, 64), "depths": (1, 1, 1, 1)}),
    "qwen3_vit_88m": (64, SMALL | VIT),
    "repvit_m0_9": (64, {}),
    "samvit_base_patch16_224": (64, SMALL | VIT | {"global_attn_indexes": (1,), "window_size": 3}),
    "sequencer2d_s": (224, {"embed_dims": [16, 32, 32, 32], "hidden_sizes": [4, 8, 8, 8],
                            "layers": [1, 1, 1, 1]}),
    "shvit_s1": (64, {}),
    "swiftformer_xs": (64, {}),
    "swin_tiny_patch4_window7_224": (64, SMALL | {"embed_dim": 24}),
    "swin_s3_tiny_224": (64, SMALL | {"embed_dim": 24}),
    "swinv2_tiny_window8_256": (64, SMALL | {"embed_dim": 24}),
    "swinv2_cr_tiny_224": (64, SMALL | {"embed_dim": 24}),
    "tiny_vit_5m_224": (64, {}),
    "tnt_s_patch16_224": (64, SMALL | {"embed_dim": 48, "inner_dim": 12, "depth": 2,
                                       "num_heads_outer": 4}),
    "twins_pcpvt_small": (64, SMALL | {"embed_dims": [16, 32, 40, 64], "depths": [1, 1, 2, 1]}),
    "twins_svt_small": (64, SMALL | {"embed_dims": [16, 32, 64, 128], "depths": [1, 1, 2, 1]}),
    "visformer_tiny": (64, SMALL),
    "vit_tiny_patch16_224": (64, SMALL | VIT),
    "vit_base_patch16_siglip_224": (64, SMALL | VIT),
    "vit_small_patch14_reg4_dinov2": (56, {"img_size": 56} | VIT),
    "vit_tiny_r_s16_p8_224": (128, {"img_size": 128} | VIT),
    "vit_relpos_small_patch16_224": (64, SMALL | VIT),
    "vit_srelpos_small_patch16_224": (64, SMALL | VIT),
    "vitamin_small_224": (64, SMALL | {"depth": 2}),
    "volo_d1_224": (64, SMALL),
    "xcit_nano_12_p16_224": (64, SMALL | VIT),
}  # fmt: skip

HEAVY = {"bat_resnext26ts", "nasnetalarge", "pnasnet5large", "inception_resnet_v2",
         "inception_v4", "vgg11_bn",
         "convmixer_768_32", "crossvit_9_240", "efficientformer_l1", "gcvit_xxtiny",
         "mobilenetv5_300m", "naflexvit_base_patch16_gap", "fbnetv3_b", "rdnet_tiny",
         "nextvit_small", "tresnet_m", "resnet50_clip_gap"}  # fmt: skip


def entries() -> list[Entry]:
    table = {name: (SMALLEST, {}) for name in CONVOLUTIONAL} | OTHERS
    return [_entry(name, side, settings) for name, (side, settings) in sorted(table.items())]


def _entry(name: str, side: int, settings: dict) -> Entry:
    return Entry(
        f"timm/{name}", "attention and others" if name in OTHERS else "convolutional",
        partial(build, name, settings), images(side, side), classification_loss,
        adamw if name in OTHERS else sgd, name in HEAVY,
    )  # fmt: skip


def build(name: str, settings: dict) -> nn.Module:
    model = timm.create_model(name, pretrained=False, num_classes=CLASSES, **settings)
    return model.train()
