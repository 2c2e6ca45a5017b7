//! Configuration shared by both ways of using MuonClip.

use burn::config::Config;
use burn::module::{Module, ParamGroup};
use burn::optim::{AdamWConfig, ModuleOptimizer};

use crate::adamw::AuxiliaryAdamW;
use crate::column_blocks::ColumnBlocks;
use crate::error::PlanError;
use crate::fused::MuonClip;
use crate::muon::{Muon, MuonConfig};
use crate::newton_schulz::NewtonSchulzConfig;
use crate::routing::{
    self, BlocksOverride, ParamPlan, Route, RouteOverride, WeightDecayOverride, Wishes,
};

/// Configuration of MuonClip: Muon for hidden matrices, AdamW for everything else.
///
/// The defaults are those of Kimi K2 ([arXiv:2507.20534](https://arxiv.org/abs/2507.20534)): momentum 0.95,
/// weight decay 0.1, AdamW betas 0.9 and 0.95. They differ from Burn's `AdamWConfig` (weight
/// decay 1e-4, second beta 0.999, epsilon 1e-5): set the weight decay explicitly to compare the two. The
/// learning rate is the one AdamW would use.
///
/// ```
/// use burn::module::ParamGroup;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::Device;
/// use burn_muonclip::MuonClipConfig;
///
/// let model: Linear = LinearConfig::new(64, 32).init(&Device::default());
/// let config = MuonClipConfig::new()
///     .with_weight_decay(0.05)
///     .with_adamw(ParamGroup::from_regex(r"router\.weight$").unwrap());
/// print!("{}", config.plan(&model).unwrap());
/// let optimizer = config.init_fused(&model);
/// ```
#[derive(Config, Debug)]
pub struct MuonClipConfig {
    /// Momentum of Muon.
    #[config(default = 0.95)]
    pub momentum: f64,
    /// Whether Muon looks one step ahead (`mu M + G`), as Moonlight's code does. Algorithm 1 of the Kimi K2
    /// report as printed does not.
    #[config(default = true)]
    pub nesterov: bool,
    /// Whether Muon's momentum is kept in bf16 between steps: 2 bytes a parameter instead of 4. On devices that store bf16.
    #[config(default = false)]
    pub bf16_momentum: bool,
    /// Steps and coefficients of the orthogonalisation.
    #[config(default = "NewtonSchulzConfig::new()")]
    pub newton_schulz: NewtonSchulzConfig,
    /// Root mean square of a full-rank Muon update before the learning rate.
    #[config(default = 0.2)]
    pub update_rms: f64,
    /// Decoupled weight decay, multiplied by the learning rate: of all parameters, norm gains and biases
    /// included, except the few that the [routing rules](crate::routing) leave without and those in
    /// [`weight_decay_overrides`](Self::weight_decay_overrides).
    #[config(default = 0.1)]
    pub weight_decay: f32,
    /// First beta of AdamW.
    #[config(default = 0.9)]
    pub beta_1: f32,
    /// Second beta of AdamW.
    #[config(default = 0.95)]
    pub beta_2: f32,
    /// Epsilon of AdamW.
    #[config(default = 1e-8)]
    pub epsilon: f32,
    /// Largest norm of all gradients taken together; larger gradients are scaled down to it before the
    /// momentum. Only [`init_fused`](Self::init_fused) sees all gradients at once.
    pub max_grad_norm: Option<f64>,
    /// Parameters whose optimizer the user chose, in order: the last match decides. Usually filled by
    /// [`with_muon`](Self::with_muon) and [`with_adamw`](Self::with_adamw).
    #[config(default = "Vec::new()")]
    pub overrides: Vec<RouteOverride>,
    /// Parameters whose weight decay the user chose, in order: the last match decides. Usually filled by
    /// [`with_group_weight_decay`](Self::with_group_weight_decay).
    #[config(default = "Vec::new()")]
    pub weight_decay_overrides: Vec<WeightDecayOverride>,
    /// Parameters that Muon takes for several matrices, in order: the last match decides. Usually filled by
    /// [`with_column_blocks`](Self::with_column_blocks).
    #[config(default = "Vec::new()")]
    pub block_overrides: Vec<BlocksOverride>,
}

impl MuonClipConfig {
    /// Trains the parameters of `group` by Muon. Each must be a matrix or a stack of matrices.
    pub fn with_muon(self, group: ParamGroup) -> Self {
        self.with_route(group, Route::Muon)
    }

    /// Trains the parameters of `group` by AdamW.
    pub fn with_adamw(self, group: ParamGroup) -> Self {
        self.with_route(group, Route::AdamW)
    }

    /// Trains the parameters of `group` with this weight decay, whichever optimizer has them; 0 for none.
    ///
    /// ```
    /// use burn::module::ParamGroup;
    /// use burn_muonclip::MuonClipConfig;
    ///
    /// let config = MuonClipConfig::new()
    ///     .with_weight_decay(0.1)
    ///     .with_group_weight_decay(ParamGroup::from_path("embedding.weight"), 0.01)
    ///     // What the names `AttnRes`, `a_log` and `dt_bias` do by default, for modules that have others:
    ///     .with_group_weight_decay(
    ///         ParamGroup::from_any_regexes(vec![r"reads\.\d+\.(query|gamma)$", r"\b(a_log|dt_bias)$"]).unwrap(),
    ///         0.0,
    ///     );
    /// # assert_eq!(config.weight_decay_overrides.len(), 2);
    /// ```
    pub fn with_group_weight_decay(mut self, group: ParamGroup, weight_decay: f32) -> Self {
        self.weight_decay_overrides.push(WeightDecayOverride {
            group,
            weight_decay,
        });
        self
    }

    /// Orthogonalises blocks of the columns of the parameters of `group` apart: the parts of fused projections, or the heads of attention projections. Momentum,
    /// state files and everything that AdamW trains stay as they are.
    ///
    /// ```
    /// use burn::module::ParamGroup;
    /// use burn_muonclip::{ColumnBlocks, MuonClipConfig};
    ///
    /// let group = |pattern| ParamGroup::from_regex(pattern).unwrap();
    /// let config = MuonClipConfig::new()
    ///     .with_column_blocks(group(r"qkv\.weight$"), ColumnBlocks::Split(vec![64, 16, 16]))
    ///     .with_column_blocks(group(r"[qkv]_proj\.weight$"), ColumnBlocks::Heads(4));
    /// # assert_eq!(config.block_overrides.len(), 2);
    /// ```
    pub fn with_column_blocks(mut self, group: ParamGroup, blocks: ColumnBlocks) -> Self {
        self.block_overrides.push(BlocksOverride { group, blocks });
        self
    }

    fn with_route(mut self, group: ParamGroup, route: Route) -> Self {
        self.overrides.push(RouteOverride { group, route });
        self
    }

    /// Which optimizer would train which parameter of `module`, and with which weight decay. Initialises no
    /// parameter.
    ///
    /// # Errors
    /// [`PlanError`] if an override cannot be followed.
    pub fn plan<M: Module>(&self, module: &M) -> Result<ParamPlan, PlanError> {
        routing::plan(
            module,
            Wishes {
                routes: &self.overrides,
                weight_decay: self.weight_decay,
                weight_decays: &self.weight_decay_overrides,
                blocks: &self.block_overrides,
            },
        )
    }

    /// Builds Burn's own [`ModuleOptimizer`], which a `Learner` takes: AdamW as the base, and groups by
    /// path for the hidden matrices of `module`, which Muon trains, and for parameters with a weight decay of
    /// their own.
    ///
    /// A `ModuleOptimizer` sees one parameter at a time. Of parameters that share an id it updates only the
    /// first, which a warning reports; it does not skip steps, and regrouping between saving and loading
    /// drops the states concerned. [`init_fused`](Self::init_fused) has none of these limits.
    ///
    /// # Panics
    /// Panics if an override sends a parameter to Muon that is no matrix, if column blocks do not fit, and if
    /// [`max_grad_norm`](Self::max_grad_norm) is set.
    pub fn init<M: Module>(&self, module: &M) -> ModuleOptimizer {
        assert!(
            self.max_grad_norm.is_none(),
            "MuonClipConfig::init: `max_grad_norm` needs all gradients at once; use `init_fused`"
        );
        let plan = self.checked_plan(module);
        if plan.has_shared() {
            log::warn!(
                "the model shares parameters between paths, and a ModuleOptimizer updates only the first use of each; \
                 use MuonClipConfig::init_fused"
            );
        }
        let mut optimizer = ModuleOptimizer::from(self.adamw());
        for alike in plan.alike(Route::AdamW) {
            if alike.weight_decay != self.weight_decay {
                let adamw = self.adamw().with_weight_decay(alike.weight_decay);
                optimizer = optimizer.with_group(ParamGroup::from_paths(alike.paths), adamw, None);
            }
        }
        for alike in plan.alike(Route::Muon) {
            let muon = self.muon(alike.weight_decay, alike.blocks.cloned());
            optimizer = optimizer.with_group(ParamGroup::from_paths(alike.paths), muon, None);
        }
        optimizer
    }

    /// Builds [`MuonClip`], which sees the whole module in every step.
    ///
    /// # Panics
    /// Panics if an override sends a parameter to Muon that is no matrix, if column blocks do not fit, and if
    /// [`max_grad_norm`](Self::max_grad_norm) is not positive.
    pub fn init_fused<M: Module>(&self, module: &M) -> MuonClip {
        if let Some(norm) = self.max_grad_norm {
            assert!(
                norm > 0.0,
                "MuonClipConfig: `max_grad_norm` must be positive, got {norm}"
            );
        }
        MuonClip::new(
            self.checked_plan(module),
            self.muon(self.weight_decay, None),
            self.adamw(),
            self.max_grad_norm,
        )
    }

    fn checked_plan<M: Module>(&self, module: &M) -> ParamPlan {
        let plan = self
            .plan(module)
            .unwrap_or_else(|error| panic!("MuonClipConfig: {error}"));
        for i in plan.unmatched_overrides() {
            log::warn!(
                "override {i} of MuonClipConfig matches no parameter: {:?}",
                self.overrides[*i]
            );
        }
        for i in plan.unmatched_weight_decays() {
            log::warn!(
                "weight decay override {i} of MuonClipConfig matches no parameter: {:?}",
                self.weight_decay_overrides[*i]
            );
        }
        for i in plan.unmatched_blocks() {
            log::warn!(
                "column blocks {i} of MuonClipConfig match no parameter: {:?}",
                self.block_overrides[*i]
            );
        }
        plan
    }

    fn muon(&self, weight_decay: f32, blocks: Option<ColumnBlocks>) -> Muon {
        MuonConfig::new()
            .with_momentum(self.momentum)
            .with_nesterov(self.nesterov)
            .with_bf16_momentum(self.bf16_momentum)
            .with_newton_schulz(self.newton_schulz.clone())
            .with_update_rms(self.update_rms)
            .with_weight_decay(weight_decay)
            .with_column_blocks(blocks)
            .build()
    }

    fn adamw(&self) -> AuxiliaryAdamW {
        AuxiliaryAdamW::new(
            AdamWConfig::new()
                .with_beta_1(self.beta_1)
                .with_beta_2(self.beta_2)
                .with_epsilon(self.epsilon)
                .with_weight_decay(self.weight_decay),
        )
    }
}
