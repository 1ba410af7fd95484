"""TRL's supervised fine-tuning of a tiny Llama: packing off, an evaluation, a resume."""

from datasets import Dataset
from small_things import SIZES, tell, text, tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer

reads = tokenizer()
data = Dataset.from_dict({"text": [text(4, 11) for _ in range(24)]})
args = SFTConfig(
    "out", max_steps=4, per_device_train_batch_size=4, gradient_accumulation_steps=2, logging_steps=1, save_steps=2,
    eval_strategy="steps", eval_steps=2, use_cpu=True, bf16=False, report_to="none", disable_tqdm=True,
)  # fmt: skip


def build():
    set_seed(0)
    config = LlamaConfig(vocab_size=len(reads), pad_token_id=0, eos_token_id=1, bos_token_id=None, **SIZES)
    model = LlamaForCausalLM(config)
    return SFTTrainer(model, args=args, train_dataset=data, eval_dataset=data.select(range(8)), processing_class=reads)


build().train()
trainer = build()
trainer.train(resume_from_checkpoint="out/checkpoint-2")
tell(trainer, metrics=trainer.evaluate())
