"""Make causal_lm.tar.gz: tiny random models of Hugging Face, what they compute.

Usage: python tests/golden/make_causal_lm.py

Needs torch, transformers and safetensors; README.md names the versions used.
"""

import io
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers

sys.path.append(str(pathlib.Path(__file__).parent))
from pack import OUTPUT, write_archive

VOCAB, WIDTH, LENGTH, NEW_TOKENS = 96, 24, 16, 24
# The first seed is taken whose greedy decisions are this clear, and this varied.
CLOSEST, VARIED = 0.02, 8
LLAMA = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "rope_theta": 500.0,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODELS = {
    "llama": (transformers.LlamaConfig, LLAMA | {"tie_word_embeddings": False}),
    "llama_tied": (
        transformers.LlamaConfig,
        LLAMA
        | {
            "num_hidden_layers": 1,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "tie_word_embeddings": True,
        },
    ),
    "gpt2": (
        transformers.GPT2Config,
        {
            "vocab_size": VOCAB,
            "n_embd": WIDTH,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 48,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
}
# What transformers 4 wrote where 5 writes rope_parameters, and what only 5 writes.
NEWER = ("rope_parameters", "dtype")


def randomize(model, seed):
    """Weights that make every array matter and greedy decoding vary."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim == 1:
            centre = 0.0 if name.endswith("bias") else 1.0
            parameter.data = centre + 0.2 * noise
        elif "wte" in name or "wpe" in name or "embed" in name:
            parameter.data = 0.6 * noise
        else:
            parameter.data = noise * 1.5 / parameter.shape[-1] ** 0.5


def version_4(config):
    """config.json as transformers 4 wrote it."""
    old = {key: value for key, value in config.items() if key not in NEWER}
    old["torch_dtype"] = "float32"
    if "rope_parameters" in config:
        old |= {
            "rope_theta": config["rope_parameters"]["rope_theta"],
            "rope_scaling": None,
        }
    return old


def files_of(name, seed):
    """The archive's files of one model, or None where greedy decoding is unclear."""
    kind, fields = MODELS[name]
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(kind(**fields)).eval()
    randomize(model, seed)
    model.tie_weights()
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, VOCAB, (3, LENGTH), generator=generator)
    prompt = tokens[:, :5]
    with torch.no_grad():
        logits = model(tokens).logits
        out = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
    best = torch.stack(out.logits, 1).topk(2).values
    gap = float((best[..., 0] - best[..., 1]).min())
    greedy = out.sequences[:, prompt.shape[1] :]
    varied = min(len(row.unique()) for row in greedy)
    if gap < CLOSEST or varied < VARIED:
        return None
    print(
        f"{name}: seed {seed}, closest greedy decision {gap:.4f}, least varied row "
        f"{varied} tokens, largest logit {float(logits.abs().max()):.1f}"
    )
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        folder = pathlib.Path(folder)
        config = json.loads((folder / "config.json").read_text())
        golden = io.BytesIO()
        np.savez_compressed(
            golden, tokens=tokens, logits=logits, prompt=prompt, greedy=greedy
        )
        return {
            f"{name}/config.json": json.dumps(config, indent=1).encode(),
            f"{name}/config.v4_style.json": json.dumps(
                version_4(config), indent=1
            ).encode(),
            f"{name}/model.safetensors": (folder / "model.safetensors").read_bytes(),
            f"{name}/golden.npz": golden.getvalue(),
        }


if __name__ == "__main__":
    files = {}
    for name in MODELS:
        files |= next(filter(None, (files_of(name, seed) for seed in range(500))))
    write_archive(OUTPUT / "causal_lm.tar.gz", files)
