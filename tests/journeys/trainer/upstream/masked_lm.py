"""A masked language model as run_mlm.py does it: words are hidden again at each step."""

from small_things import SIZES, tell, text, tokenizer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    set_seed,
)

set_seed(42)
reads = tokenizer()
rows = [reads(text(6, 10), return_special_tokens_mask=True) for _ in range(30)]
args = TrainingArguments(
    output_dir="out",
    learning_rate=1e-2,
    num_train_epochs=3,
    logging_steps=2,
    eval_strategy="no",
    save_strategy="no",
    max_grad_norm=0.5,
    lr_scheduler_type="constant_with_warmup",
    warmup_steps=0.2,
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(
    BertForMaskedLM(BertConfig(vocab_size=len(reads), **SIZES)),
    args,
    train_dataset=rows[:22],
    eval_dataset=rows[22:],
    data_collator=DataCollatorForLanguageModeling(tokenizer=reads, mlm_probability=0.3),
    processing_class=reads,
)
result = trainer.train()
trainer.save_model()
trainer.log_metrics("train", result.metrics)
tell(trainer, metrics=result.metrics, scores=trainer.evaluate())
