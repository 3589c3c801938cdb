"""The sizes that the papers leave open, one value a model for all batch sizes.

They were chosen by memory: `python -m heterog.zoo.memory` prints which of HeteroG's cases
(CoNEXT'20, Tables 1 and 4) fit under plain data parallelism with these values, and
which deviate from the paper. models/README.md gives the reason for each.
"""

# Pixels of a side. ImageNet models use the size of their own papers unless memory forbids it.
IMAGE = 224
INCEPTION_IMAGE = 299
# At 331 pixels 24 samples of NASNet-A take twice the memory of a GTX 1080 Ti, at 224 a little more.
NASNET_IMAGE = 192
LENET_IMAGE = 32
HOLOGRAPHY_IMAGE = 384
CLASSES = 1000

# Tokens a sample. With Adam, a server's share of the state makes the 48-layer models fit at any
# length at which the 24-layer ones fit with all-reduce, so each depth has a length of its own.
BERT_SEQUENCE = {24: 288, 48: 448}
# AutoSync's smaller models say how many parameters they have, not how long a sample is.
SMALL_BERT_SEQUENCE = 128
XLNET_SEQUENCE = {24: 248, 48: 384}
TRANSFORMER_SEQUENCE = {6: 64, 12: 64, 24: 112}
GNMT_SEQUENCE = 25
LSTM_LM_SEQUENCE = 35

# Words and pieces of words. 33,708 is the shared WMT'14 English-German vocabulary of TensorFlow's
# official Transformer; 32,320 that of NVIDIA's GNMT v2; 10,000 that of the Penn Treebank.
TRANSFORMER_VOCABULARY = 33708
GNMT_VOCABULARY = 32320
LSTM_LM_VOCABULARY = 10000

# MovieLens-20M enlarged 16 times in users and 32 times in items (MLPerf).
NCF_USERS = 2197225
NCF_ITEMS = 855776
