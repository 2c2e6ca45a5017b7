//! The classification rules as a pure function of shape, path and module types.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::names;

/// The optimizer that trains a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Route {
    /// Momentum and orthogonalised updates: hidden matrices and stacks of them.
    Muon,
    /// Burn's AdamW: everything else.
    AdamW,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Route::Muon => "Muon",
            Route::AdamW => "AdamW",
        })
    }
}

/// Why a parameter has its [`Route`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The user named it.
    Override,
    /// A matrix of rank 2 about which nothing says otherwise.
    HiddenMatrix,
    /// A rank 3 parameter under a name or type that says `expert`.
    ExpertStack,
    /// Not of rank 2 or 3.
    Rank(usize),
    /// One of the matrix's sides has length one or zero.
    OneSided,
    /// An embedding by type or name.
    Embedding,
    /// An output head by type or name.
    OutputHead,
    /// A convolution by type or name.
    Convolution,
    /// Owned by a normalisation layer.
    Normalization,
    /// Owned by attention over depth: queries are vectors.
    DepthAttention,
    /// A LoRA factor.
    LowRankAdapter,
    /// A raw parameter whose own name says it is no matrix.
    Name,
    /// Of rank 3 with nothing to say that it is a stack of matrices.
    UnknownStack,
    /// Shares its id with the parameter at this path, which decides.
    SharedWith(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Override => f.write_str("named by the user"),
            Reason::HiddenMatrix => f.write_str("hidden matrix"),
            Reason::ExpertStack => f.write_str("stack of experts"),
            Reason::Rank(rank) => write!(f, "rank {rank}"),
            Reason::OneSided => f.write_str("a side of length one or zero"),
            Reason::Embedding => f.write_str("embedding"),
            Reason::OutputHead => f.write_str("output head"),
            Reason::Convolution => f.write_str("convolution"),
            Reason::Normalization => f.write_str("normalisation"),
            Reason::DepthAttention => f.write_str("depth attention"),
            Reason::LowRankAdapter => f.write_str("low-rank adapter"),
            Reason::Name => f.write_str("name says no matrix"),
            Reason::UnknownStack => f.write_str("rank 3, not known as a stack of matrices"),
            Reason::SharedWith(path) => write!(f, "shared with {path}"),
        }
    }
}

/// One level of a parameter's path.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    /// Field name, element index or enum variant.
    pub(crate) name: String,
    /// Burn's container type: `Struct:Linear`, `Enum:Mixer`, `Vec`, `Array`, `Tuple`, `Reparameterization`.
    pub(crate) container: String,
}

impl Level {
    /// The name of the struct that has this level as a field.
    fn struct_name(&self) -> Option<&str> {
        self.container.strip_prefix("Struct:")
    }

    fn is_element(&self) -> bool {
        matches!(self.container.as_str(), "Vec" | "Array")
    }
}

/// Where a parameter stands in its module.
struct Place<'a> {
    /// The levels that are fields of structs. Indices and variants name no field, so the owner of `queries.0`
    /// is the struct with `queries`.
    fields: Vec<&'a Level>,
    /// Name of the field that holds the parameter.
    own: &'a str,
    /// Name of the struct with that field.
    owner: &'a str,
    /// Name of the field that holds this struct.
    layer: &'a str,
}

impl<'a> Place<'a> {
    fn of(levels: &'a [Level]) -> Self {
        let fields: Vec<&Level> = levels
            .iter()
            .filter(|level| level.struct_name().is_some())
            .collect();
        let name = |from_last: usize| {
            let level = fields.iter().rev().nth(from_last);
            level.map_or("", |level| level.name.as_str())
        };
        Self {
            own: name(0),
            owner: fields
                .last()
                .and_then(|level| level.struct_name())
                .unwrap_or(""),
            layer: name(1),
            fields,
        }
    }
}

/// Whether the parameter is trained without weight decay unless the user says otherwise.
pub(crate) fn is_never_decayed(levels: &[Level]) -> bool {
    let Place { own, owner, .. } = Place::of(levels);
    names::is_depth_attention_type(owner) || names::is_time_scale(own)
}

/// Applies the rules of the [module documentation](super) to one parameter.
pub(crate) fn classify(levels: &[Level], shape: &[usize]) -> (Route, Reason) {
    match exclusion(levels, shape) {
        Some(reason) => (Route::AdamW, reason),
        None if shape.len() == 2 => (Route::Muon, Reason::HiddenMatrix),
        None if mentions_experts(levels) => (Route::Muon, Reason::ExpertStack),
        None => (Route::AdamW, Reason::UnknownStack),
    }
}

/// Why the parameter is not to be orthogonalised, if anything says so.
fn exclusion(levels: &[Level], shape: &[usize]) -> Option<Reason> {
    let [.., n, m] = *shape else {
        return Some(Reason::Rank(shape.len()));
    };
    if shape.len() > 3 {
        return Some(Reason::Rank(shape.len()));
    }
    let Place {
        fields,
        own,
        owner,
        layer,
    } = Place::of(levels);

    by_owner(owner)
        .or_else(|| is_output_head(levels, &fields, own, layer).then_some(Reason::OutputHead))
        .or_else(|| {
            [own, layer]
                .into_iter()
                .any(names::is_embedding)
                .then_some(Reason::Embedding)
        })
        .or_else(|| {
            [own, layer]
                .into_iter()
                .any(names::is_convolution)
                .then_some(Reason::Convolution)
        })
        .or_else(|| names::is_no_matrix(own).then_some(Reason::Name))
        .or_else(|| (n < 2 || m < 2 || shape[0] == 0).then_some(Reason::OneSided))
}

fn by_owner(owner: &str) -> Option<Reason> {
    if names::is_low_rank_adapter_type(owner) {
        Some(Reason::LowRankAdapter)
    } else if names::is_embedding(owner) {
        Some(Reason::Embedding)
    } else if names::is_convolution(owner) {
        Some(Reason::Convolution)
    } else if names::is_depth_attention_type(owner) {
        Some(Reason::DepthAttention)
    } else if names::is_norm_type(owner) {
        Some(Reason::Normalization)
    } else {
        None
    }
}

fn is_output_head(levels: &[Level], fields: &[&Level], own: &str, layer: &str) -> bool {
    let anywhere = fields.iter().any(|level| {
        names::is_unmistakable_head(&level.name)
            || level.struct_name().is_some_and(names::is_unmistakable_head)
    });
    let inside_layers = levels.iter().any(Level::is_element)
        || fields
            .iter()
            .any(|level| level.struct_name().is_some_and(names::is_sublayer_type));
    anywhere
        || [own, layer].into_iter().any(names::is_head)
        || (!inside_layers && [own, layer].into_iter().any(names::is_output))
}

fn mentions_experts(levels: &[Level]) -> bool {
    levels.iter().any(|level| {
        names::is_experts(&level.name) || level.struct_name().is_some_and(names::is_experts)
    })
}
