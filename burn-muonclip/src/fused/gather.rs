//! Stage 1: the gradients of a module, once per parameter id.

use std::collections::HashMap;

use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::{ModuleVisitor, Param, ParamId};
use burn::optim::{GradAdaptor, LearningRate};
use burn::tensor::container::TensorContainer;
use burn::tensor::{Device, Tensor};

use super::health::{GradientSize, measure};
use super::state::States;
use crate::column_blocks::ColumnBlocks;
use crate::muon::{stack_shape, to_working};
use crate::routing::{ParamPlan, Route};

/// The gradient of one parameter that Muon trains.
pub(crate) struct MatrixGradient {
    pub(crate) parameter: Parameter,
    /// `[E, n, m]` in the working dtype.
    pub(crate) grad: Tensor<3>,
}

/// A parameter with a gradient in this step.
#[derive(Clone)]
pub(crate) struct Parameter {
    /// The first path under which the module holds it.
    pub(crate) path: String,
    pub(crate) id: ParamId,
    pub(crate) rank: usize,
    pub(crate) lr: LearningRate,
    pub(crate) weight_decay: f32,
    /// The matrices that Muon takes it for; `None` for one.
    pub(crate) blocks: Option<ColumnBlocks>,
    pub(crate) device: Device,
}

/// All gradients of a step.
#[derive(Default)]
pub(crate) struct Gradients {
    pub(crate) matrices: Vec<MatrixGradient>,
    /// The parameters that AdamW trains, in the order of the module.
    pub(crate) others: Vec<Parameter>,
    /// Their gradients, `Tensor<D>` in the dtype they came in.
    pub(crate) other_grads: TensorContainer<ParamId>,
    /// Size of every gradient, matrices and others, in the order of the module.
    pub(crate) sizes: Vec<GradientSize>,
    /// How many paths hold each parameter with a gradient.
    pub(crate) uses: HashMap<ParamId, usize>,
}

/// Takes the gradients out of their container while walking the module.
pub(crate) struct Gather<'a> {
    pub(crate) plan: &'a ParamPlan,
    pub(crate) states: &'a States,
    pub(crate) grads: GradAdaptor,
    pub(crate) lr: &'a ModuleLearningRate,
    /// Whether the gradients' norms are needed, or only whether they are finite.
    pub(crate) with_norms: bool,
    pub(crate) path: Vec<String>,
    pub(crate) shapes: HashMap<ParamId, Vec<usize>>,
    pub(crate) gathered: Gradients,
}

impl<'a> Gather<'a> {
    pub(crate) fn new(
        plan: &'a ParamPlan,
        states: &'a States,
        grads: GradAdaptor,
        lr: &'a ModuleLearningRate,
        with_norms: bool,
    ) -> Self {
        Self {
            plan,
            states,
            grads,
            lr,
            with_norms,
            path: Vec::new(),
            shapes: HashMap::new(),
            gathered: Gradients::default(),
        }
    }
}

impl ModuleVisitor for Gather<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let id = param.id;
        if let Some(uses) = self.gathered.uses.get_mut(&id) {
            *uses += 1;
            let (shape, path) = (param.base().dims(), self.path.join("."));
            let first = &self.shapes[&id];
            assert!(
                first.as_slice() == shape.as_slice(),
                "MuonClip: parameter `{path}` of shape {shape:?} has the id of a parameter of shape {first:?}"
            );
            return;
        }
        let Some((grad, device)) = self.grads.remove::<D>(id) else {
            return;
        };
        let path = self.path.join(".");
        let (shape, dims) = (param.base().dims(), grad.dims());
        assert!(
            shape == dims,
            "MuonClip: the gradient of `{path}` has shape {dims:?}, the parameter has {shape:?}"
        );
        let entry = self.plan.get(&path).unwrap_or_else(|| {
            panic!(
                "MuonClip: parameter `{path}` of shape {shape:?} was not in the model this optimizer was built for; \
                 build it again with `init_fused`"
            )
        });
        if let Some(state) = self.states.shape(&path) {
            assert!(
                state == shape,
                "MuonClip: the state of `{path}` has shape {state:?}, the parameter has {shape:?}"
            );
        }
        let parameter = Parameter {
            weight_decay: entry.weight_decay,
            blocks: entry.blocks.clone(),
            lr: self.lr.lr_from_param(id, Some(&path)),
            path: path.clone(),
            id,
            rank: D,
            device,
        };
        assert!(
            parameter.lr.is_finite(),
            "MuonClip: the learning rate of `{path}` is {}",
            parameter.lr
        );
        let grad = grad.inner();
        self.gathered.uses.insert(id, 1);
        self.shapes.insert(id, shape.to_vec());
        self.gathered
            .sizes
            .push(measure(path.clone(), grad.clone(), self.with_norms));
        match entry.route {
            Route::Muon => {
                let stack = stack_shape(&shape).unwrap_or_else(|| {
                    panic!("MuonClip: parameter `{path}` has shape {shape:?}, which is no matrix and no stack")
                });
                self.gathered.matrices.push(MatrixGradient {
                    parameter,
                    grad: to_working(grad).reshape(stack),
                });
            }
            Route::AdamW => {
                self.gathered.others.push(parameter);
                self.gathered.other_grads.register(id, grad);
            }
        }
    }
}
