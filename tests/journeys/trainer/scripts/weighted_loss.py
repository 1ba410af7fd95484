"""The example of the documentation, verbatim: rare classes get larger weights."""

import json
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainingArguments
from transformers.models.bert import BertConfig, BertForSequenceClassification


class CustomTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        labels = inputs.pop("labels")
        # forward pass
        outputs = model(**inputs)
        logits = outputs.get("logits")
        # compute custom loss (suppose one has 3 labels with different weights)
        loss_fct = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0], device=model.device))
        loss = loss_fct(logits.view(-1, self.model.config.num_labels), labels.view(-1))
        return (loss, outputs) if return_outputs else loss


dice = torch.Generator().manual_seed(1)
rows = [{"input_ids": torch.randint(5, 50, (6,), generator=dice), "label": number % 3} for number in range(24)]
torch.manual_seed(0)
shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForSequenceClassification(BertConfig(vocab_size=50, num_labels=3, **shape))
args = TrainingArguments("out", num_train_epochs=2, learning_rate=1e-3, logging_steps=1, use_cpu=True, report_to=[])
trainer = CustomTrainer(model, args, train_dataset=rows, eval_dataset=rows[:10])
trainer.train()
outcome = {"history": trainer.state.log_history, "scores": trainer.evaluate()}
Path("outcome.json").write_text(json.dumps(outcome))
