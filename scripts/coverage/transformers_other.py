"""Sizes of the vision, speech and multimodal models of transformers in the table of coverage."""

from transformers_text import ENCODER, PLACES, TOKENS, WORDS

SIDE = 32  # of an image
SOUND = 1600  # values of a waveform: a tenth of a second at 16 kHz
FRAMES, BANDS = 64, 16  # of a spectrogram

LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 64}  # fmt: skip
VIT = LAYERS | {"image_size": SIDE, "patch_size": 8}
STAGES = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "image_size": SIDE}
WIDTHS = {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]}

IMAGES = {
    "beit": VIT,
    "bit": {"embedding_size": 16, "hidden_sizes": [32, 64], "depths": [1, 1], "num_groups": 4},
    "convnext": WIDTHS,
    "convnextv2": WIDTHS,
    "cvt": {"embed_dim": [16, 32, 48], "num_heads": [1, 2, 3], "depth": [1, 2, 3]},
    "data2vec-vision": VIT,
    "deit": VIT | {"architectures": ["DeiTForImageClassification"]},
    "dinov2": VIT,
    "dinov2_with_registers": VIT,
    "donut-swin": STAGES | {"window_size": 4},
    "efficientnet": {"image_size": SIDE, "width_coefficient": 0.25, "depth_coefficient": 0.5,
                     "hidden_dim": 320},
    "focalnet": STAGES | {"hidden_sizes": [16, 32], "focal_levels": [2, 2],
                          "focal_windows": [3, 3]},
    "hgnet_v2": {"embedding_size": 16, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1],
                 "stem_channels": [3, 8, 16], "stage_in_channels": [16, 16, 32, 48],
                 "stage_mid_channels": [8, 8, 16, 16], "stage_out_channels": [16, 32, 48, 64],
                 "stage_num_blocks": [1, 1, 1, 1], "stage_numb_of_layers": [2, 2, 2, 2]},
    "hiera": {"embed_dim": 16, "image_size": [SIDE, SIDE], "depths": [1, 1], "num_heads": [1, 2],
              "num_query_pool": 1, "query_stride": [2, 2], "masked_unit_size": [4, 4]},
    "ijepa": VIT,
    "imagegpt": {"vocab_size": WORDS, "n_positions": PLACES, "n_embd": 32, "n_layer": 2,
                 "n_head": 4},
    "levit": {"image_size": 64, "hidden_sizes": [16, 32, 48], "num_attention_heads": [2, 4, 6],
              "depths": [1, 1, 1], "key_dim": [4, 4, 4],
              "architectures": ["LevitForImageClassification"]},
    "mobilenet_v1": {"depth_multiplier": 0.25, "image_size": SIDE},
    "mobilenet_v2": {"depth_multiplier": 0.25, "image_size": SIDE},
    "mobilevit": {"image_size": SIDE, "hidden_sizes": [16, 24, 32],
                  "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 64]},
    "mobilevitv2": {"image_size": SIDE, "width_multiplier": 0.25, "output_stride": 16},
    "poolformer": WIDTHS,
    "pvt": {"image_size": SIDE, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 3, 4]},
    "pvt_v2": {"image_size": SIDE, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1],
               "num_attention_heads": [1, 2, 3, 4]},
    "regnet": {"embedding_size": 16, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1],
               "groups_width": 8},
    "resnet": {"embedding_size": 16, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]},
    "segformer": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1],
                  "num_attention_heads": [1, 2, 3, 4], "decoder_hidden_size": 32},
    "siglip": {"vision_config": VIT},
    "swiftformer": {"embed_dims": [16, 32, 48, 64], "depths": [1, 1, 1, 1]},
    "swin": STAGES | {"window_size": 4},
    "swinv2": STAGES | {"window_size": 4},
    "vit": VIT,
    "vit_msn": VIT,
}  # fmt: skip

SEGMENTATION = {
    "beit": VIT | {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4]},
    "data2vec-vision": VIT | {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4]},
    "dpt": VIT | {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3],
                  "neck_hidden_sizes": [8, 16, 24, 32], "fusion_hidden_size": 16,
                  "is_hybrid": False},
    "mobilenet_v2": {"depth_multiplier": 0.25, "image_size": SIDE},
    "mobilevit": IMAGES["mobilevit"] | {"aspp_out_channels": 16},
    "segformer": IMAGES["segformer"],
    "upernet": {"backbone_config": {"model_type": "resnet", "embedding_size": 16,
                                    "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1],
                                    "out_features": ["stage1", "stage2", "stage3", "stage4"]},
                "hidden_size": 32, "auxiliary_in_channels": 48, "auxiliary_channels": 16},
}  # fmt: skip

WAVE = LAYERS | {
    "conv_dim": [16, 16, 16], "conv_kernel": [10, 3, 3], "conv_stride": [5, 4, 4],
    "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2,
    "vocab_size": WORDS, "classifier_proj_size": 16,
    # What is masked of a spectrum is drawn by numpy, which no graph sees.
    "apply_spec_augment": False,
}  # fmt: skip
# Speech recognition by connectionist temporal classification.
RECOGNITION = {
    "data2vec-audio": WAVE | {"conv_pos_kernel_size": 3},
    "hubert": WAVE,
    "sew": WAVE | {"squeeze_factor": 2},
    "unispeech": WAVE,
    "wav2vec2": WAVE,
    "wav2vec2-conformer": WAVE,
    "wavlm": WAVE | {"num_buckets": 8},
}
# Classes of sounds.
SOUNDS = {
    "audio-spectrogram-transformer": LAYERS | {"patch_size": 8, "max_length": FRAMES,
                                               "num_mel_bins": BANDS, "frequency_stride": 8,
                                               "time_stride": 8},
    "hubert": WAVE,
    "wav2vec2": WAVE,
    "wavlm": WAVE | {"num_buckets": 8},
}  # fmt: skip
# Text of a spectrogram.
SPEECH = {
    "moonshine": TOKENS | {"hidden_size": 32, "intermediate_size": 64,
                           "encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 2,
                           "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4},
    "speech_to_text": TOKENS | {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
                                "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                                "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
                                "input_feat_per_channel": BANDS, "conv_channels": 16,
                                "max_source_positions": FRAMES, "max_target_positions": PLACES},
    "whisper": TOKENS | {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
                         "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                         "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_mel_bins": BANDS,
                         "max_source_positions": FRAMES // 2, "max_target_positions": PLACES,
                         "decoder_start_token_id": 1},
}  # fmt: skip

_TEXT = ENCODER
_CLIP = {"text_config": _TEXT, "vision_config": VIT, "projection_dim": 16}
# Images and texts that belong together, told from those that do not.
CONTRAST = {
    "altclip": _CLIP | {"text_config": _TEXT | {"project_dim": 16}},
    "chinese_clip": _CLIP,
    "clip": _CLIP,
    "clipseg": _CLIP,
    "siglip": {"text_config": _TEXT, "vision_config": VIT},
}
# Texts that go on after an image: the class of the model, and its sizes.
IMAGE_TEXT = {
    "blip": ("BlipForConditionalGeneration", _CLIP | {
        "text_config": _TEXT | {"encoder_hidden_size": 32, "sep_token_id": 3}}),
    "git": ("GitForCausalLM", _TEXT | {"vision_config": VIT}),
    "vilt": ("ViltForMaskedLM", _TEXT | {"image_size": SIDE, "patch_size": 8}),
    "kosmos-2": ("Kosmos2ForConditionalGeneration", {
        "text_config": TOKENS | {"embed_dim": 32, "layers": 2, "ffn_dim": 64,
                                 "attention_heads": 4, "max_position_embeddings": 64},
        "vision_config": VIT, "latent_query_num": 4}),
    "llava": ("LlavaForConditionalGeneration", {
        "text_config": {"model_type": "llama", "num_key_value_heads": 2} | _TEXT,
        "vision_config": {"model_type": "clip_vision_model"} | VIT,
        "image_token_index": 98, "vision_feature_layer": -1}),
    "paligemma": ("PaliGemmaForConditionalGeneration", {
        "text_config": {"model_type": "gemma", "num_key_value_heads": 1, "head_dim": 8} | _TEXT,
        "vision_config": {"model_type": "siglip_vision_model"} | VIT,
        "image_token_index": 98, "projection_dim": 32}),
}  # fmt: skip
