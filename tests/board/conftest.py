"""A folder with runs of every kind, incomplete and damaged ones, and names that contain markup."""

import json
import os
import zipfile

import pytest

EVALUATIONS = "epoch\tstep\tups\twps\ttrain_wall\ttrain_loss\ttrain_acc\tvalid_acc\tvalid_loss\tbest_score\n"
ARGS = """# x-train train.hjson
{{
    'batch_size*': {batch_size},
    'update_freq': 2,
    '(model)': {{
        'dropout*': {dropout},
    }},
    'major_metric': 'acc',
    'ascending_metric': True,
    'save_dir*': 'out/{number}',
}}
"""


def write_run(folder, number=0, *, steps=400, status="finished"):
    """Write a run of x-train: a row every 10 steps, an evaluation every 50, epochs of 100."""
    folder.mkdir(parents=True)
    (folder / "args.py").write_text(ARGS.format(number=number, batch_size=16 * (1 + number % 2), dropout=number / 10))
    rows = [f"{(s - 1) // 100 + 1}\t{s}\t{50 / s:.6g}\t2\t10\t{s * 1e-5}\t0.4\n" for s in range(10, steps + 1, 10)]
    (folder / "train.log.tsv").write_text("epoch\tstep\tloss\tgnorm\tups\tlr\tmfu\n" + "".join(rows))
    scores = {step: 0.5 + 0.4 * (1 - abs(step - 300) / 300) - number / 100 for step in range(50, steps + 1, 50)}
    best = {step: max(score for at, score in scores.items() if at <= step) for step in scores}
    rows = [
        f"{(s - 1) // 100 + 1}\t{s}\t10\t1000\t{s / 10}\t1\t{a + 0.05}\t{a}\t{1 - a}\t{best[s]}\n"
        for s, a in scores.items()
    ]
    (folder / "valid.log.tsv").write_text(EVALUATIONS + "".join(rows))
    facts = {"status": status, "step": steps, "total_steps": 500, "fingerprint": "f", "best_score": 0.9}
    (folder / "status.json").write_text(json.dumps(facts))
    (folder / "log.txt").write_text("".join(f"| step {step}\n" for step in range(1, 20_000)))


def write_trainer_run(folder):
    checkpoint = folder / "checkpoint-20"
    checkpoint.mkdir(parents=True)
    history = [{"loss": 2 - i / 50, "learning_rate": 1e-4, "epoch": i / 20, "step": i} for i in range(1, 41)]
    history += [{"eval_loss": 2 - i / 40, "eval_accuracy": i / 50, "epoch": i / 20, "step": i} for i in (10, 20, 40)]
    state = {"log_history": history, "max_steps": 40, "global_step": 20}
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    facts = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "metric_for_best_model": "accuracy"}
    (checkpoint / "training_args.json").write_text(json.dumps({**facts, "greater_is_better": True}))


@pytest.fixture
def root(tmp_path):
    """Three runs of x-train, one of a Trainer, one of x-exp, damaged runs, and folders that are not runs."""
    folder = tmp_path / "runs"
    for number in range(3):
        write_run(folder / "sweep" / f"run{number}", number)
    write_run(folder / "中文" / "实验", 3, status="failed")
    write_trainer_run(folder / "hf")
    job = folder / "<script>alert(1)"
    job.mkdir()
    (job / "run.json").write_text("{}")
    (job / "valid.log.tsv").write_text("epoch\tstep\tvalid_loss\tbest_score\n1\t10\t2\t2\n1\t20\t1.5\t1.5\n1\t3")
    damaged = folder / "damaged"
    damaged.mkdir()
    (damaged / "train.log.tsv").write_bytes(bytes(range(256)) * 8)
    (damaged / "args.py").write_bytes(b"\xff\x00{")
    (damaged / "status.json").write_text('{"status": "run')
    (folder / "notes").mkdir()
    (folder / "notes" / "todo.txt").write_text("nothing")
    (folder / "data").mkdir()
    (folder / "data" / "meta.hjson").write_text("{}")
    (folder / "data" / "status.json").write_text("{}")
    (folder / "loop").symlink_to(folder)
    own = folder / "sweep" / "run0"
    (own / "predictions.tsv").write_text(
        "text\ttarget\tpred\tprob\ttarget_prob\n"
        + "".join(
            f"text {i} <b>\t{'pos' if i % 3 else 'neg'}\t{'pos' if i % 4 else 'neg'}\t[]\t{i / 100}\n"
            for i in range(100)
        )
    )
    with zipfile.ZipFile(own / "snapshot.zip", "w") as archive:
        archive.writestr("xdpx/run.py", "print('code')\n")
    (own / "eval").mkdir()
    (own / "eval" / "best-dev.html").write_text("<h1>scores</h1><script>alert(2)</script>")
    os.symlink("/etc/hostname", own / "stolen.log")
    return folder
