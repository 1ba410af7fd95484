"""sentence-transformers with two data sets and two losses, whose batches alternate."""

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import CosineSimilarityLoss, MultipleNegativesRankingLoss
from sentence_transformers.models import Pooling, Transformer
from small_things import SIZES, dice, tell, text, tokenizer
from transformers import BertConfig, BertModel, set_seed

set_seed(0)
reads = tokenizer()
BertModel(BertConfig(vocab_size=len(reads), **SIZES)).save_pretrained("body")
reads.save_pretrained("body")
model = SentenceTransformer(modules=[Transformer("body"), Pooling(SIZES["hidden_size"])], device="cpu")
pairs = Dataset.from_list([{"anchor": text(), "positive": text()} for _ in range(24)])
scored = Dataset.from_list([{"one": text(), "other": text(), "score": dice.random()} for _ in range(24)])
args = SentenceTransformerTrainingArguments(
    "out", max_steps=6, logging_steps=1, per_device_train_batch_size=4, save_steps=3, eval_strategy="steps",
    eval_steps=3, use_cpu=True, report_to="none", disable_tqdm=True,
)  # fmt: skip
trainer = SentenceTransformerTrainer(
    model, args, train_dataset={"pairs": pairs, "scored": scored},
    eval_dataset={"pairs": pairs.select(range(8)), "scored": scored.select(range(8))},
    loss={"pairs": MultipleNegativesRankingLoss(model), "scored": CosineSimilarityLoss(model)},
)  # fmt: skip
trainer.train()
tell(trainer)
