use burn::config::Config;
use burn_kimi_model::{AttentionPlan, ConfigError, DecoderConfig, ForgetGate, ResidualScheme};

fn config() -> DecoderConfig {
    DecoderConfig::new(16, 8, 4, 2, 4, 12)
}

#[test]
fn defaults_are_kimi_linear_in_small() {
    let config = config();
    assert_eq!(config.validate(), Ok(()));
    assert_eq!(config.attention, AttentionPlan::KIMI_LINEAR);
    assert_eq!(config.residual, ResidualScheme::PreNorm);
    assert_eq!((config.kv_lora_rank(), config.qk_rope_head_dim()), (16, 2));
}

#[test]
fn every_impossible_config_is_refused_by_field() {
    let zero = |field| ConfigError::Size { field, size: 0 };
    let huge = |field| ConfigError::Size {
        field,
        size: usize::MAX,
    };
    let hybrid = AttentionPlan::Hybrid { kda_per_mla: 0 };
    let blocks = |blocks| ResidualScheme::AttnResBlock { blocks };
    let cases = [
        (
            DecoderConfig {
                vocab_size: 0,
                ..config()
            },
            zero("vocab_size"),
        ),
        (
            DecoderConfig {
                hidden_size: 0,
                ..config()
            },
            zero("hidden_size"),
        ),
        (
            DecoderConfig {
                num_layers: 0,
                ..config()
            },
            zero("num_layers"),
        ),
        (
            DecoderConfig {
                num_heads: 0,
                ..config()
            },
            zero("num_heads"),
        ),
        (
            DecoderConfig {
                head_dim: 0,
                ..config()
            },
            zero("head_dim"),
        ),
        (
            DecoderConfig {
                intermediate_size: 0,
                ..config()
            },
            zero("intermediate_size"),
        ),
        (
            DecoderConfig {
                head_dim: usize::MAX,
                ..config()
            },
            huge("head_dim"),
        ),
        (
            DecoderConfig {
                num_layers: usize::MAX,
                ..config()
            },
            huge("num_layers"),
        ),
        (
            config().with_kv_lora_rank(Some(usize::MAX)),
            huge("kv_lora_rank"),
        ),
        (
            config().with_qk_rope_head_dim(Some(usize::MAX)),
            huge("qk_rope_head_dim"),
        ),
        (
            config().with_attention(AttentionPlan::Hybrid {
                kda_per_mla: usize::MAX,
            }),
            huge("attention.kda_per_mla"),
        ),
        (config().with_conv_size(0), zero("conv_size")),
        (config().with_kv_lora_rank(Some(0)), zero("kv_lora_rank")),
        (
            config().with_attention(hybrid),
            zero("attention.kda_per_mla"),
        ),
        (config().with_rms_norm_eps(0.0), ConfigError::Epsilon(0.0)),
        (
            config().with_gate(ForgetGate::LowerBound(1.0)),
            ConfigError::LowerBound(1.0),
        ),
        (
            config().with_residual(blocks(9)),
            ConfigError::Blocks {
                blocks: 9,
                sublayers: 8,
            },
        ),
        (
            config().with_residual(blocks(0)),
            ConfigError::Blocks {
                blocks: 0,
                sublayers: 8,
            },
        ),
    ];
    for (config, want) in cases {
        assert_eq!(config.validate(), Err(want.clone()), "{want}");
    }
}

#[test]
fn a_saved_config_loads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let saved = config()
        .with_attention(AttentionPlan::Hybrid { kda_per_mla: 1 })
        .with_residual(ResidualScheme::AttnResBlock { blocks: 2 })
        .with_gate(ForgetGate::LowerBound(-5.0));
    saved.save(&path).unwrap();
    assert_eq!(DecoderConfig::load(&path).unwrap(), saved);
}

#[test]
fn residual_schemes_read_what_they_write() {
    let schemes = [
        ("prenorm", ResidualScheme::PreNorm),
        ("full", ResidualScheme::AttnResFull),
        ("block:8", ResidualScheme::AttnResBlock { blocks: 8 }),
    ];
    for (text, scheme) in schemes {
        assert_eq!(scheme.to_string(), text);
        assert_eq!(text.parse(), Ok(scheme));
    }
    for text in ["", "block", "block:", "block:0", "block:-1", "Full"] {
        let error = text.parse::<ResidualScheme>().unwrap_err();
        assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
    }
}

#[test]
#[should_panic(expected = "DecoderConfig: residual: 9 blocks for 8 sub-layers")]
fn an_impossible_config_builds_no_decoder() {
    let config = config().with_residual(ResidualScheme::AttnResBlock { blocks: 9 });
    config.init(&burn::tensor::Device::flex());
}
