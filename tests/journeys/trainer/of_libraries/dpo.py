"""TRL's direct preference optimisation of a tiny Llama."""

from datasets import Dataset
from small_things import SIZES, tell, text, tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, set_seed
from trl import DPOConfig, DPOTrainer

set_seed(0)
reads = tokenizer()
config = LlamaConfig(vocab_size=len(reads), pad_token_id=0, eos_token_id=1, bos_token_id=None, **SIZES)
LlamaForCausalLM(config).save_pretrained("model")
reads.save_pretrained("model")
rows = [{"prompt": text(4, 4), "chosen": f" {text(5, 5)}", "rejected": f" {text(3, 4)}"} for _ in range(24)]
data = Dataset.from_list(rows)
args = DPOConfig(
    "out", max_steps=4, learning_rate=1e-3, per_device_train_batch_size=4, logging_steps=1, save_strategy="no",
    eval_strategy="steps", eval_steps=2, use_cpu=True, bf16=False, report_to="none", disable_tqdm=True,
)  # fmt: skip
trainer = DPOTrainer(
    LlamaForCausalLM.from_pretrained("model"), args=args, train_dataset=data, eval_dataset=data.select(range(8)),
    processing_class=reads,
)  # fmt: skip
trainer.train()
tell(trainer)
