"""Classification by filling in a blank with BERT."""

from __future__ import annotations

from xdpx.models.pytorch.bert_lm import BertLanguageModel


class BertPrompt(BertLanguageModel):
    """The network of `bert_lm`, whose guesses at the blanks of a template stand for classes; nothing new is trained.

    Source: Schick and Schuetze, "Exploiting Cloze Questions for Few Shot Text Classification and Natural Language
    Inference", EACL 2021, section 3 (PET).
    """

    class Parameters(BertLanguageModel.Parameters):
        """Keys of `bert_prompt`."""
