"""Answers in texts as run_qa.py does it: a Trainer of its own, whose evaluation turns logits into answers first."""

import time

from small_things import SIZES, dice, tell, text, tokenizer
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)
from transformers.trainer_utils import EvalPrediction, speed_metrics

set_seed(42)
reads = tokenizer()


def row():
    both = reads(text(2, 3), text(6, 9), padding="max_length", max_length=16, truncation="only_second")
    start = dice.randrange(4, 8)
    return {**both, "start_positions": start, "end_positions": start + 1}


class QuestionAnsweringTrainer(Trainer):
    """Scores answers, not logits."""

    def __init__(self, *args, post_process_function=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.post_process_function = post_process_function

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval"):
        eval_dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        loader = self.get_eval_dataloader(eval_dataset)
        compute_metrics, self.compute_metrics = self.compute_metrics, None
        started = time.time()
        try:
            output = self.evaluation_loop(
                loader,
                description="Evaluation",
                prediction_loss_only=None,
                ignore_keys=ignore_keys,
                metric_key_prefix=metric_key_prefix,
            )
        finally:
            self.compute_metrics = compute_metrics
        size = self.args.eval_batch_size * self.args.world_size
        output.metrics.update(
            speed_metrics(
                metric_key_prefix, started, num_samples=output.num_samples, num_steps=-(-output.num_samples // size)
            )
        )
        metrics = self.compute_metrics(self.post_process_function(eval_dataset, output.predictions))
        metrics = {f"{metric_key_prefix}_{key}": value for key, value in metrics.items()}
        metrics.update(output.metrics)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


def post_process(rows, predictions):
    starts, ends = predictions[0].argmax(1), predictions[1].argmax(1)
    answers = [(each["start_positions"], each["end_positions"]) for each in rows]
    return EvalPrediction(predictions=list(zip(starts.tolist(), ends.tolist(), strict=True)), label_ids=answers)


def compute_metrics(p):
    same = [one == other for one, other in zip(p.predictions, p.label_ids, strict=True)]
    return {"exact_match": 100.0 * sum(same) / len(same)}


train, dev = [row() for _ in range(20)], [row() for _ in range(8)]
args = TrainingArguments(
    output_dir="out",
    learning_rate=1e-2,
    num_train_epochs=3,
    logging_steps=2,
    eval_strategy="steps",
    eval_steps=3,
    save_strategy="no",
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
)
trainer = QuestionAnsweringTrainer(
    BertForQuestionAnswering(BertConfig(vocab_size=len(reads), **SIZES)),
    args,
    train_dataset=train,
    eval_dataset=dev,
    data_collator=default_data_collator,
    compute_metrics=compute_metrics,
    post_process_function=post_process,
)
trainer.train()
tell(trainer, metrics=trainer.evaluate())
