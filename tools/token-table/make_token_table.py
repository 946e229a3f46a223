#!/usr/bin/env python3
"""Makes crates/bascule-search/data/token-table.bin: the word pieces of all-MiniLM-L6-v2 with 256 eight-bit numbers each.

The sum of the rows of a text's pieces has nearly the direction that the model gives to the text. The rows begin as the model's
vectors of the single pieces, projected (PCA) and weighted by rarity (idf), and are then fitted to the model's vectors of many
short texts: definitions of WordNet, descriptions of the AWS and Google APIs. Nothing of the search tests is among them. NOTICE names the sources.

`make token-table` installs what this needs and runs it. It takes about half an hour of one core; `--cache` keeps the model's
vectors for the next run.
"""

import argparse, gzip, hashlib, json, math, os, random, re, struct, time
from pathlib import Path

import numpy as np
import scipy.sparse as sparse
from scipy.special import erf
from tokenizers import Tokenizer

DIMENSIONS = 256
CHUNK = 20_000
CLS, SEP = 101, 102
EPOCHS, RATE, BATCH = 12, 5e-3, 512


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", type=Path, required=True, help="folder with model.safetensors and tokenizer.json")
    options.add_argument("--wordnet", type=Path, required=True, help="folder with data.noun and its siblings")
    options.add_argument("--botocore", type=Path, required=True, help="folder of the package botocore")
    options.add_argument("--google", type=Path, required=True, help="folder of the package googleapiclient")
    options.add_argument("--cache", type=Path, required=True, help="folder for the model's vectors")
    options.add_argument("--wordnet-texts", type=int, default=60_000)
    options.add_argument("--api-texts", type=int, default=60_000)
    options.add_argument("--output", type=Path, required=True)
    given = options.parse_args()

    given.cache.mkdir(parents=True, exist_ok=True)
    model = MiniLM(given.model)
    definitions = wordnet_texts(given.wordnet)[: given.wordnet_texts]
    descriptions = api_texts(given.botocore, given.google)[: given.api_texts]
    texts = [part for part in (definitions, descriptions) if part]
    targets = np.concatenate([model.cached(part, given.cache) for part in texts])
    pieces = model.pieces()
    rows = fit(definitions + descriptions, targets, model.cached_pieces(given.cache), model.tokenizer, pieces)
    write_table(given.output, pieces, rows)


# The model


class MiniLM:
    """The forward pass of the model: six layers of twelve heads, mean of the last layer."""

    heads, layers = 12, 6

    def __init__(self, folder):
        self.weights = read_safetensors(folder / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    def pieces(self):
        return [piece for piece, _ in sorted(self.tokenizer.get_vocab().items(), key=lambda entry: entry[1])]

    def cached(self, texts, cache):
        chunks = [texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK)]
        return np.concatenate([self.cached_chunk(chunk, cache) for chunk in chunks]).astype(np.float32)

    def cached_chunk(self, texts, cache):
        file = cache / (hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16] + ".npy")
        if not file.exists():
            np.save(file, self.embed_texts(texts).astype(np.float16))
        return np.load(file)

    def cached_pieces(self, cache):
        file = cache / "pieces.npy"
        if not file.exists():
            ids = [np.array([CLS, piece, SEP]) for piece in range(len(self.pieces()))]
            np.save(file, self.embed_ids(ids))
        return np.load(file)

    def embed_texts(self, texts):
        return self.embed_ids([np.array(encoding.ids[:48]) for encoding in self.tokenizer.encode_batch(texts)])

    def embed_ids(self, sequences):
        vectors = np.zeros((len(sequences), 384), np.float32)
        order = sorted(range(len(sequences)), key=lambda index: len(sequences[index]))
        for start in range(0, len(order), 128):
            batch = order[start : start + 128]
            longest = max(len(sequences[index]) for index in batch)
            ids, mask = np.zeros((len(batch), longest), int), np.zeros((len(batch), longest), np.float32)
            for row, index in enumerate(batch):
                ids[row, : len(sequences[index])] = sequences[index]
                mask[row, : len(sequences[index])] = 1
            hidden = self.hidden(ids, mask)
            vectors[batch] = (hidden * mask[:, :, None]).sum(1)
        return unit(vectors)

    def hidden(self, ids, mask):
        count, length = ids.shape
        embeddings = lambda name: self.weights[f"embeddings.{name}_embeddings.weight"]
        x = embeddings("word")[ids] + embeddings("position")[:length] + embeddings("token_type")[0]
        x = self.normalise("embeddings", x)
        bias = ((1 - mask) * -1e9)[:, None, None, :].astype(np.float32)
        split = lambda y: y.reshape(count, length, self.heads, -1).transpose(0, 2, 1, 3)
        for layer in range(self.layers):
            prefix = f"encoder.layer.{layer}."
            query, key, value = (split(self.dense(f"{prefix}attention.self.{n}", x)) for n in ("query", "key", "value"))
            scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(query.shape[-1]) + bias
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            context = (shares @ value).transpose(0, 2, 1, 3).reshape(x.shape)
            x = self.normalise(prefix + "attention.output", x + self.dense(prefix + "attention.output.dense", context))
            inner = self.dense(prefix + "intermediate.dense", x)
            inner = 0.5 * inner * (1 + erf(inner / math.sqrt(2)))
            x = self.normalise(prefix + "output", x + self.dense(prefix + "output.dense", inner))
        return x

    def dense(self, name, x):
        flat = x.reshape(-1, x.shape[-1]) @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]
        return flat.reshape(*x.shape[:-1], -1)

    def normalise(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-12)
        return centred / deviation * self.weights[name + ".LayerNorm.weight"] + self.weights[name + ".LayerNorm.bias"]


def read_safetensors(file):
    data = file.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    types = {"F32": np.float32, "I64": np.int64}
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            values = np.frombuffer(data[8 + length + start : 8 + length + end], types[entry["dtype"]])
            tensors[name] = values.reshape(entry["shape"])
    return tensors


# The texts


def wordnet_texts(folder):
    """Definitions with and without their words, and examples."""
    texts = set()
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text().splitlines():
            if line.startswith("  "):
                continue
            head, gloss = line.split(" | ", 1)
            fields = head.split(" ")
            words = [re.sub(r"\(.*\)", "", fields[4 + 2 * index]).replace("_", " ") for index in range(int(fields[3], 16))]
            definition = re.sub(r"[;:,\s]+$", "", re.sub(r'"[^"]*"', "", gloss).strip())
            definition = re.sub(r"(;\s*)+", "; ", definition).strip(" ;")
            texts |= {", ".join(words[:3]) + ": " + definition, definition}
            texts |= {example for example in re.findall(r'"([^"]+)"', gloss) if len(example.split()) >= 4}
    texts = sorted(text for text in texts if 2 <= len(text.split()) <= 40)
    random.Random(7).shuffle(texts)
    return texts


def api_texts(botocore, google):
    """The first sentences of operations and parameters, half of them of each."""
    both = []
    for seed, texts in ((3, botocore_texts(botocore)), (4, google_texts(google))):
        texts = sorted(text for text in set(texts) if 3 <= len(text.split()) <= 40)
        random.Random(seed).shuffle(texts)
        both += texts[:30_000]
    random.Random(5).shuffle(both)
    return both


def botocore_texts(folder):
    for file in sorted(folder.glob("data/*/*/service-2.json*")):
        data = file.read_bytes()
        service = json.loads(gzip.decompress(data) if file.suffix == ".gz" else data)
        for name, operation in service.get("operations", {}).items():
            if operation.get("documentation"):
                yield from named(name, operation["documentation"])
        for shape in service.get("shapes", {}).values():
            for member in shape.get("members", {}).values():
                if member.get("documentation"):
                    yield first_sentence(member["documentation"])


def google_texts(folder):
    def methods(resource):
        for method in resource.get("methods", {}).values():
            if method.get("description"):
                yield from named(method.get("id", "").replace(".", " "), method["description"])
            yield from described(method.get("parameters", {}))
        for child in resource.get("resources", {}).values():
            yield from methods(child)

    def described(members):
        return (first_sentence(member["description"]) for member in members.values() if member.get("description"))

    for file in sorted(folder.glob("discovery_cache/documents/*.json")):
        api = json.loads(file.read_text())
        yield from methods(api)
        yield from described(api.get("schemas", {}))
        for schema in api.get("schemas", {}).values():
            yield from described(schema.get("properties", {}))


def named(name, text):
    sentence = first_sentence(text)
    return sentence, re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower() + ": " + sentence


def first_sentence(text):
    text = re.sub(r"\s+", " ", re.sub(r"`+|\*+", "", re.sub(r"<[^>]+>", " ", text))).strip()
    return re.split(r"(?<=[.!?])\s+(?=[A-Z])", text)[0]


# The table


def fit(texts, targets, piece_vectors, tokenizer, pieces):
    centre = targets.mean(0)
    _, _, directions = np.linalg.svd(targets[::3] - centre, full_matrices=False)
    project = lambda vectors: unit((vectors - centre) @ directions[:DIMENSIONS].T)
    bags = bags_of(texts, tokenizer, len(pieces))
    frequency = np.asarray((bags > 0).sum(0)).ravel()
    rarity = np.log((len(texts) + 1) / (frequency + 1))
    singles = project(piece_vectors)
    rows = (singles * rarity[:, None] * 0.1).astype(np.float32)
    # Every second piece is a text of its own, so that rare pieces keep their meaning.
    kept = np.arange(1000, len(pieces), 2)
    alone = sparse.identity(len(pieces), format="csr", dtype=np.float32)[kept]
    bags = sparse.vstack([bags, alone]).tocsr()
    rows = descend(rows, bags, np.concatenate([project(targets), singles[kept]]))
    has_letter = np.array([any(letter.isalpha() for letter in piece) and not piece.startswith("[") for piece in pieces])
    return rows * has_letter[:, None]


def bags_of(texts, tokenizer, size):
    """The number of each piece in each text, which is cut into words as the search does."""
    ends, ids = [0], []
    for encoding in tokenizer.encode_batch([" ".join(words(text)) for text in texts], add_special_tokens=False):
        ids += encoding.ids
        ends.append(len(ids))
    return sparse.csr_matrix((np.ones(len(ids), np.float32), ids, ends), shape=(len(texts), size))


def words(text):
    text = re.sub(r"['’]", "", text)
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    text = re.sub(r"([A-Z])([A-Z][a-z])", r"\1 \2", text)
    return re.findall(r"[^\W_]+", text.lower())


def descend(rows, bags, targets):
    """Minimises 1 - cosine by Adam over the rows of each batch."""
    first, second, step = np.zeros_like(rows), np.zeros_like(rows), 0
    chance, started = np.random.default_rng(0), time.time()
    count = len(targets)
    steps = EPOCHS * math.ceil(count / BATCH)
    for epoch in range(EPOCHS):
        order, loss = chance.permutation(count), 0.0
        for start in range(0, count, BATCH):
            batch = order[start : start + BATCH]
            bag, target = bags[batch], targets[batch]
            used = np.unique(bag.indices)
            local = (bag.data, np.searchsorted(used, bag.indices), bag.indptr)
            local = sparse.csr_matrix(local, shape=(len(batch), len(used)))
            current = rows[used]
            sums = local @ current
            lengths = np.linalg.norm(sums, axis=1, keepdims=True) + 1e-6
            found = sums / lengths
            cosine = (found * target).sum(1, keepdims=True)
            loss += float((1 - cosine).sum())
            gradient = (local.T @ (-(target - cosine * found) / lengths)).astype(np.float32)
            step += 1
            rate = RATE * min(1, step / 50) * (0.5 + 0.5 * math.cos(math.pi * step / steps))
            first[used] = 0.9 * first[used] + 0.1 * gradient
            second[used] = 0.99 * second[used] + 0.01 * gradient * gradient
            rows[used] = current - rate * first[used] / (np.sqrt(second[used]) + 1e-8)
        print(f"epoch {epoch}: 1 - cosine = {loss / count:.4f}, {time.time() - started:.0f} s", flush=True)
    return rows


def write_table(file, pieces, rows):
    """The layout is described in crates/bascule-search/src/token_table.rs."""
    kept = [index for index, piece in enumerate(pieces) if not re.fullmatch(r"\[.*\]", piece)]
    rows, texts = rows[kept], [pieces[index].encode() for index in kept]
    scales = np.abs(rows).max(1) / 127
    quantised = np.round(rows / np.maximum(scales, 1e-12)[:, None]).astype(np.int8)
    slots = np.full(1 << 16, 0xFFFF, np.uint16)
    for index, text in enumerate(texts):
        slot = fnv(text) % len(slots)
        while slots[slot] != 0xFFFF:
            slot = (slot + 1) % len(slots)
        slots[slot] = index
    ends = np.cumsum([len(text) for text in texts]).astype("<u4")
    header = b"BTT1" + struct.pack("<III", DIMENSIONS, len(kept), len(slots))
    parts = [header, scales.astype("<f4").tobytes(), ends.tobytes(), slots.astype("<u2").tobytes()]
    file.write_bytes(b"".join(parts + texts) + quantised.tobytes())


def fnv(text):
    value = 0x811C9DC5
    for byte in text:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def unit(vectors):
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)


if __name__ == "__main__":
    main()
