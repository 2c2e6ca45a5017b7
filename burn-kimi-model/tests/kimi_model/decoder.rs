use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};
use burn_kimi_model::{AttentionPlan, Decoder, DecoderConfig, ResidualScheme};

pub(crate) const VOCAB: usize = 16;

/// Every attention plan under every residual scheme, in four layers, so that the published hybrid has both kinds.
pub(crate) fn compositions() -> Vec<DecoderConfig> {
    let attention = [
        AttentionPlan::Mla,
        AttentionPlan::Kda,
        AttentionPlan::KIMI_LINEAR,
    ];
    let residual = [
        ResidualScheme::PreNorm,
        ResidualScheme::AttnResFull,
        ResidualScheme::AttnResBlock { blocks: 2 },
    ];
    let pairs = attention
        .iter()
        .flat_map(|a| residual.iter().map(move |r| (*a, *r)));
    pairs
        .map(|(attention, residual)| {
            DecoderConfig::new(VOCAB, 8, 4, 2, 4, 12)
                .with_attention(attention)
                .with_residual(residual)
        })
        .collect()
}

pub(crate) fn tokens(rows: &[[i32; 12]], device: &Device) -> Tensor<2, Int> {
    let rows: Vec<Tensor<1, Int>> = rows
        .iter()
        .map(|row| Tensor::from_data(*row, device))
        .collect();
    Tensor::stack(rows, 0)
}

const TEXT: [[i32; 12]; 2] = [
    [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8],
    [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5],
];

#[track_caller]
fn assert_same(what: &str, got: Tensor<3>, want: Tensor<3>, tolerance: f32) {
    let difference = (got - want.clone())
        .square()
        .mean()
        .sqrt()
        .into_scalar::<f32>();
    let size = want.square().mean().sqrt().into_scalar::<f32>();
    assert!(
        difference <= tolerance * size,
        "{what}: {difference} of {size}"
    );
}

/// Zero-initialised depth queries would hide a wrong read: give them values.
pub(crate) fn with_queries(model: Decoder) -> Decoder {
    struct Fill;
    impl burn::module::ModuleMapper for Fill {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let (id, value, mapper) = param.consume();
            let zero = value.clone().abs().sum().into_scalar::<f32>() == 0.0;
            let value = if zero {
                value.random_like(burn::tensor::Distribution::Default)
            } else {
                value
            };
            Param::from_mapped_value(id, value, mapper)
        }
    }
    model.map(&mut Fill)
}

#[test]
fn logits_step_by_step_equal_one_pass() {
    let device = Device::flex();
    for config in compositions() {
        let model = with_queries(config.init(&device));
        let tokens = tokens(&TEXT, &device);
        let want = model.forward(tokens.clone());
        assert_eq!(want.dims(), [2, 12, VOCAB]);
        for pieces in [&[1; 12][..], &[5, 1, 6], &[11, 1]] {
            let (mut state, mut at, mut logits) = (model.init_state(), 0, Vec::new());
            for count in pieces {
                let (piece, next) =
                    model.forward_with_state(tokens.clone().narrow(1, at, *count), state);
                at += count;
                assert_eq!(next.tokens(), at);
                logits.push(piece);
                state = next;
            }
            let got = Tensor::cat(logits, 1);
            assert_same(
                &format!("{} {} {pieces:?}", config.attention, config.residual),
                got,
                want.clone(),
                1e-5,
            );
        }
    }
}

#[test]
fn a_later_token_changes_no_earlier_logits() {
    let device = Device::flex();
    for config in compositions() {
        let model = with_queries(config.init(&device));
        let mut changed = TEXT;
        changed[0][7..].copy_from_slice(&[0, 1, 2, 3, 4]);
        let before = model.forward(tokens(&TEXT, &device));
        let after = model.forward(tokens(&changed, &device));
        let prefix = |x: &Tensor<3>| x.clone().narrow(1, 0, 7);
        assert_same("prefix", prefix(&after), prefix(&before), 1e-6);
        let second = |x: &Tensor<3>| x.clone().narrow(0, 1, 1);
        assert_same("the other sequence", second(&after), second(&before), 1e-6);
        let moved = (after - before).abs().max().into_scalar::<f32>();
        assert!(moved > 1e-4, "the change must show later");
    }
}

/// The queries start at zero, so every read is a plain average, which the norms behind it undo.
#[test]
fn attention_residuals_start_as_the_prenorm_network() {
    let device = Device::flex();
    for residual in [
        ResidualScheme::AttnResFull,
        ResidualScheme::AttnResBlock { blocks: 3 },
    ] {
        let config = DecoderConfig::new(VOCAB, 8, 3, 2, 4, 12).with_rms_norm_eps(1e-12);
        let with = config.clone().with_residual(residual).init(&device);
        let without = Decoder {
            attn_res: None,
            ..with.clone()
        };
        let tokens = tokens(&TEXT, &device);
        assert_same(
            &residual.to_string(),
            with.forward(tokens.clone()),
            without.forward(tokens),
            1e-5,
        );
    }
}

#[test]
fn a_saved_model_loads_the_same() {
    let device = Device::flex();
    let folder = tempfile::tempdir().unwrap();
    for (index, config) in compositions().into_iter().enumerate() {
        let model = with_queries(config.init(&device));
        let path = folder.path().join(format!("{index}.bpk"));
        model.clone().save_file(&path).unwrap();
        let loaded = config.init(&device).load_file(&path);
        let tokens = tokens(&TEXT, &device);
        assert_eq!(
            loaded.forward(tokens.clone()).into_data(),
            model.forward(tokens).into_data()
        );
    }
}

#[test]
fn a_forked_state_goes_two_ways() {
    let device = Device::flex();
    let model = compositions()[5].init(&device);
    let all = tokens(&TEXT, &device);
    let (_, state) = model.forward_with_state(all.clone().narrow(1, 0, 6), model.init_state());
    let (first, _) = model.forward_with_state(all.clone().narrow(1, 6, 1), state.clone());
    let (other, _) = model.forward_with_state(all.clone().narrow(1, 2, 1), state.clone());
    let (again, _) = model.forward_with_state(all.narrow(1, 6, 1), state);
    assert_eq!(first.clone().into_data(), again.into_data());
    assert_ne!(first.into_data(), other.into_data());
}

/// The fields that checkpoints are mapped to: a change here breaks saved models.
#[test]
fn paths_of_the_parameters() {
    let config = DecoderConfig::new(VOCAB, 8, 2, 2, 4, 12)
        .with_attention(AttentionPlan::Hybrid { kda_per_mla: 1 })
        .with_residual(ResidualScheme::AttnResBlock { blocks: 1 });
    let mut paths = Paths::default();
    config.init(&Device::flex()).visit(&mut paths);
    let layer = |index: usize, attention: &str, names: &[&str]| -> Vec<String> {
        let within = |name: &str| format!("layers.{index}.{name}");
        let attention = |name: &&str| within(&format!("self_attn.{attention}.{name}"));
        let mut paths = vec![within("input_layernorm.gamma")];
        paths.extend(names.iter().map(attention));
        paths.push(within("post_attention_layernorm.gamma"));
        paths.extend(["gate", "up", "down"].map(|name| within(&format!("mlp.{name}_proj.weight"))));
        paths
    };
    let delta = [
        "q_proj.weight",
        "k_proj.weight",
        "v_proj.weight",
        "q_conv1d.weight",
        "k_conv1d.weight",
        "v_conv1d.weight",
        "a_log",
        "dt_bias",
        "f_a_proj.weight",
        "f_b_proj.weight",
        "b_proj.weight",
        "g_a_proj.weight",
        "g_b_proj.weight",
        "o_norm.norm.gamma",
        "o_proj.weight",
    ];
    let latent = [
        "q_proj.weight",
        "kv_a_proj_with_mqa.weight",
        "kv_a_layernorm.gamma",
        "kv_b_proj.weight",
        "o_proj.weight",
    ];
    let reads = (0..5)
        .flat_map(|read| ["query", "gamma"].map(|name| format!("attn_res.reads.{read}.{name}")));
    let mut want = vec!["embed_tokens.weight".to_string()];
    want.extend(layer(0, "Kda", &delta));
    want.extend(layer(1, "Mla", &latent));
    want.extend(reads);
    want.extend(["norm.gamma", "lm_head.weight"].map(String::from));
    assert_eq!(paths.found, want);
}

#[derive(Default)]
struct Paths {
    path: Vec<String>,
    found: Vec<String>,
}

impl burn::module::ModuleVisitor for Paths {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<D>>) {
        self.found.push(self.path.join("."));
    }
}

#[test]
fn nothing_in_gives_nothing_out() {
    let device = Device::flex();
    for config in compositions() {
        let model = config.init(&device);
        for shape in [[2, 0], [0, 3], [0, 0]] {
            let empty = Tensor::<2, Int>::zeros(shape, &device);
            let (logits, state) = model.forward_with_state(empty, model.init_state());
            assert_eq!(logits.dims(), [shape[0], shape[1], VOCAB]);
            assert_eq!(state.tokens(), 0);
            let (logits, _) = model.forward_with_state(tokens(&TEXT, &device), state);
            assert_eq!(logits.dims(), [2, 12, VOCAB]);
        }
    }
}

#[test]
#[should_panic(expected = "a state of 4 layers was given to a model of 1")]
fn the_state_of_another_model_is_refused() {
    let device = Device::flex();
    let state = compositions()[0].init(&device).init_state();
    let other = DecoderConfig::new(VOCAB, 8, 1, 2, 4, 12).init(&device);
    other.forward_with_state(tokens(&TEXT, &device), state);
}

#[test]
#[should_panic(expected = "a delta attention layer was given the state of latent attention")]
fn the_state_of_another_attention_is_refused() {
    let device = Device::flex();
    let latent = DecoderConfig::new(VOCAB, 8, 1, 2, 4, 12)
        .with_attention(AttentionPlan::Mla)
        .init(&device);
    let delta = DecoderConfig::new(VOCAB, 8, 1, 2, 4, 12)
        .with_attention(AttentionPlan::Kda)
        .init(&device);
    let tokens = tokens(&TEXT, &device);
    let (_, state) = latent.forward_with_state(tokens.clone(), latent.init_state());
    delta.forward_with_state(tokens, state);
}
