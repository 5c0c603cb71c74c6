import pytest
from transformers import AutoTokenizer

from sweep.tasks.arithmetic import Addition
from sweep.tasks.tiny_recipe import RECIPE
from sweep.tasks.tiny_tokenizer import WORDS, tiny_tokenizer

TEXTS = (
    Addition(1234, 5432).question(),
    "every byte: äöü 漢字 🙂 \t\r\n tabs, CamelCase and 3.14159",
    "<|im_start|>user\nWhat is 1 + 1?<|im_end|>\n",
    "",
)


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def reloaded(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "qwen2"}')  # as beside a model: decides the class
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("text", TEXTS)
def test_saved_and_loaded_again_it_encodes_every_text_identically(tokenizer, reloaded, text):
    assert type(reloaded).__name__ == type(tokenizer).__name__ == "Qwen2Tokenizer"
    assert reloaded.encode(text) == tokenizer.encode(text)
    assert reloaded.decode(reloaded.encode(text)) == text


def test_it_keeps_its_special_tokens_and_chat_template(tokenizer, reloaded):
    assert (reloaded.eos_token, reloaded.pad_token) == ("<|im_end|>", "<|endoftext|>")
    assert reloaded.chat_template == tokenizer.chat_template
    assert len(reloaded) == len(tokenizer)


def test_the_words_of_the_task_are_one_token_each(tokenizer):
    for word in WORDS:
        assert tokenizer.convert_ids_to_tokens(tokenizer.encode(word.replace("\u0120", " "))) == [word]


def test_every_digit_is_a_token_of_its_own(tokenizer):
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("90210")) == list("90210")


def test_a_prompt_is_the_users_turn_and_the_opening_of_the_assistants(tokenizer):
    message = [{"role": "user", "content": "What is 7 + 1?"}]
    prompt = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)
    assert tokenizer.decode(prompt) == "<|im_start|>user\nWhat is 7 + 1?<|im_end|>\n<|im_start|>assistant\n"


def test_the_longest_prompt_of_the_task_fits_its_configured_length(tokenizer):
    widest = int("9" * RECIPE.columns)
    message = [{"role": "user", "content": Addition(widest, widest).question()}]
    assert len(tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)) <= 64


def test_the_vocabulary_fits_the_models_embeddings(tokenizer):
    assert len(tokenizer) <= RECIPE.vocabulary
