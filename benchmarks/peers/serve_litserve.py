"""LitServe with dynamic batching, as in its documentation for a transformers model.

Usage: serve_litserve.py FOLDER PORT
"""

from __future__ import annotations

import sys
from typing import Any

import litserve
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer


class Classifier(litserve.LitAPI):  # type: ignore[misc]  # installed in the peer's Python
    """Answers a text with the probabilities of the labels."""

    def setup(self, device: str) -> None:
        """Load model and tokenizer."""
        self.tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
        self.model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1]).to(device).eval()

    def decode_request(self, request: dict[str, str]) -> str:
        """Return the text of a request."""
        return request["text"]

    @torch.inference_mode()
    def predict(self, texts: list[str]) -> list[dict[str, float]]:
        """Return the probabilities for a batch of texts."""
        batch = self.tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
        prob = self.model(**batch).logits.softmax(-1).tolist()
        names = self.model.config.id2label
        return [{names[index]: share for index, share in enumerate(row)} for row in prob]

    def encode_response(self, output: Any) -> dict[str, Any]:
        """Return the response."""
        return {"probabilities": output}


if __name__ == "__main__":
    api = Classifier(max_batch_size=32, batch_timeout=0.005)
    server = litserve.LitServer(api, accelerator="cpu", timeout=120)
    server.run(host="127.0.0.1", port=int(sys.argv[2]), num_api_servers=1, generate_client_file=False)
