#!/usr/bin/env python3
"""Makes tests/golden/gpt2-bpe with Hugging Face tokenizers and transformers: a small byte-level BPE (vocab.json, merges.txt) trained
on the text below, and texts with the ids that transformers' GPT2Tokenizer gives, and the bytes of the pieces that it merges within (cases.json).

  ~/peers/bin/pip install transformers tokenizers && ~/peers/bin/python tests/golden/generate_bpe.py tests/golden/gpt2-bpe
"""
import json, os, random, sys, unicodedata
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Tokenizer

out = sys.argv[1]
CORPUS = [
    "The tide comes in, and the tide goes out; what the sea has taken it doesn't always give back.",
    "She'd said they'll come when we've finished, but I'm sure that he's late and it isn't what you're thinking.",
    "In 1969 two people walked on the moon; 600 million watched. 3.14159 is not a round number, 1,000,000 is.",
    "    for (size_t i = 0; i < count; i++)\n        total += values[i] * weights[i];\n\n    return total / count;\n",
    "Die Flut kommt, und die Ebbe geht; größer als das Meer ist nur der Himmel darüber.",
    "La marée monte, la marée descend ; l'été, on s'y baigne où l'eau n'est pas trop froide.",
    "Прилив приходит, и отлив уходит; море не всегда отдаёт то, что взяло.",
    "狂潮来了，海水退去；数字三十二和64都在这里。潮の満ち引きは月によって決まる。",
    "المد يأتي والجزر يذهب ٢٠٢٦", "समुद्र का पानी आता है और जाता है।", "바다는 넓고 하늘은 높다.",
]
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=600, min_frequency=2, show_progress=False, special_tokens=["<|endoftext|>"],
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
tokenizer.train_from_iterator(CORPUS * 3, trainer)
os.makedirs(out, exist_ok=True)
tokenizer.model.save(out)
peer = GPT2Tokenizer(vocab=os.path.join(out, "vocab.json"), merges=os.path.join(out, "merges.txt"))

texts = CORPUS + [
    "", "a", " ", "  ", "\n", " \n", "\n\n\n", "a ", "a  ", "a  b", "a   b\n", "\ta\t\tb", "a\r\nb\r\n\r\nc", " a", "  a", "1", " 12a3 b4",
    "'s", "''s", "it's", "it'S", "I'll've", "'re're", " 's", "'", "'l", "'v", "don't'", "x'd'm't", "'\u2019s \u2019t",
    "<|endoftext|>", "a<|endoftext|>b", "a <|endoftext|> b", " <|endoftext|>", "<|endoftext|><|endoftext|>", "<|endoftext|", "<<|endoftext|>>",
    "a\u00a0b", "\u00a0\u00a0b", "a\u0085b \u0085", "\u1680\u2003\u2028\u2029\u202f\u205f\u3000x", "\u180e \u200b \u200d \ufeff", "\x1c\x1d\x1e\x1f \x00\x01",
    "\u00bd \u00b2x \u2167 \u0663 \u4e00 \uff11\uff21", "\u01c5\u02b0\u0301e\u0301 \u0903\u093e\u20dd \u00aa\u00ba", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd!",
    "\U0001d400\U0001d7d8 \U00010900 \U000e0041", "\u0e17\u0e30\u0e40\u0e25 \u05d9\u05b0\u05dd", "$\u20ac\u00a3^`~+<=>|", "_a_b__c", "a-b\u2014c\u2026", "!!!???...", "\ufffd\ufffe\uffff",
    "a" * 300, "ab" * 150, "the" * 60, " " * 40 + "x", "tide tide tide" * 8, "\n".join("the sea" for _ in range(12)),
]
random.seed(1)
assigned = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
for n in range(60):
    pick = lambda: random.choice([chr(random.choice(assigned)), chr(random.randrange(32, 127)), random.choice(" \n\t'\u00a0"),
                                  random.choice(["the", "tide", " sea", "'s", "'ll", " 12", "море", "潮", "größ", "  "])])
    texts.append("".join(pick() for _ in range(random.randrange(1, 60))))
texts += ["x \u0085y", "x\u0085\u0085y", " \u1680 a", "\u2003\u2003b", "\u180e\u180e c", "a \u200b b", " \x1c\x1d d", "\u0601 \u06dd5", "\u2160\u00bcz \u00bc"]
plain = pre_tokenizers.ByteLevel(add_prefix_space=False)  # a character of a piece is a byte of the text
cases = [{"text": t, "ids": peer(t)["input_ids"], "pieces": [len(p) for p, _ in plain.pre_tokenize_str(t)]} for t in texts]
for c in cases:
    assert peer.decode(c["ids"], clean_up_tokenization_spaces=False) == c["text"] or "\ufffd" in c["text"], c
with open(os.path.join(out, "cases.json"), "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
print(len(peer), "tokens", len(cases), "texts")
