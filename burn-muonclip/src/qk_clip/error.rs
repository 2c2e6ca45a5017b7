use super::Unclippable;

/// QK-Clip cannot be set up as asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QkClipError {
    /// A setting is out of range.
    #[error("QkClipConfig: `{field}` is {value}, but must be {wanted}")]
    Setting {
        /// The field.
        field: &'static str,
        /// Its value.
        value: f64,
        /// What it must be.
        wanted: &'static str,
    },
    /// The query heads are not a multiple of the key heads.
    #[error("layer `{layer}`: {heads} query heads are not a multiple of {key_heads} key heads")]
    Heads {
        /// The layer.
        layer: String,
        /// Its query heads.
        heads: usize,
        /// Its key heads.
        key_heads: usize,
    },
    /// A parameter of the layer is not in the module.
    #[error("layer `{layer}`: its {part} is no parameter of the module")]
    UnknownParameter {
        /// The layer.
        layer: String,
        /// What the parameter is to the layer.
        part: String,
    },
    /// The heads do not fit the parameter.
    #[error("layer `{layer}`: `{path}` has shape {shape:?}, but the heads need {needed} columns")]
    Columns {
        /// The layer.
        layer: String,
        /// The parameter's path.
        path: String,
        /// Its shape.
        shape: Vec<usize>,
        /// One more than the last column of the last head.
        needed: usize,
    },
    /// A column belongs to two parts.
    #[error("layer `{layer}`: column {column} of `{path}` belongs to two parts")]
    Overlap {
        /// The layer.
        layer: String,
        /// The parameter's path.
        path: String,
        /// The column.
        column: usize,
    },
    /// A layer has no part that makes queries, or none that makes keys.
    #[error("layer `{layer}` has no part that makes its {missing}")]
    MissingPart {
        /// The layer.
        layer: String,
        /// Queries or keys.
        missing: &'static str,
    },
    /// Two layers have one name.
    #[error("two layers are named `{layer}`")]
    DuplicateName {
        /// The name.
        layer: String,
    },
    /// The same weights are described by two layers. A layer that is used twice is one layer.
    #[error(
        "layers `{first}` and `{second}` both scale `{path}`; a layer that is used twice is described once"
    )]
    DuplicateParameter {
        /// The first layer.
        first: String,
        /// The second.
        second: String,
        /// The parameter's path.
        path: String,
    },
    /// Clipping would have no effect on the layer's logits.
    #[error("layer `{layer}` cannot be clipped: {reason}")]
    Unclippable {
        /// The layer.
        layer: String,
        /// Why.
        reason: Unclippable,
    },
    /// A saved state does not belong to these layers.
    #[error("the saved state of QK-Clip has {saved} heads for layer `{layer}`, which has {now}")]
    State {
        /// The layer.
        layer: String,
        /// Heads in the state.
        saved: usize,
        /// Heads now.
        now: usize,
    },
}
