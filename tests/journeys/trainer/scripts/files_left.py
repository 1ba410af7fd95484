"""What a run writes: checkpoints, results, the saved model, the state; with a model created by model_init."""

import json
from pathlib import Path

import torch
from transformers import Trainer, TrainingArguments
from transformers.models.bert import BertConfig, BertForSequenceClassification
from transformers.trainer_utils import get_last_checkpoint

dice = torch.Generator().manual_seed(1)
rows = [{"input_ids": torch.randint(5, 50, (6,), generator=dice), "labels": number % 2} for number in range(24)]
KNOWN = [
    "config.json",
    "model.safetensors",
    "optimizer.pt",
    "rng_state.pth",
    "scheduler.pt",
    "trainer_state.json",
    "training_args.bin",
]
shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def model_init():
    return BertForSequenceClassification(BertConfig(vocab_size=50, num_labels=2, **shape))


args = TrainingArguments(
    output_dir="out",
    max_steps=6,
    learning_rate=1e-3,
    save_steps=2,
    save_total_limit=2,
    logging_steps=2,
    use_cpu=True,
    report_to="none",
)
trainer = Trainer(args=args, model_init=model_init, train_dataset=rows, eval_dataset=rows[:8])
first = trainer.train()
second = trainer.train()
trainer.save_model()
trainer.log_metrics("train", second.metrics)
trainer.save_metrics("train", second.metrics)
trainer.save_metrics("eval", trainer.evaluate())
trainer.save_state()
again = BertForSequenceClassification.from_pretrained("out")
saved = json.loads(Path("out/trainer_state.json").read_text())
with torch.no_grad():
    logits = again.eval()(input_ids=torch.stack([row["input_ids"] for row in rows[:3]])).logits
outcome = {
    "losses": [first.training_loss, second.training_loss],
    "checkpoints": sorted(path.name for path in Path("out").glob("checkpoint-*")),
    "out": [name for name in KNOWN if (Path("out") / name).exists()],
    "checkpoint": [name for name in KNOWN if (Path("out/checkpoint-6") / name).exists()],
    "last": Path(get_last_checkpoint("out")).name,
    "state": {key: saved[key] for key in ("global_step", "max_steps", "num_train_epochs", "save_steps")},
    "keys": sorted(saved),
    "results": sorted(json.loads(Path("out/all_results.json").read_text())),
    "optimizer": sorted(torch.load("out/checkpoint-6/optimizer.pt", weights_only=True)),
    "logits": logits.tolist(),
}
Path("outcome.json").write_text(json.dumps(outcome))
