"""Make smollm2.json: SmolLM2-135M-Instruct as transformers decodes it, in float32.

Usage: python tests/golden/make_smollm2.py SmolLM2-135M-Instruct.Q4_1.gguf

Needs torch, transformers and gguf. The weights are the file's, dequantized; its
chat template and its tokenizer too, with the pre-tokenizer of the model's own
tokenizer.json, which transformers does not restore from a GGUF file.
"""

import hashlib
import json
import pathlib
import sys

import torch
import transformers
from tokenizers import pre_tokenizers

OUTPUT = pathlib.Path(__file__).parent / "smollm2.json"
NEW_TOKENS = 32
SHOWN = (0, 2, 314, 9999, 49151)
"""Ids whose logits after the prompt are kept, beside the likeliest ones."""
PROMPTS = (
    [{"role": "user", "content": "What is the capital of France?"}],
    [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "What do bees make?"},
    ],
    "The best way to learn a new language is",
    "In 2024 there were 365 days, so in the 10 years before",
)
TEXTS = (
    "It's 12:45, I'll pay $1,234.50 for 3  apples.\n\n\tDon't  you?  ",
    "Grüße, naïve café — 日本語 ☃ 🤖 2²",
    "def f(x):\n    return x ** 2  # 100%\r\n",
    "<|im_start|>user\nHi<|im_end|>\n",
)


def main(path):
    path = pathlib.Path(path)
    where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(
        **where, dtype=torch.float32
    ).eval()
    rows = [decoded(model, tokenizer, prompt) for prompt in PROMPTS]
    golden = {
        "gguf_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "versions": {
            "transformers": transformers.__version__,
            "torch": torch.__version__,
        },
        "prompts": rows,
        "encodings": [
            {"text": text, "ids": tokenizer(text).input_ids} for text in TEXTS
        ],
    }
    OUTPUT.write_text(json.dumps(golden, indent=1) + "\n")


def decoded(model, tokenizer, prompt):
    """What is kept of one prompt: its ids, logits after it, what follows."""
    text = prompt
    if not isinstance(prompt, str):
        text = tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=False
        )
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
    with torch.no_grad():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            eos_token_id=2,
            pad_token_id=2,
            output_logits=True,
            return_dict_in_generate=True,
        )
    logits = torch.cat(out.logits)
    best = logits.topk(2).values
    new = out.sequences[0, ids.shape[1] :].tolist()
    print(repr(tokenizer.decode(new)), float((best[:, 0] - best[:, 1]).min()))
    kept = sorted({*SHOWN, *logits[0].topk(8).indices.tolist()})
    return {
        "prompt": prompt,
        "text": text,
        "ids": ids[0].tolist(),
        "logits": {str(i): round(float(logits[0, i]), 5) for i in kept},
        "largest_logit": round(float(logits[0].abs().max()), 5),
        "continuation": new,
        "continuation_text": tokenizer.decode(new, skip_special_tokens=True),
        "closest_decision": round(float((best[:, 0] - best[:, 1]).min()), 5),
    }


if __name__ == "__main__":
    main(sys.argv[1])
