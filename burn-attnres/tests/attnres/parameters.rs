//! The parameters of a stack: their initial values, names and training.

use burn::config::Config;
use burn::module::{Module, ModuleVisitor, Param, ParamGroup};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Distribution, Tensor};
use burn_attnres::{AttnRes, AttnResConfig, BlockPlan, ScheduleError};

use crate::network::rms_norm;
use crate::numbers::to_f64;

/// A user's model: the crate's parameters among other layers.
#[derive(Module, Debug)]
struct Model {
    layers: Vec<Linear>,
    attn_res: AttnRes,
}

impl Model {
    fn new(device: &Device) -> Self {
        Self {
            layers: (0..3)
                .map(|_| LinearConfig::new(4, 4).init(device))
                .collect(),
            attn_res: AttnResConfig::new(4, 3)
                .with_plan(BlockPlan::SublayersPerBlock(2))
                .init(device),
        }
    }

    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let mut stream = self.attn_res.start(x);
        for layer in &self.layers {
            let h = stream.read(&self.attn_res);
            stream.write(layer.forward(rms_norm(h, 1e-6)));
        }
        stream.finish(&self.attn_res)
    }
}

/// The path and shape of every parameter.
#[derive(Default)]
struct Names {
    path: Vec<String>,
    seen: Vec<(String, Vec<usize>)>,
}

impl ModuleVisitor for Names {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.seen
            .push((self.path.join("."), param.shape().to_vec()));
    }
}

fn queries_and_gammas(attn_res: &AttnRes) -> (Vec<f64>, Vec<f64>) {
    let all = |of: fn(&burn_attnres::DepthRead) -> Tensor<1>| {
        attn_res
            .reads
            .iter()
            .flat_map(|read| to_f64(of(read)))
            .collect()
    };
    (all(|read| read.query.val()), all(|read| read.gamma.val()))
}

#[test]
fn queries_start_at_zero_and_gammas_at_one() {
    let model = Model::new(&Device::flex());
    assert_eq!(model.attn_res.reads.len(), 4);
    let (queries, gammas) = queries_and_gammas(&model.attn_res);
    assert_eq!(queries, [0.0; 16]);
    assert_eq!(gammas, [1.0; 16]);
}

#[test]
fn paths_and_shapes() {
    let model = Model::new(&Device::flex());
    let mut names = Names::default();
    model.visit(&mut names);
    let of_attn_res: Vec<_> = names
        .seen
        .into_iter()
        .filter(|(path, _)| path.starts_with("attn_res"))
        .collect();
    let want: Vec<(String, Vec<usize>)> = (0..4)
        .flat_map(|read| ["query", "gamma"].map(|name| (read, name)))
        .map(|(read, name)| (format!("attn_res.reads.{read}.{name}"), vec![4]))
        .collect();
    assert_eq!(of_attn_res, want);
}

/// The paper counts `2 d` for each of `2 L_b + 1` reads; 48 layers of width 150 are its 29,100 parameters.
#[test]
fn number_of_parameters() {
    let attn_res = AttnResConfig::new(150, 2 * 48).init(&Device::flex());
    assert_eq!(attn_res.num_params(), 29_100);
}

#[test]
fn training_moves_every_query_but_the_first() {
    let device = Device::flex().autodiff();
    let mut model = Model::new(&device);
    let mut optimizer = AdamWConfig::new().init().with_group(
        ParamGroup::from_regex(r"\.reads\.\d+\.(query|gamma)$").expect("a regex"),
        AdamWConfig::new().with_weight_decay(0.0).build(),
        None,
    );
    let x = Tensor::random([2, 5, 4], Distribution::Default, &device);
    for _ in 0..2 {
        let loss = (model.forward(x.clone()) - 1.0).square().mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
    }
    for (i, read) in model.attn_res.reads.iter().enumerate() {
        let query = to_f64(read.query.val());
        let gamma = to_f64(read.gamma.val());
        if i == 0 {
            // Its gradients are exactly zero, and nothing decays.
            assert_eq!(query, [0.0; 4]);
            assert_eq!(gamma, [1.0; 4]);
        } else {
            assert!(query.iter().all(|x| x.abs() > 1e-3), "query {i}: {query:?}");
            assert!(
                gamma.iter().any(|x| (x - 1.0).abs() > 1e-4),
                "gamma {i}: {gamma:?}"
            );
        }
    }
}

#[test]
fn a_record_restores_the_parameters() {
    let device = Device::flex();
    let mut model = Model::new(&device);
    model.attn_res.reads[2].query = Param::from_data([1.0, 2.0, 3.0, 4.0], &device);
    let (queries, gammas) = queries_and_gammas(&model.attn_res);
    let loaded = Model::new(&device).load_record(model.into_record());
    assert_eq!(queries_and_gammas(&loaded.attn_res), (queries, gammas));
    assert_eq!(loaded.attn_res.schedule().blocks(), 2);
}

#[test]
fn a_config_round_trips_through_json() {
    let config = AttnResConfig::new(64, 12)
        .with_plan(BlockPlan::LayersPerBlock(2))
        .with_eps(1e-5);
    let json = config.to_string();
    let loaded = AttnResConfig::load_binary(json.as_bytes()).expect("a config");
    assert_eq!(loaded, config);
    assert_eq!(AttnResConfig::new(64, 12).plan, BlockPlan::Full);
    assert_eq!(AttnResConfig::new(64, 12).eps, 1e-6);
}

#[test]
fn a_config_reports_an_impossible_plan() {
    let config = AttnResConfig::new(4, 3).with_plan(BlockPlan::NumBlocks(4));
    assert_eq!(
        config.schedule(),
        Err(ScheduleError::MoreBlocksThanSublayers {
            blocks: 4,
            sublayers: 3
        })
    );
}

#[test]
#[should_panic(
    expected = "AttnResConfig: 4 blocks cannot be made of 3 sub-layers; ask for at most 3 blocks"
)]
fn init_with_an_impossible_plan() {
    AttnResConfig::new(4, 3)
        .with_plan(BlockPlan::NumBlocks(4))
        .init(&Device::flex());
}

#[test]
#[should_panic(expected = "AttnResConfig: d_model is 0, wanted at least 1")]
fn init_without_width() {
    AttnResConfig::new(0, 3).init(&Device::flex());
}
