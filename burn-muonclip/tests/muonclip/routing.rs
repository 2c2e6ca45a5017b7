//! Which parameter gets which optimizer.

use burn::module::{Lora, Module, Param, ParamGroup};
use burn::nn::attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::conv::{Conv1d, Conv1dConfig};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, LinearLayout};
use burn::tensor::Tensor;
use burn_muonclip::{MuonClipConfig, ParamPlan, PlanError, Reason, Route};

use crate::models::{Empty, Mixed, MixtureOfExperts, Tied, device, linear};

fn dense(rows: usize, columns: usize) -> Linear {
    LinearConfig::new(rows, columns).init(&device())
}

fn raw<const D: usize>(shape: [usize; D]) -> Param<Tensor<D>> {
    Param::from_tensor(Tensor::zeros(shape, &device()))
}

fn plan<M: Module>(module: &M) -> ParamPlan {
    MuonClipConfig::new().plan(module).unwrap()
}

/// Checks the whole plan: the Muon paths in order, and by that everything else as AdamW.
#[track_caller]
fn assert_muon<M: Module>(module: &M, paths: &[&str]) {
    let plan = plan(module);
    assert_eq!(plan.paths(Route::Muon), paths, "\n{plan}");
}

#[derive(Module, Debug)]
struct Attention {
    q_proj: Linear,
    query: Param<Tensor<2>>,
    q_head: Linear,
    dt_bias: Param<Tensor<2>>,
    dt_proj: Param<Tensor<2>>,
    a_log: Param<Tensor<1>>,
    q_conv: ShortConvolution,
    output: Linear,
}

#[derive(Module, Debug)]
struct ShortConvolution {
    weight: Param<Tensor<3>>,
    taps: Param<Tensor<2>>,
}

#[derive(Module, Debug)]
struct Language {
    wte: Param<Tensor<2>>,
    position_embedding: Embedding,
    attention: Attention,
    depth: DepthAttention,
    lm_head: Linear,
}

#[derive(Module, Debug)]
struct DepthAttention {
    queries: Vec<Param<Tensor<1>>>,
    stacked: Param<Tensor<2>>,
}

#[test]
fn language_model_with_every_kind_of_parameter() {
    let model = Language {
        wte: raw([10, 4]),
        position_embedding: EmbeddingConfig::new(8, 4).init(&device()),
        attention: Attention {
            q_proj: dense(4, 6),
            query: raw([4, 6]),
            q_head: dense(4, 6),
            dt_bias: raw([2, 3]),
            dt_proj: raw([2, 3]),
            a_log: raw([2]),
            q_conv: ShortConvolution {
                weight: raw([6, 1, 4]),
                taps: raw([6, 4]),
            },
            output: dense(6, 4),
        },
        depth: DepthAttention {
            queries: vec![raw([4]), raw([4])],
            stacked: raw([5, 4]),
        },
        lm_head: dense(4, 10),
    };
    assert_muon(
        &model,
        &[
            "attention.q_proj.weight",
            "attention.query",
            "attention.q_head.weight",
            "attention.dt_proj",
            "attention.output.weight",
        ],
    );
    let plan = plan(&model);
    for (path, reason) in [
        ("wte", Reason::Embedding),
        ("position_embedding.weight", Reason::Embedding),
        ("attention.q_proj.bias", Reason::Rank(1)),
        ("attention.dt_bias", Reason::Name),
        ("attention.q_conv.weight", Reason::Convolution),
        ("attention.q_conv.taps", Reason::Convolution),
        ("depth.queries.0", Reason::Rank(1)),
        ("depth.stacked", Reason::DepthAttention),
        ("lm_head.weight", Reason::OutputHead),
    ] {
        assert_eq!(plan.get(path).unwrap().reason, reason, "{path}");
    }
}

#[test]
fn fixture_model_is_routed_as_the_table_says() {
    let hidden = [
        "layers.0.up.weight",
        "layers.0.down.weight",
        "layers.1.up.weight",
        "layers.1.down.weight",
    ];
    assert_muon(&Mixed::new(&device()), &hidden);
}

#[test]
fn plain_stack_of_linear_layers_is_hidden() {
    #[derive(Module, Debug)]
    struct Stack {
        layers: Vec<Linear>,
    }
    let stack = Stack {
        layers: vec![dense(3, 4), dense(4, 5), dense(5, 2)],
    };
    assert_muon(
        &stack,
        &["layers.0.weight", "layers.1.weight", "layers.2.weight"],
    );
    assert_muon(&dense(3, 4), &["weight"]);
}

#[test]
fn output_is_a_head_at_the_top_and_a_projection_in_layers() {
    #[derive(Module, Debug)]
    struct Classifier {
        input: Linear,
        attention: MultiHeadAttention,
        output: Linear,
    }
    let model = Classifier {
        input: dense(3, 4),
        attention: MultiHeadAttentionConfig::new(4, 2).init(&device()),
        output: dense(4, 3),
    };
    assert_muon(
        &model,
        &[
            "input.weight",
            "attention.query.weight",
            "attention.key.weight",
            "attention.value.weight",
            "attention.output.weight",
        ],
    );
}

#[test]
fn heads_are_found_by_name() {
    macro_rules! assert_head {
        ($($name:ident),*) => {$({
            #[derive(Module, Debug)]
            struct Model { $name: Linear }
            let model = Model { $name: dense(4, 6) };
            let path = concat!(stringify!($name), ".weight");
            assert_eq!(plan(&model).get(path).unwrap().reason, Reason::OutputHead, "{path}");
        })*};
    }
    assert_head!(
        lm_head,
        head,
        output_head,
        value_head,
        unembed,
        unembedding,
        classifier,
        logits,
        to_logits,
        output_layer,
        output
    );
}

#[test]
fn heads_are_found_by_type() {
    #[derive(Module, Debug)]
    struct LMHead {
        dense: Linear,
    }
    #[derive(Module, Debug)]
    struct Model {
        last: LMHead,
    }
    let model = Model {
        last: LMHead { dense: dense(4, 6) },
    };
    assert_muon(&model, &[]);
}

#[test]
fn names_that_only_resemble_others_stay_hidden() {
    macro_rules! assert_hidden {
        ($($name:ident),*) => {$({
            #[derive(Module, Debug)]
            struct Model { $name: Linear }
            let model = Model { $name: dense(4, 6) };
            assert_muon(&model, &[concat!(stringify!($name), ".weight")]);
        })*};
    }
    assert_hidden!(
        converter, heads, k_head, gate_proj, router, gate, member, fc_final, g_proj, b_proj
    );
}

#[test]
fn experts_are_a_stack_of_matrices_and_other_rank_three_is_not() {
    assert_muon(
        &MixtureOfExperts::new(&device()),
        &["router.weight", "experts"],
    );

    #[derive(Module, Debug)]
    struct Unknown {
        table: Param<Tensor<3>>,
        volume: Param<Tensor<4>>,
    }
    let unknown = Unknown {
        table: raw([3, 4, 5]),
        volume: raw([2, 3, 4, 5]),
    };
    let plan = plan(&unknown);
    assert_eq!(plan.get("table").unwrap().reason, Reason::UnknownStack);
    assert_eq!(plan.get("volume").unwrap().reason, Reason::Rank(4));
}

#[test]
fn convolutions_are_no_stacks_even_among_experts() {
    #[derive(Module, Debug)]
    struct Experts {
        conv: Conv1d,
        short_conv: Param<Tensor<3>>,
        bias: Param<Tensor<2>>,
    }
    let experts = Experts {
        conv: Conv1dConfig::new(4, 4, 3).init(&device()),
        short_conv: raw([6, 2, 4]),
        bias: raw([3, 4]),
    };
    assert_muon(&experts, &[]);
}

#[test]
fn one_sided_matrices_go_to_adamw() {
    #[derive(Module, Debug)]
    struct OneSided {
        row: Param<Tensor<2>>,
        column: Param<Tensor<2>>,
        single: Param<Tensor<2>>,
        empty: Param<Tensor<2>>,
    }
    let model = OneSided {
        row: raw([1, 5]),
        column: raw([5, 1]),
        single: raw([1, 1]),
        empty: raw([0, 5]),
    };
    let plan = plan(&model);
    assert!(
        plan.entries()
            .iter()
            .all(|entry| entry.reason == Reason::OneSided),
        "\n{plan}"
    );
}

#[test]
fn low_rank_adapters_go_to_adamw() {
    let model = dense(6, 8).apply_lora(Lora::new(2, 4.0));
    let plan = plan(&model);
    assert_eq!(
        plan.get("weight.lora.a").unwrap().reason,
        Reason::LowRankAdapter,
        "\n{plan}"
    );
    assert_eq!(
        plan.get("weight.lora.b").unwrap().reason,
        Reason::LowRankAdapter
    );
}

#[test]
fn orientation_does_not_matter() {
    for (rows, columns) in [(3, 9), (9, 3)] {
        for layout in [LinearLayout::Row, LinearLayout::Col] {
            assert_muon(&linear(rows, columns, layout, &device()), &["weight"]);
        }
    }
}

#[test]
fn overrides_by_path_regex_and_id() {
    let model = Mixed::new(&device());
    let config = MuonClipConfig::new()
        .with_adamw(ParamGroup::from_regex(r"^layers\.\d\.up\.weight$").unwrap())
        .with_muon(ParamGroup::from_path("layers.1.up.weight"))
        .with_muon(ParamGroup::from_ids(vec![model.head.weight.id]));
    let plan = config.plan(&model).unwrap();
    assert_eq!(
        plan.paths(Route::Muon),
        [
            "layers.0.down.weight",
            "layers.1.up.weight",
            "layers.1.down.weight",
            "head.weight"
        ]
    );
    assert_eq!(
        plan.get("layers.0.up.weight").unwrap().reason,
        Reason::Override
    );
}

#[test]
fn the_documented_group_of_gate_projections_is_the_gates() {
    #[derive(Module, Debug)]
    struct Mixer {
        f_a_proj: Linear,
        g_b_proj: Linear,
        b_proj: Linear,
        kv_b_proj: Linear,
        q_proj: Linear,
    }
    let model = Mixer {
        f_a_proj: dense(4, 6),
        g_b_proj: dense(4, 6),
        b_proj: dense(4, 6),
        kv_b_proj: dense(4, 6),
        q_proj: dense(4, 6),
    };
    assert_eq!(plan(&model).paths(Route::Muon).len(), 5);
    let gates = ParamGroup::from_regex(r"\b(f_a|f_b|g_a|g_b|b)_proj\.weight$").unwrap();
    let plan = MuonClipConfig::new()
        .with_adamw(gates)
        .plan(&model)
        .unwrap();
    assert_eq!(
        plan.paths(Route::Muon),
        ["kv_b_proj.weight", "q_proj.weight"]
    );
}

#[test]
fn overriding_what_is_no_matrix_names_path_and_shape() {
    let model = Mixed::new(&device());
    let config = MuonClipConfig::new().with_muon(ParamGroup::from_path("norm.gamma"));
    let error = config.plan(&model).unwrap_err();
    assert_eq!(
        error,
        PlanError::NotAMatrix {
            path: "norm.gamma".to_owned(),
            shape: vec![6]
        }
    );
    assert!(
        error.to_string().contains("`norm.gamma` has shape [6]"),
        "{error}"
    );
}

#[test]
#[should_panic(expected = "parameter `norm.gamma` has shape [6]")]
fn building_with_such_an_override_panics() {
    let config = MuonClipConfig::new().with_muon(ParamGroup::from_path("norm.gamma"));
    config.init(&Mixed::new(&device()));
}

#[test]
fn unmatched_overrides_are_listed() {
    let config = MuonClipConfig::new()
        .with_adamw(ParamGroup::from_path("head.weight"))
        .with_adamw(ParamGroup::from_path("layers.0.uq.weight"));
    let plan = config.plan(&Mixed::new(&device())).unwrap();
    assert_eq!(plan.unmatched_overrides(), [1]);
    assert!(plan.to_string().contains("override 1 matches no parameter"));
}

#[test]
fn shared_parameters_have_one_route() {
    #[derive(Module, Debug)]
    struct Shared {
        hidden: Linear,
        lm_head: Linear,
    }
    let hidden = linear(4, 6, LinearLayout::Row, &device());
    let model = Shared {
        lm_head: hidden.clone(),
        hidden,
    };
    let plan = plan(&model);
    assert!(plan.has_shared());
    assert_eq!(plan.paths(Route::Muon), [] as [&str; 0]);
    assert_eq!(
        plan.get("hidden.weight").unwrap().reason,
        Reason::SharedWith("lm_head.weight".to_owned())
    );

    let config = MuonClipConfig::new().with_muon(ParamGroup::from_path("hidden.weight"));
    let plan = config.plan(&model).unwrap();
    assert_eq!(plan.paths(Route::Muon), ["hidden.weight", "lm_head.weight"]);
    assert!(
        !MuonClipConfig::new()
            .plan(&Mixed::new(&device()))
            .unwrap()
            .has_shared()
    );
    assert!(
        MuonClipConfig::new()
            .plan(&Tied::new(&device()))
            .unwrap()
            .has_shared()
    );
}

#[test]
fn plan_prints_every_path_with_shape_optimizer_and_reason() {
    let model = Mixed::new(&device());
    let printed = plan(&model).to_string();
    assert_eq!(printed.lines().count(), plan(&model).entries().len());
    let line = printed
        .lines()
        .find(|line| line.starts_with("layers.0.down.weight"))
        .unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(
        words,
        [
            "layers.0.down.weight",
            "[10,",
            "6]",
            "Muon",
            "decay",
            "0.1",
            "hidden",
            "matrix"
        ]
    );
}

#[test]
fn planning_does_not_initialise_parameters() {
    let model = dense(3, 4);
    plan(&model);
    assert!(!model.weight.is_initialized());
}

#[test]
fn the_plan_has_the_shapes_of_values_before_they_are_initialised() {
    for layout in [LinearLayout::Row, LinearLayout::Col] {
        let model = linear(3, 4, layout, &device().autodiff());
        let planned = plan(&model).get("weight").unwrap().shape.clone();
        assert!(!model.weight.is_initialized());
        assert_eq!(planned, model.weight.val().dims(), "{layout:?}");
    }
}

#[test]
fn empty_module_has_an_empty_plan() {
    assert!(plan(&Empty).entries().is_empty());
}
