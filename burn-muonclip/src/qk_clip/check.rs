//! Whether settings and layers fit each other and the module.

use std::collections::HashMap;

use burn::module::{ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;

use super::layer::{QkLayer, QkSide};
use super::{QkClipConfig, QkClipError, Unclippable};

pub(super) fn check_settings(config: &QkClipConfig) -> Result<(), QkClipError> {
    let QkClipConfig {
        threshold, balance, ..
    } = *config;
    if !(threshold.is_finite() && threshold > 0.0) {
        return Err(QkClipError::Setting {
            field: "threshold",
            value: threshold,
            wanted: "positive and finite",
        });
    }
    if !(0.0..=1.0).contains(&balance) {
        return Err(QkClipError::Setting {
            field: "balance",
            value: balance,
            wanted: "from 0 to 1",
        });
    }
    Ok(())
}

/// The parameters of a module.
#[derive(Default)]
pub(super) struct Parameters {
    path: Vec<String>,
    pub(super) known: HashMap<ParamId, Known>,
    /// The paths of all modules and parameters, for what stands beside a projection.
    paths: Vec<String>,
}

pub(super) struct Known {
    path: String,
    pub(super) shape: Vec<usize>,
}

impl ModuleVisitor for Parameters {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let (path, shape) = (self.path.join("."), param.base().dims().to_vec());
        self.paths.push(path.clone());
        self.known.entry(param.id).or_insert(Known { path, shape });
    }
}

/// Names of norms of queries and keys. Norms of latents (`q_a_layernorm`) stand before the projection and are none.
const QK_NORMS: [&str; 8] = [
    "q_norm",
    "k_norm",
    "qk_norm",
    "query_norm",
    "key_norm",
    "q_layernorm",
    "k_layernorm",
    "norm_q",
];

impl Parameters {
    /// Whether a norm of queries or keys stands beside the projection that has this parameter.
    fn has_qk_norm_beside(&self, path: &str) -> bool {
        let Some((layer, _)) = path
            .rsplit_once('.')
            .and_then(|(linear, _)| linear.rsplit_once('.').or(Some(("", linear))))
        else {
            return false;
        };
        self.paths.iter().any(|other| {
            let beside = match layer {
                "" => Some(other.as_str()),
                layer => other
                    .strip_prefix(layer)
                    .and_then(|rest| rest.strip_prefix('.')),
            };
            let name = beside.and_then(|rest| rest.split('.').next());
            name.is_some_and(|name| QK_NORMS.contains(&name))
        })
    }
}

pub(super) fn check_layers(layers: &[QkLayer], parameters: &Parameters) -> Result<(), QkClipError> {
    let mut owners: HashMap<ParamId, &str> = HashMap::new();
    for (at, layer) in layers.iter().enumerate() {
        let name = || layer.name.clone();
        if layers[..at].iter().any(|other| other.name == layer.name) {
            return Err(QkClipError::DuplicateName { layer: name() });
        }
        let (heads, key_heads) = (layer.heads, layer.key_heads);
        if key_heads == 0 || !heads.is_multiple_of(key_heads) {
            return Err(QkClipError::Heads {
                layer: name(),
                heads,
                key_heads,
            });
        }
        for (side, missing) in [(QkSide::Query, "queries"), (QkSide::Key, "keys")] {
            if !layer.parts.iter().any(|part| part.side == side) {
                return Err(QkClipError::MissingPart {
                    layer: name(),
                    missing,
                });
            }
        }
        let mut taken: HashMap<ParamId, Vec<bool>> = HashMap::new();
        for part in &layer.parts {
            let Some(known) = parameters.known.get(&part.param) else {
                return Err(QkClipError::UnknownParameter {
                    layer: name(),
                    part: format!("{:?}", part.side),
                });
            };
            if let Some(first) = owners.insert(part.param, &layer.name)
                && first != layer.name
            {
                return Err(QkClipError::DuplicateParameter {
                    first: first.to_owned(),
                    second: name(),
                    path: known.path.clone(),
                });
            }
            let columns = known.shape.last().copied().unwrap_or(0);
            let taken = taken
                .entry(part.param)
                .or_insert_with(|| vec![false; columns]);
            for head in 0..layer.heads_of(part.side) {
                let range = part.columns.of(head);
                if range.end > columns {
                    let last = part.columns.of(layer.heads_of(part.side) - 1);
                    return Err(QkClipError::Columns {
                        layer: name(),
                        path: known.path.clone(),
                        shape: known.shape.clone(),
                        needed: last.end,
                    });
                }
                for column in range {
                    if std::mem::replace(&mut taken[column], true) {
                        return Err(QkClipError::Overlap {
                            layer: name(),
                            path: known.path.clone(),
                            column,
                        });
                    }
                }
            }
            if parameters.has_qk_norm_beside(&known.path) {
                return Err(QkClipError::Unclippable {
                    layer: name(),
                    reason: Unclippable::QkNorm,
                });
            }
        }
    }
    Ok(())
}
