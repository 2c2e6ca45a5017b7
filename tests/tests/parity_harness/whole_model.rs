//! MuonClip on a whole decoder: which optimizer trains which parameter.

use burn::tensor::Device;
use burn_kimi_model::{AttentionPlan, DecoderConfig, ResidualScheme};
use burn_muonclip::{MuonClipConfig, Route};
use regex::Regex;

/// Every parameter of a hybrid decoder with Attention Residuals matches exactly one of these.
const ROUTES: &[(&str, Route)] = &[
    (r"^embed_tokens\.weight$", Route::AdamW),
    (r"^lm_head\.weight$", Route::AdamW),
    (r"^norm\.gamma$", Route::AdamW),
    (r"layernorm\.gamma$", Route::AdamW),
    (r"\.o_norm\.norm\.gamma$", Route::AdamW),
    (r"\.reads\.\d+\.(query|gamma)$", Route::AdamW),
    (r"\.(a_log|dt_bias)$", Route::AdamW),
    (r"\.[qkv]_conv1d\.weight$", Route::AdamW),
    (r"\.self_attn\..*[qkvo]_proj\.weight$", Route::Muon),
    (r"\.(kv_a_proj_with_mqa|kv_b_proj)\.weight$", Route::Muon),
    (r"\.mlp\.(gate|up|down)_proj\.weight$", Route::Muon),
    (r"\.([fg]_[ab]|b)_proj\.weight$", Route::Muon),
];

fn config(attention: AttentionPlan, residual: ResidualScheme) -> DecoderConfig {
    DecoderConfig::new(50, 16, 4, 2, 8, 24)
        .with_attention(attention)
        .with_residual(residual)
}

#[test]
fn every_parameter_of_a_decoder_is_routed_by_what_it_is() {
    let residual = ResidualScheme::AttnResBlock { blocks: 4 };
    let decoder = config(AttentionPlan::KIMI_LINEAR, residual).init(&Device::flex());
    let plan = MuonClipConfig::new().plan(&decoder).expect("no overrides");

    let patterns: Vec<(Regex, Route)> = ROUTES
        .iter()
        .map(|(pattern, route)| (Regex::new(pattern).expect("the pattern is valid"), *route))
        .collect();
    let mut used = vec![false; patterns.len()];
    for entry in plan.entries() {
        let matching: Vec<usize> = (0..patterns.len())
            .filter(|at| patterns[*at].0.is_match(&entry.path))
            .collect();
        let [at] = matching[..] else {
            panic!("{} matches {} patterns", entry.path, matching.len())
        };
        assert_eq!(
            entry.route, patterns[at].1,
            "{} {:?}",
            entry.path, entry.shape
        );
        used[at] = true;
    }
    for ((pattern, _), used) in patterns.iter().zip(used) {
        assert!(used, "no parameter matches {pattern}");
    }
}

#[test]
fn every_plan_of_decoder_gives_muon_matrices_and_adamw_the_rest() {
    for attention in [
        AttentionPlan::Mla,
        AttentionPlan::Kda,
        AttentionPlan::KIMI_LINEAR,
    ] {
        for residual in [ResidualScheme::PreNorm, ResidualScheme::AttnResFull] {
            let decoder = config(attention, residual).init(&Device::flex());
            let plan = MuonClipConfig::new().plan(&decoder).expect("no overrides");
            for entry in plan.entries() {
                if entry.route == Route::Muon {
                    assert_eq!(entry.shape.len(), 2, "{}", entry.path);
                }
            }
            // Three matrices in every feed-forward, and at least four in every attention.
            assert!(
                plan.paths(Route::Muon).len() >= 4 * 7,
                "{attention} {residual}"
            );
        }
    }
}
