//! What the names of fields and types say about a parameter. Data and pure string functions only.

/// Output heads under any name of the path, and as types: `lm_head.dense.weight`, `struct LmHead`.
const UNMISTAKABLE_HEADS: &[&str] = &["lm_head", "output_head", "unembed", "unembedding"];

/// Output heads when the layer itself carries the name: `head.weight`, `classifier.weight`.
const HEADS: &[&str] = &[
    "head",
    "classifier",
    "classification_head",
    "logits",
    "to_logits",
    "output_layer",
    "output_projection",
    "vocab_proj",
    "vocab_projection",
    "unembed_proj",
    "score",
];

/// `q_head` and the like are projections of attention, not output heads.
const INNER_HEAD_PREFIXES: &[&str] = &["q", "k", "v", "o", "qk", "kv", "qkv", "attn", "attention"];

/// Names that mean the output of the model at its top and the output of a sublayer elsewhere.
const OUTPUTS: &[&str] = &["output", "out", "fc_out", "linear_out"];

/// Words in a type's name that make an `output` below it a sublayer's.
const SUBLAYERS: &[&str] = &[
    "attention",
    "attn",
    "mha",
    "mla",
    "kda",
    "feed",
    "forward",
    "ffn",
    "mlp",
    "glu",
    "gate",
    "lstm",
    "gru",
    "rnn",
    "layer",
    "block",
    "mixer",
    "expert",
    "experts",
    "moe",
];

const EMBEDDINGS: &[&str] = &[
    "embed",
    "embedding",
    "embeddings",
    "embedder",
    "embeds",
    "emb",
    "embs",
    "wte",
    "wpe",
];

const NORMS: &[&str] = &["norm", "layernorm", "rmsnorm", "batchnorm", "groupnorm"];

const EXPERTS: &[&str] = &["expert", "experts"];

/// Words that mark a raw parameter as something other than the matrix of a linear map.
const NO_MATRIX: &[&str] = &[
    "bias",
    "biases",
    "b",
    "gamma",
    "beta",
    "norm",
    "gain",
    "scale",
    "log",
    "dt",
    "alpha",
    "temperature",
    "position",
    "positions",
    "pos",
    "token",
    "tokens",
    "queries",
    "latents",
    "mask",
    "state",
    "slopes",
    "prototypes",
    "codebook",
    "mean",
    "var",
    "std",
];

/// Words that mark a raw parameter as a matrix although another word is in [`NO_MATRIX`] (`dt_proj`).
const MATRIX: &[&str] = &[
    "proj",
    "projection",
    "weight",
    "weights",
    "kernel",
    "matrix",
    "linear",
];

/// Parts of the names of types that attend over depth.
const DEPTH_ATTENTION: &[&str] = &[
    "attn_res",
    "attention_residual",
    "depth_attention",
    "depth_quer",
    "depth_read",
];

/// Raw parameters that set time scales, which weight decay would pull towards one scale for all.
const TIME_SCALES: &[&str] = &["a_log", "dt_bias"];

/// `LMHead`, `RmsNorm` and `lm_head` as lower-case words: `lm head`, `rms norm`.
pub(crate) fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (i, &letter) in letters.iter().enumerate() {
        let after_lower = i > 0 && !letters[i - 1].is_uppercase();
        let before_lower = letters.get(i + 1).is_some_and(|next| next.is_lowercase());
        if !letter.is_alphanumeric() || (letter.is_uppercase() && (after_lower || before_lower)) {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words
                .last_mut()
                .expect("never empty")
                .extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn any_word(name: &str, list: &[&str]) -> bool {
    words(name).iter().any(|word| list.contains(&word.as_str()))
}

/// A name that is an output head wherever it stands, as a field or as a type.
pub(crate) fn is_unmistakable_head(name: &str) -> bool {
    UNMISTAKABLE_HEADS.contains(&words(name).join("_").as_str())
}

/// A layer's own name that makes it an output head.
pub(crate) fn is_head(name: &str) -> bool {
    let name = words(name).join("_");
    HEADS.contains(&name.as_str())
        || name
            .strip_suffix("_head")
            .is_some_and(|prefix| !INNER_HEAD_PREFIXES.contains(&prefix))
}

/// A layer's own name that makes it an output head at the top of a model only.
pub(crate) fn is_output(name: &str) -> bool {
    OUTPUTS.contains(&words(name).join("_").as_str())
}

/// A type below which `output` is the end of a sublayer.
pub(crate) fn is_sublayer_type(name: &str) -> bool {
    any_word(name, SUBLAYERS)
}

pub(crate) fn is_embedding(name: &str) -> bool {
    any_word(name, EMBEDDINGS)
}

/// `conv`, `convs`, `Conv1d`, `ShortConvolution`, but not `converter`.
pub(crate) fn is_convolution(name: &str) -> bool {
    words(name).iter().any(|word| {
        word.strip_prefix("conv").is_some_and(|rest| {
            rest.is_empty()
                || rest == "s"
                || rest.starts_with("olution")
                || rest.starts_with(|c: char| c.is_ascii_digit())
        })
    })
}

pub(crate) fn is_norm_type(name: &str) -> bool {
    any_word(name, NORMS)
}

/// Attention over depth, whose queries are vectors even when they are stacked into a matrix.
pub(crate) fn is_depth_attention_type(name: &str) -> bool {
    let name = words(name).join("_");
    DEPTH_ATTENTION.iter().any(|part| name.contains(part))
}

pub(crate) fn is_low_rank_adapter_type(name: &str) -> bool {
    any_word(name, &["lora"])
}

pub(crate) fn is_experts(name: &str) -> bool {
    any_word(name, EXPERTS)
}

/// A raw parameter's own name that says it is no matrix.
pub(crate) fn is_no_matrix(name: &str) -> bool {
    any_word(name, NO_MATRIX) && !any_word(name, MATRIX)
}

/// A raw parameter's own name that says it sets a time scale: `a_log`, `A_log`, `dt_bias`.
pub(crate) fn is_time_scale(name: &str) -> bool {
    TIME_SCALES.contains(&words(name).join("_").as_str())
}
