"""A `transformers` pipeline behind FastAPI, called once per request, as in its documentation.

Usage: serve_pipeline.py FOLDER PORT
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline

app = FastAPI()
model = pipeline("text-classification", model=sys.argv[1], device="cpu", top_k=None)


class Asked(BaseModel):
    """The body of a request."""

    text: str


@app.get("/health")
def health() -> str:
    return "ok"


@app.post("/predict")
def predict(asked: Asked) -> list[dict[str, Any]]:
    found: list[Any] = model([asked.text], truncation=True, max_length=256)
    return list(found[0])


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
