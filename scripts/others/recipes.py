"""Scripts of others: what of each is changed for unequal shares, how it is started, on which data.

An edit is (where, how a line begins behind its indentation, new lines): before that line, behind it, or for
it. New lines have its indentation. `parallel` are edits that make a script train on several ranks at all;
`ours` those for auto_shares.
"""

from dataclasses import dataclass, field


@dataclass
class Recipe:
    script: str  # below the folder of checkouts
    arguments: str  # {batch}: samples a rank, {all}: of all ranks; {data}: the folder of data;
    # {out}: for what ranks write together
    ours: list[tuple[str, str, list[str]]]
    parallel: list[tuple[str, str, list[str]]] = field(default_factory=list)
    file: str = ""  # that is edited, if not the script
    batch: int = 4
    # What one process runs: the script as it is, or ours, where its order is drawn otherwise on one rank.
    alone: str = "as it is"
    floats: str = "float64"
    most: float = 1e-9  # how far parameters may end apart, as a part of the way that training took
    gpus: int | None = None  # that it is told of, if not one a rank; 0: it runs on CPUs by its arguments
    resumed: str = ""  # arguments of a second run, which goes on from {before}, {out} of the first
    needs: tuple[str, ...] = ()  # packages


IMPORT = ("before", "import ", ["import heterog"])
JOIN = ("before", "import ", ["import torch.distributed; torch.distributed.init_process_group('gloo')"])
DDP = "torch.nn.parallel.DistributedDataParallel"

_AS_IT_IS = "self.train_data = heterog.auto_shares(self.model, self.train_data, lambda b: F.cross_entropy(self.model(b[0]), b[1]))"  # fmt: skip
_OF_TUTORIAL = "self.train_data = heterog.auto_shares(self.model, self.train_data, lambda b: F.mse_loss(self.model(b[0]), b[1]))"  # fmt: skip
# Its cross entropy over one class is 0 whatever the model says. That is told, and shares stay even.
_TRAINS = [("for", "loss = F.cross_entropy(", ["loss = F.mse_loss(output, targets)"])]
_EXAMPLES = "examples"  # of pytorch
_TUTORIAL = f"{_EXAMPLES}/distributed/ddp-tutorial-series"
_HF = "transformers/examples/pytorch"
_TRAINER = [
    IMPORT,
    ("for", "trainer = Trainer(", ["trainer = heterog.uneven_trainer(Trainer)("]),
]
_NO_TRAINER = [
    IMPORT,
    ("before", "# Prepare everything with our `accelerator`.", ["own = train_dataloader"]),
]

RECIPES = {
    "ddp tutorial, multigpu": Recipe(
        f"{_TUTORIAL}/multigpu.py",
        "2 1 --batch_size {batch}",
        [IMPORT, ("behind", "self.model = DDP(", [_AS_IT_IS])],
        batch=32,
    ),
    "ddp tutorial, torchrun": Recipe(
        f"{_TUTORIAL}/multigpu_torchrun.py",
        "2 1 --batch_size {batch}",
        [IMPORT, ("behind", "self.model = DDP(", [_OF_TUTORIAL])],
        parallel=_TRAINS,
        batch=32,
    ),
    "ddp tutorial, multinode": Recipe(
        f"{_TUTORIAL}/multinode.py",
        "2 1 --batch_size {batch}",
        [IMPORT, ("behind", "self.model = DDP(", [_OF_TUTORIAL])],
        parallel=_TRAINS,
        batch=32,
    ),
    "imagenet": Recipe(
        f"{_EXAMPLES}/imagenet/main.py",
        "{data}/images -a shufflenet_v2_x0_5 -b {all} -j 0 --epochs 2 --lr 0.01 --seed 1 --dist-url env://"
        " --multiprocessing-distributed --world-size 1 --rank 0",
        [
            IMPORT,
            ("before", "for epoch in range(args.start_epoch", [
                "train_loader = heterog.auto_shares(model, train_loader, lambda b: criterion(model(b[0]), b[1]))"
            ]),
        ],
        batch=5,
    ),
    "minGPT-ddp": Recipe(
        f"{_EXAMPLES}/distributed/minGPT-ddp/mingpt/main.py",
        "data_config.path={data}/words.txt data_config.truncate=0.3 data_config.block_size=8 data_config.train_split=0.7"
        " gpt_config.n_layer=2 gpt_config.n_head=2 gpt_config.n_embd=16 +gpt_config.attn_pdrop=0.0"
        " trainer_config.max_epochs=2 trainer_config.batch_size={batch} trainer_config.data_loader_workers=0"
        " trainer_config.use_amp=False",
        [
            IMPORT,
            ("behind", "self.model = DDP(", [
                "self.train_loader = heterog.auto_shares(self.model, self.train_loader, lambda b: self.model(*b)[1])"
            ]),
        ],
        file=f"{_EXAMPLES}/distributed/minGPT-ddp/mingpt/trainer.py",
        floats="float32",  # which its layers name
        most=1e-4,
        gpus=2,  # with fewer it ends
        needs=("hydra", "boto3", "fsspec"),
    ),
    "vae": Recipe(
        f"{_EXAMPLES}/vae/main.py",
        "--batch-size {batch} --epochs 2",
        [
            IMPORT,
            ("before", "def train(epoch)", [
                "def step(batch):",
                "    return loss_function(ddp(batch[0])[0], batch[0], *ddp(batch[0])[1:])",
                "train_loader = heterog.auto_shares(ddp, train_loader, step)",
            ]),
        ],
        parallel=[
            JOIN,
            ("behind", "model = VAE()", [f"ddp = {DDP}(model)"]),
            ("for", "recon_batch, mu, logvar = model(data)", ["recon_batch, mu, logvar = ddp(data)"]),
        ],
        alone="ours",
    ),
    "dcgan": Recipe(
        f"{_EXAMPLES}/dcgan/main.py",
        "--dataset folder --dataroot {data}/images/train --imageSize 64 --batchSize {batch} --nz 8 --ngf 4 --ndf 4"
        " --workers 0 --niter 2 --manualSeed 1",
        [
            IMPORT,
            ("before", "if opt.dry_run", [
                "fakes = lambda b: netD(netG(torch.randn(len(b[0]), nz, 1, 1)))",
                "step = lambda b: (netD(b[0]).log() + fakes(b).log()).mean()",
                "dataloader = heterog.auto_shares([netD, netG], dataloader, step)",
            ]),
        ],
        parallel=[
            JOIN,
            ("behind", "print(netG)", [f"netG = {DDP}(netG, broadcast_buffers=False)"]),
            ("behind", "print(netD)", [f"netD = {DDP}(netD, broadcast_buffers=False)"]),
        ],
        alone="ours",
        batch=5,
    ),
    "torchvision, classification": Recipe(
        "vision/references/classification/train.py",
        "--data-path {data}/images --model squeezenet1_1 --device cpu --train-crop-size 64 --val-resize-size 64"
        " --val-crop-size 64 -b {batch} -j 0 --epochs 2 --lr 0.01"
        " --label-smoothing 0.1 --clip-grad-norm 1 --output-dir out",
        [
            IMPORT,
            ("before", 'print("Start training")', [
                "data_loader = heterog.auto_shares(model, data_loader, lambda b: criterion(model(b[0]), b[1]))"
            ]),
        ],
        batch=5,
    ),
    "timm, train.py": Recipe(
        "pytorch-image-models/train.py",
        "--data-dir {data}/images --model test_vit --img-size 160 --num-classes 6 --device cpu -b {batch} -j 0"
        " --epochs 2 --sched step --decay-epochs 100 --warmup-epochs 0 --opt adamw --lr 0.001 --smoothing 0.1 --clip-grad 1"
        " --grad-accum-steps 2 --output out",
        [
            IMPORT,
            ("before", "updates_per_epoch = (len(loader_train)", [
                "loader_train = heterog.auto_shares(model, loader_train, lambda b: task(*b)['loss'], accumulate=args.grad_accum_steps)",
                "args.grad_accum_steps = loader_train.accumulated",
            ]),
        ],
        alone="ours",
        needs=("timm",),
        batch=5,
        gpus=0,
        floats="float32",  # of its images
        most=1e-4,
    ),
    "lightning, basic GAN": Recipe(
        "pytorch-lightning/examples/pytorch/domain_templates/generative_adversarial_net.py",
        "--data {data} --batch {batch} --out {out}",
        [
            IMPORT,
            ("behind", "trainer = Trainer(", [
                "own = dm.train_dataloader",
                "dm.train_dataloader = lambda: heterog.auto_shares(trainer.strategy.model, own(), trainer.strategy.training_step)",
            ]),
        ],
        # Several ranks, a loader anew in each epoch, and a checkpoint, of small data on CPUs.
        parallel=[
            ("before", "import ", ["import os", "import lightning.pytorch as pl, lightning.pytorch.demos.mnist_datamodule as demo"]),
            ("before", 'parser.add_argument("--lr"', [
                *(f"parser.add_argument('--{name}')" for name in ("data", "out", "before")),
                "parser.add_argument('--batch', type=int)",
            ]),
            ("for", "dm = MNISTDataModule(", [
                "demo._DATASETS_PATH = args.data",
                "dm = MNISTDataModule(args.data, val_split=10, num_workers=0, batch_size=args.batch)",
            ]),
            ("for", "trainer = Trainer(", [
                "world = int(os.environ['WORLD_SIZE'])",
                "keeps = pl.callbacks.ModelCheckpoint(args.out, 'epoch{epoch}', save_top_k=-1, auto_insert_metric_name=False)",
                "strategy = 'ddp_find_unused_parameters_true' if world > 1 else 'auto'",
                "trainer = Trainer(accelerator='cpu', devices=world, strategy=strategy, max_epochs=3, logger=False, callbacks=keeps, enable_progress_bar=False, use_distributed_sampler=False, reload_dataloaders_every_n_epochs=1)",
            ]),
            ("for", "trainer.fit(model, dm)", ["trainer.fit(model, dm, ckpt_path=args.before)"]),
        ],
        alone="ours",
        gpus=0,
        needs=("lightning", "torchvision"),
        resumed="--before {before}/epoch1.ckpt",
    ),
    "transformers, run_glue": Recipe(
        f"{_HF}/text-classification/run_glue.py",
        "--model_name_or_path {data}/bert --train_file {data}/texts.csv --validation_file {data}/texts.csv --do_train"
        " --per_device_train_batch_size {batch} --num_train_epochs 2 --lr_scheduler_type constant --use_cpu"
        " --report_to none --save_strategy epoch --output_dir {out} --max_seq_length 16",
        _TRAINER,
        needs=("transformers", "datasets", "evaluate"),
        gpus=0,
        resumed="--resume_from_checkpoint {before}/checkpoint-3",
    ),
    "transformers, run_clm": Recipe(
        f"{_HF}/language-modeling/run_clm.py",
        "--model_name_or_path {data}/gpt2 --train_file {data}/words.txt --validation_file {data}/words.txt --do_train"
        " --per_device_train_batch_size {batch} --gradient_accumulation_steps 2 --num_train_epochs 2"
        " --lr_scheduler_type constant --use_cpu --report_to none --save_strategy epoch --output_dir {out} --block_size 16",
        _TRAINER,
        needs=("transformers", "datasets", "evaluate"),
        gpus=0,
        resumed="--resume_from_checkpoint {before}/checkpoint-2",
    ),
    "transformers, run_glue_no_trainer": Recipe(
        f"{_HF}/text-classification/run_glue_no_trainer.py",
        "--model_name_or_path {data}/bert --train_file {data}/texts.csv --validation_file {data}/texts.csv"
        " --per_device_train_batch_size {batch} --num_train_epochs 2 --lr_scheduler_type constant --max_length 16"
        " --seed 1 --checkpointing_steps 1 --output_dir {out}",
        [
            *_NO_TRAINER,
            ("before", "# We need to recalculate our total training steps", [
                "train_dataloader = heterog.auto_shares(model, own, lambda b: model(**b).loss)"
            ]),
        ],
        alone="ours",
        needs=("transformers", "datasets", "evaluate"),
        gpus=0,
        resumed="--resume_from_checkpoint {before}/step_1",
    ),
    "transformers, run_clm_no_trainer": Recipe(
        f"{_HF}/language-modeling/run_clm_no_trainer.py",
        "--model_name_or_path {data}/gpt2 --train_file {data}/words.txt --validation_file {data}/words.txt"
        " --per_device_train_batch_size {batch} --gradient_accumulation_steps 2 --num_train_epochs 2"
        " --lr_scheduler_type constant --block_size 16 --seed 1 --checkpointing_steps epoch --output_dir {out}",
        [
            *_NO_TRAINER,
            ("before", "# We need to recalculate our total training steps", [
                "train_dataloader = heterog.auto_shares(model, own, lambda b: model(**b).loss, accumulate=args.gradient_accumulation_steps)",
                "args.gradient_accumulation_steps = train_dataloader.accumulated",
            ]),
        ],
        # On several ranks the script as it is goes on from the end of an epoch in the order of the first one.
        parallel=[("behind", "for epoch in range(starting_epoch", ["    train_dataloader.set_epoch(epoch)"])],
        most=1e-6,  # its loss is computed in float32, and each micro-batch rounds a mean of its own
        alone="ours",
        needs=("transformers", "datasets", "evaluate"),
        gpus=0,
        resumed="--resume_from_checkpoint {before}/epoch_0",
    ),
}  # fmt: skip
