//! Weight decay by parameter, in both forms.

use std::collections::BTreeMap;

use burn::module::{Module, Param, ParamGroup};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearLayout};
use burn::tensor::{Device, Tensor};
use burn_muonclip::{MuonClipConfig, Route};

use crate::models::{
    Mixed, Tied, linear, made_up_gradients, numbers, seeded, tensor, training_device,
};
use crate::optimizers::{FORMS, Form};
use crate::reference::relative_error;

fn regex(pattern: &str) -> ParamGroup {
    ParamGroup::from_regex(pattern).unwrap()
}

/// Linear attention with its time scales, and reads over depth.
#[derive(Module, Debug)]
struct Kimi {
    a_log: Param<Tensor<1>>,
    dt_bias: Param<Tensor<2>>,
    b_proj: Linear,
    norm: LayerNorm,
    reads: Vec<DepthRead>,
    stacked: DepthAttention,
}

#[derive(Module, Debug)]
struct DepthRead {
    query: Param<Tensor<1>>,
    gamma: Param<Tensor<1>>,
}

#[derive(Module, Debug)]
struct DepthAttention {
    queries: Param<Tensor<2>>,
}

impl Kimi {
    fn new(device: &Device) -> Self {
        fn ones<const D: usize>(shape: [usize; D]) -> Param<Tensor<D>> {
            let count = shape.iter().product();
            Param::from_tensor(Tensor::from_inner(tensor(&vec![1.0; count], shape)))
        }
        Self {
            a_log: ones([2]),
            dt_bias: ones([2, 3]),
            b_proj: linear(4, 6, LinearLayout::Row, device),
            norm: LayerNormConfig::new(4).init(device),
            reads: vec![DepthRead {
                query: ones([4]),
                gamma: ones([4]),
            }],
            stacked: DepthAttention {
                queries: ones([3, 4]),
            },
        }
    }
}

/// One step with zero gradients, as the fraction of each parameter that is gone, divided by the learning rate.
fn measured<M: Module>(form: Form, config: &MuonClipConfig, model: M) -> BTreeMap<String, f64> {
    let model = seeded(model);
    let before = numbers(&model);
    let grads = made_up_gradients(&model, 1, 0.0);
    let after = numbers(&form.init(config, &model).step(0.5, model, grads));
    let decay = |path: &str, after: Vec<f64>| {
        let norm = |x: &[f64]| x.iter().map(|v| v * v).sum::<f64>().sqrt();
        if after == before[path] {
            return 0.0;
        }
        (1.0 - norm(&after) / norm(&before[path])) / 0.5
    };
    after
        .into_iter()
        .map(|(path, after)| (path.clone(), decay(&path, after)))
        .collect()
}

/// Every decay of the plan is the one with which both forms train.
#[track_caller]
fn assert_decays<M: Module>(config: &MuonClipConfig, model: &M, want: &[(&str, f32)]) {
    let plan = config.plan(model).unwrap();
    let mut planned: BTreeMap<&str, f32> = BTreeMap::new();
    for entry in plan.entries() {
        planned.insert(&entry.path, entry.weight_decay);
    }
    for (path, want) in want {
        assert_eq!(planned.get(path), Some(want), "{path}\n{plan}");
    }
    for form in FORMS {
        for (path, measured) in measured(form, config, model.clone()) {
            let planned = f64::from(planned[path.as_str()]);
            let close = (measured - planned).abs() < 1e-5 && (measured == 0.0) == (planned == 0.0);
            assert!(close, "{form:?} {path}: {measured}, planned {planned}");
        }
    }
}

#[test]
fn groups_of_both_optimizers_have_decays_of_their_own() {
    let config = MuonClipConfig::new()
        .with_group_weight_decay(regex(r"^layers\.0\."), 0.3)
        .with_group_weight_decay(ParamGroup::from_path("layers.1.up.weight"), 0.0)
        .with_group_weight_decay(ParamGroup::from_path("embedding.weight"), 0.05)
        .with_group_weight_decay(regex(r"^norm\."), 0.0);
    assert_decays(
        &config,
        &Mixed::new(&training_device()),
        &[
            ("layers.0.up.weight", 0.3),
            ("layers.0.up.bias", 0.3),
            ("layers.0.down.weight", 0.3),
            ("layers.1.up.weight", 0.0),
            ("layers.1.down.weight", 0.1),
            ("embedding.weight", 0.05),
            ("norm.gamma", 0.0),
            ("head.weight", 0.1),
        ],
    );
}

#[test]
fn the_last_match_decides() {
    let model = Mixed::new(&training_device());
    let config = MuonClipConfig::new()
        .with_group_weight_decay(ParamGroup::all(), 0.2)
        .with_group_weight_decay(ParamGroup::from_ids(vec![model.head.weight.id]), 0.0)
        .with_group_weight_decay(regex(r"^layers\."), 0.0)
        .with_group_weight_decay(regex(r"^layers\.1\."), 0.1);
    assert_decays(
        &config,
        &model,
        &[
            ("embedding.weight", 0.2),
            ("layers.0.up.weight", 0.0),
            ("layers.1.up.weight", 0.1),
            ("head.weight", 0.0),
        ],
    );
}

#[test]
fn time_scales_and_depth_attention_do_not_decay_by_default() {
    let model = Kimi::new(&training_device());
    let config = MuonClipConfig::new();
    assert_decays(
        &config,
        &model,
        &[
            ("a_log", 0.0),
            ("dt_bias", 0.0),
            ("b_proj.weight", 0.1),
            ("norm.gamma", 0.1),
            ("norm.beta", 0.1),
            ("reads.0.query", 0.0),
            ("reads.0.gamma", 0.0),
            ("stacked.queries", 0.0),
        ],
    );
    let plan = config.plan(&model).unwrap();
    assert_eq!(plan.paths(Route::Muon), ["b_proj.weight"]);

    let config = config.with_group_weight_decay(ParamGroup::all(), 0.1);
    assert_decays(&config, &model, &[("a_log", 0.1), ("reads.0.query", 0.1)]);

    // The documented way to say the same for other names.
    let undecayed = vec![r"reads\.\d+\.(query|gamma)$", r"\b(a_log|dt_bias)$"];
    let config =
        config.with_group_weight_decay(ParamGroup::from_any_regexes(undecayed).unwrap(), 0.0);
    assert_decays(
        &config,
        &model,
        &[
            ("a_log", 0.0),
            ("dt_bias", 0.0),
            ("norm.gamma", 0.1),
            ("reads.0.query", 0.0),
            ("reads.0.gamma", 0.0),
        ],
    );
}

#[test]
fn ordinary_parameters_all_decay_by_default() {
    let plan = MuonClipConfig::new()
        .with_weight_decay(0.05)
        .plan(&Mixed::new(&training_device()))
        .unwrap();
    assert!(
        plan.entries()
            .iter()
            .all(|entry| entry.weight_decay == 0.05),
        "\n{plan}"
    );
}

#[test]
fn both_forms_train_alike_and_load_each_other() {
    let config = MuonClipConfig::new()
        .with_group_weight_decay(regex(r"^layers\.0\."), 0.5)
        .with_group_weight_decay(regex(r"^(norm|embedding)\."), 0.0);
    let mut model = seeded(Mixed::new(&training_device()));
    let mut module_form = Form::Module.init(&config, &model);
    for step in 0..2 {
        let grads = made_up_gradients(&model, step, 1.0);
        model = module_form.step(0.02, model, grads);
    }
    let mut fused = Form::Fused
        .init(&config, &model)
        .load_bytes(module_form.to_bytes());
    let mut module_form = Form::Module
        .init(&config, &model)
        .load_bytes(fused.to_bytes());
    let grads = made_up_gradients(&model, 2, 1.0);
    let a = numbers(&module_form.step(0.02, model.clone(), grads));
    let grads = made_up_gradients(&model, 2, 1.0);
    let b = numbers(&fused.step(0.02, model, grads));
    for (path, a) in &a {
        let error = relative_error(a, &b[path]);
        assert!(error < 1e-6, "{path}: {error}");
    }
}

#[test]
fn shared_parameters_have_one_weight_decay() {
    let model = Tied::new(&training_device());
    let decay_of = |path: &str, decay: f32| {
        let config =
            MuonClipConfig::new().with_group_weight_decay(ParamGroup::from_path(path), decay);
        let plan = config.plan(&model).unwrap();
        ["first.weight", "second.weight", "between.weight"]
            .map(|path| plan.get(path).unwrap().weight_decay)
    };
    assert_eq!(decay_of("second.weight", 0.3), [0.3, 0.3, 0.1]);
    assert_eq!(decay_of("first.weight", 0.0), [0.0, 0.0, 0.1]);
}

#[test]
fn the_plan_prints_weight_decays_and_overrides_without_parameters() {
    let config = MuonClipConfig::new()
        .with_group_weight_decay(ParamGroup::from_path("head.weight"), 0.0)
        .with_group_weight_decay(ParamGroup::from_path("tail.weight"), 0.0);
    let plan = config.plan(&Mixed::new(&training_device())).unwrap();
    assert_eq!(plan.unmatched_weight_decays(), [1]);
    let printed = plan.to_string();
    let line = |path| {
        let mut lines = printed.lines();
        lines.find(|line| line.starts_with(path)).unwrap()
    };
    assert!(
        line("head.weight").contains("AdamW  no decay   output head"),
        "{printed}"
    );
    assert!(
        line("embedding.weight").contains("AdamW  decay 0.1  embedding"),
        "{printed}"
    );
    assert!(
        line("weight decay override 1").ends_with("matches no parameter"),
        "{printed}"
    );
}
