# SPDX-License-Identifier: Apache-2.0
# A small run of hsdp-gpt, for suites to source: its text, and its settings in $scratch/gpt.yaml.
#
# shellcheck shell=sh disable=SC2154 # scratch and n_steps are the suite's

# The text: some order for the model to learn, and some disorder.
awk 'BEGIN {
    for (i = 0; i < 4000; i++) {
        x = (x * 69069 + 12345) % 65536
        printf "%s", substr("the quick brown fox jumps over a lazy dog. ", 1 + i % 41, 1 + x % 3)
    }
}' >"$scratch/text"

cat >"$scratch/gpt.yaml" <<TEXT
dataset: $scratch/text
num_layers: 2
hidden_size: 32
num_attention_heads: 2
sequence_length: 32
micro_batch_size: 1
global_batch_size: 12
max_steps: $n_steps
learning_rate: 0.003
warmup_steps: 5
validation_interval: 0
nccl_timeout_seconds: 30
TEXT
