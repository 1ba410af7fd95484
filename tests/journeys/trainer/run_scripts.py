"""Run the scripts in this folder with another library in the import line: `run_scripts.py LIBRARY FOLDER [NAME ...]`.

Every script runs as `__main__` in its own folder below FOLDER, and leaves `outcome.json` or `failure.txt` there. With
LIBRARY `transformers`, names that the original has dropped are replaced by current ones.
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import sys
import traceback
from pathlib import Path

SCRIPTS = Path(__file__).with_name("scripts")
IMPORT = re.compile(r"^from transformers import", re.MULTILINE)
TODAY = {
    # T5 accepts num_items_in_batch but ignores it: uncorrected, the original's logged loss grows with accumulation.
    "seq2seq": {"trainer.train()": "trainer.model_accepts_loss_kwargs = False\ntrainer.train()"},
    "weighted_loss": {"return_outputs=False)": "return_outputs=False, num_items_in_batch=None)"},
    "document_era": {
        "    overwrite_output_dir=True,\n": "",
        "    save_safetensors=True,\n": "",
        '    logging_dir="logs",\n': "",
        "evaluation_strategy": "eval_strategy",
        "warmup_ratio": "warmup_steps",
        "group_by_length=True": 'train_sampling_strategy="group_by_length"',
        "no_cuda": "use_cpu",
        "tokenizer=tokenizer": "processing_class=tokenizer",
        "trainer.tokenizer": "trainer.processing_class",
    },
}


def prepared(name: str, library: str) -> str:
    """Return the text of a script with its import line replaced, and nothing else unless the original needs it."""
    text = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    if len(IMPORT.findall(text)) != 1:
        raise ValueError(f"{name}.py must have one line that begins with 'from transformers import'")
    for old, new in TODAY.get(name, {}).items() if library == "transformers" else ():
        text = text.replace(old, new)
    return IMPORT.sub(f"from {library} import", text)


def run(name: str, text: str, folder: Path) -> None:
    """Run the text of one script in its folder, and store its traceback if it fails."""
    folder.mkdir(parents=True)
    script = folder / f"{name}.py"
    script.write_text(text, encoding="utf-8")
    home = Path.cwd()
    os.chdir(folder)
    try:
        with open("said.txt", "w", encoding="utf-8") as said, contextlib.redirect_stdout(said):
            runpy.run_path(script.name, run_name="__main__")
    except (Exception, SystemExit):
        Path("failure.txt").write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os.chdir(home)


def main() -> None:
    """Run the named scripts, all by default."""
    library, folder, *names = sys.argv[1:]
    sys.argv = sys.argv[:1]  # scripts must not see our arguments
    for name in names or sorted(path.stem for path in SCRIPTS.glob("*.py")):
        run(name, prepared(name, library), Path(folder).resolve() / name)


if __name__ == "__main__":
    main()
