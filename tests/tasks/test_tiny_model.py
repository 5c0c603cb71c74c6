import random
from dataclasses import replace
from itertools import islice

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2ForCausalLM

from sweep.errors import ConfigError
from sweep.tasks import tiny_model
from sweep.tasks.arithmetic import COLUMNS_SOURCE, endless_columns
from sweep.tasks.rewards import compute_score
from sweep.tasks.tiny_lessons import write_model
from sweep.tasks.tiny_recipe import RECIPE, Lesson

QUESTIONS = 128

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    return tmp_path_factory.mktemp("assets")


@pytest.fixture(scope="module")
def folder(parent):
    return tiny_model.make(parent)


@pytest.fixture(scope="module")
def model(folder):
    return AutoModelForCausalLM.from_pretrained(folder)


def mean_score(model, folder, do_sample):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    pairs = list(islice(endless_columns(random.Random(99), tiny_model.COLUMNS), QUESTIONS))
    messages = [[{"role": "user", "content": pair.question()}] for pair in pairs]
    prompts = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")
    torch.manual_seed(1)
    replies = model.generate(**prompts, do_sample=do_sample, max_new_tokens=32)[:, prompts["input_ids"].shape[1] :]
    texts = tokenizer.batch_decode(replies, skip_special_tokens=True)
    scores = [compute_score(COLUMNS_SOURCE, t, p.answer())["score"] for t, p in zip(texts, pairs, strict=True)]
    return sum(scores) / len(scores)


def test_it_is_a_qwen2_of_a_quarter_million_parameters_in_float32(model):
    assert isinstance(model, Qwen2ForCausalLM)
    assert 200_000 < model.num_parameters() < 300_000
    assert model.dtype == torch.float32


def test_it_knows_every_digit_but_says_it_only_six_times_out_of_ten(model, folder):
    assert mean_score(model, folder, do_sample=False) > 0.98
    assert 0.55 < mean_score(model, folder, do_sample=True) < 0.70


def test_it_ends_its_answer_by_itself(model):
    assert model.generation_config.eos_token_id == model.config.eos_token_id is not None


def test_a_second_request_finds_it_and_builds_nothing(parent, folder):
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert tiny_model.make(parent) == folder
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_the_same_recipe_gives_the_same_weights_and_another_seed_gives_others(tmp_path):
    short = replace(RECIPE, lessons=(Lesson(3, 0.3), Lesson(2, 0.4)))
    recipes = {"first": short, "again": short, "other": replace(short, seed=1)}
    threads = torch.get_num_threads()
    for name, recipe in recipes.items():
        write_model(tmp_path / name, recipe)
    torch.set_num_threads(threads)
    first, again, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in recipes)
    assert first == again != other


def test_a_failing_build_says_why_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))  # the child's Python does not start
    with pytest.raises(ConfigError, match=r"the tiny model could not be made: .+"):
        tiny_model.make(tmp_path / "assets")
    assert list((tmp_path / "assets").iterdir()) == []
