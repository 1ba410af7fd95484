"""setfit: contrastive training on pairs of a few rows, then a scikit-learn head."""

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer
from setfit import SetFitModel, Trainer, TrainingArguments
from sklearn.linear_model import LogisticRegression
from small_things import SIZES, tell, text, tokenizer
from transformers import BertConfig, BertModel, set_seed

set_seed(0)
reads = tokenizer()
BertModel(BertConfig(vocab_size=len(reads), **SIZES)).save_pretrained("body")
reads.save_pretrained("body")
body = SentenceTransformer(modules=[Transformer("body"), Pooling(SIZES["hidden_size"])], device="cpu")
model = SetFitModel(model_body=body, model_head=LogisticRegression(), labels=["no", "yes"])
data = Dataset.from_dict({"text": [text() for _ in range(8)], "label": [0, 1] * 4})
args = TrainingArguments(
    output_dir="out", batch_size=4, num_iterations=2, max_steps=5, logging_steps=1, report_to="none", save_strategy="no"
)


def accuracy(predicted, labels):
    return {"accuracy": sum(int(one == other) for one, other in zip(predicted, labels, strict=True)) / len(labels)}


trainer = Trainer(model=model, args=args, train_dataset=data, eval_dataset=data, metric=accuracy)
trainer.train()
tell(trainer.st_trainer, scores=trainer.evaluate())
